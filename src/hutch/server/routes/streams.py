"""What stays open both ways, over WebSockets: a shell, a command with input, a port."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from hutch.engine.ports import ByteStream
from hutch.model.errors import HutchError, InvalidRequest
from hutch.model.process import OutputEvent, ProcessSpec
from hutch.model.wire import dumps, pack_error, pack_event
from hutch.server import trail
from hutch.server.answers import internal, refusal
from hutch.server.auth import principal_of
from hutch.server.bodies import ProcessBody
from hutch.server.services import Services, services_of

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}", tags=["streams"])
FAILED = 1011
END_OF_INPUT = "eof"
PIECE_BYTES = 64 * 1024
Route = Callable[..., Awaitable[None]]


def coded(route: Route) -> Route:
    """Errors before the handshake are HTTP answers; afterwards the last message, then the connection ends."""

    @functools.wraps(route)
    async def run(websocket: WebSocket, **rest: Any) -> None:
        try:
            await route(websocket, **rest)
        except HutchError as error:
            await _refuse(websocket, error)
        except (WebSocketDisconnect, ConnectionError):  # after ours, of which one is a ConnectionError, too
            pass
        except Exception as error:  # noqa: BLE001 - a connection has no other place for it
            await _refuse(websocket, internal(error))

    return run


async def _refuse(websocket: WebSocket, error: HutchError) -> None:
    trail.failed(error)
    with contextlib.suppress(RuntimeError, WebSocketDisconnect, ConnectionError):  # it is gone, which is fine
        if websocket.client_state.name == "CONNECTING":
            await websocket.send_denial_response(refusal(error))
        else:
            await websocket.send_text(dumps({"event": "error", **pack_error(error)}).decode("ascii"))
            await websocket.close(FAILED, error.code)


@contextlib.asynccontextmanager
async def both(*works: Awaitable[None]) -> AsyncIterator[None]:
    """Until one of them ends; the others are cancelled. Its error, if any, is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@router.websocket("/ports/{port}/stream")
@coded
async def connect(websocket: WebSocket, sandbox_id: str, port: int) -> None:
    """Bytes to and from what listens on a port; the text `eof` is the end of one direction."""
    services = services_of(websocket)
    caller = await principal_of(websocket, services)
    caller.require("use")
    stream = await services.engine.ports.connect(caller.tenant, sandbox_id, port)
    try:
        await websocket.accept()
        async with both(_to_port(websocket, stream), _from_port(websocket, stream)):
            pass
        await websocket.close()
    finally:
        await stream.aclose()


async def _to_port(websocket: WebSocket, stream: ByteStream) -> None:
    while (message := await websocket.receive())["type"] != "websocket.disconnect":
        if message.get("bytes") is not None:
            await stream.send(message["bytes"])
        elif message.get("text") == END_OF_INPUT:
            await stream.send_eof()
    raise WebSocketDisconnect


async def _from_port(websocket: WebSocket, stream: ByteStream) -> None:
    while piece := await stream.receive(PIECE_BYTES):
        await websocket.send_bytes(piece)
    await websocket.send_text(END_OF_INPUT)
    await asyncio.Event().wait()  # the other direction may go on; whoever opened the connection ends it


@router.websocket("/shell")
@coded
async def shell(
    websocket: WebSocket,
    sandbox_id: str,
    rows: Annotated[int, Query(gt=0, lt=10_000)] = 24,
    columns: Annotated[int, Query(gt=0, lt=10_000)] = 80,
    cwd: str | None = None,
) -> None:
    """A bash on a terminal: binary messages are its bytes; text is JSON (`resize` here, `event` there)."""
    services = services_of(websocket)
    caller = await principal_of(websocket, services)
    caller.require("use")
    spec = ProcessSpec(pty=(rows, columns), cwd=cwd, tag="shell")
    await _follow(websocket, services, caller.tenant, sandbox_id, spec, raw=True)


@router.websocket("/exec")
@coded
async def run(websocket: WebSocket, sandbox_id: str) -> None:
    """A command with input: the first message is what POST /exec takes. Then come JSON messages both ways.

    There: `started`, `stdout`, `stderr`, `exit`, `error`. Here: `input` (text) or `data` (base64), `close_input`,
    `signal`, `resize`. Leaving ends the command.
    """
    services = services_of(websocket)
    caller = await principal_of(websocket, services)
    caller.require("use")
    await websocket.accept()
    try:
        body = ProcessBody.model_validate(await websocket.receive_json())
    except (ValidationError, json.JSONDecodeError, KeyError, UnicodeDecodeError, RecursionError):
        raise InvalidRequest("The first message is JSON, as the body of POST …/exec.") from None
    spec = body.spec(services.engine.settings.default_command_timeout if body.pty is None else None)
    await _follow(websocket, services, caller.tenant, sandbox_id, spec, raw=False)


async def _follow(
    websocket: WebSocket, services: Services, tenant: str, sandbox_id: str, spec: ProcessSpec, *, raw: bool
) -> None:
    processes = services.engine.processes
    process_id = (await processes.start(tenant, sandbox_id, spec))["process_id"]
    try:
        if raw:
            await websocket.accept()
        await _say(websocket, {"event": "started", "process_id": process_id})
        hearing = _Hearing(websocket, services, tenant, sandbox_id, process_id)
        telling = _tell(websocket, processes.attach(tenant, sandbox_id, process_id), raw=raw)
        async with both(telling, hearing.listen()):
            await websocket.close()
    finally:
        await asyncio.shield(processes.kill(tenant, sandbox_id, process_id))


async def _say(websocket: WebSocket, message: dict[str, Any]) -> None:
    await websocket.send_text(dumps(message).decode("ascii"))


async def _tell(websocket: WebSocket, events: AsyncIterator[OutputEvent], *, raw: bool) -> None:
    async for event in events:
        if raw and event["data"]:
            await websocket.send_bytes(event["data"])
        elif not raw or event["type"] == "exit":
            await _say(websocket, {"event": event["type"], **pack_event(event)})


class _Hearing:
    """What a client says to its process."""

    def __init__(self, websocket: WebSocket, services: Services, tenant: str, sandbox_id: str, process_id: str) -> None:
        self._websocket = websocket
        self._processes = services.engine.processes
        self._process = (tenant, sandbox_id, process_id)

    async def listen(self) -> None:
        """Raises: WebSocketDisconnect, InvalidRequest, ProcessEnded."""
        while (message := await self._websocket.receive())["type"] != "websocket.disconnect":
            if message.get("bytes") is not None:
                await self._processes.send_input(*self._process, message["bytes"])
            else:
                await self._obey(message.get("text") or "")
        raise WebSocketDisconnect

    async def _obey(self, text: str) -> None:
        try:
            said = json.loads(text)
            if "resize" in said:
                rows, columns = said["resize"]
                await self._processes.resize(*self._process, int(rows), int(columns))
            elif "signal" in said:
                await self._processes.signal(*self._process, int(said["signal"]), "tree")
            elif "close_input" in said:
                await self._processes.close_input(*self._process)
            elif "data" in said:
                await self._processes.send_input(*self._process, base64.b64decode(said["data"], validate=True))
            else:
                await self._processes.send_input(*self._process, str(said["input"]).encode())
        except (TypeError, KeyError, ValueError, RecursionError, binascii.Error) as error:
            if isinstance(error, HutchError):
                raise
            raise InvalidRequest("A message is JSON with one of input, data, close_input, signal or resize.") from None
