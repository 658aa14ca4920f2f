"""Commands that somebody waits for, and processes by their ids."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from hutch.model.process import ExecResult, LogChunk, OutputEvent, ProcessInfo, StreamName
from hutch.model.wire import pack_chunk, pack_event, sse
from hutch.server.answers import Json
from hutch.server.auth import Reader, User
from hutch.server.bodies import ProcessBody, SignalBody, SizeBody, Whole
from hutch.server.calls import unless_gone
from hutch.server.events import event_stream
from hutch.server.schemas import shape
from hutch.server.services import Services, Shared
from hutch.server.trail import note

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}", tags=["processes"])
LONGEST_WAIT = 60.0
LONGEST_INPUT = 8 * 1024 * 1024
WholeLine = Literal["all", "exit"]


@router.post("/exec", response_model=shape(ExecResult))
async def execute(
    sandbox_id: str,
    body: ProcessBody,
    caller: User,
    services: Shared,
    request: Request,
    key: Annotated[
        str | None,
        Header(alias="Idempotency-Key", description="The command runs once for each key, even when we are hung up on."),
    ] = None,
    on_disconnect: Annotated[
        Literal["kill", "keep"], Query(description="What becomes of it when you hang up.")
    ] = "kill",
    events: Annotated[WholeLine, Query(description="Of a stream: all, or only its end.")] = "all",
) -> Response:
    """Run a command and wait for its result; with `Accept: text/event-stream` its output as it comes.

    Events: `started` (process_id), `stdout` and `stderr` (text; data in base64 where text does not say it), `exit`
    (result), `error`.
    """
    spec = body.spec(services.engine.settings.default_command_timeout)
    if "text/event-stream" in request.headers.get("accept", ""):
        started = await services.engine.processes.begin_stream(caller.tenant, sandbox_id, spec)
        packed = _packed(started.events(), started.process_id, events)
        return event_stream(packed, started.aclose)
    work = services.engine.processes.execute
    if key is not None:
        asked = (sandbox_id, spec)
        return Json(
            await services.calls.once(
                caller.tenant, f"exec {key}", asked, lambda: work(caller.tenant, sandbox_id, spec)
            )
        )
    if on_disconnect == "keep":
        return Json(await work(caller.tenant, sandbox_id, spec))
    return Json(await unless_gone(request.receive, work(caller.tenant, sandbox_id, spec)))


async def _packed(
    events: AsyncIterator[OutputEvent], process_id: str, wanted: WholeLine = "all"
) -> AsyncIterator[bytes]:
    yield sse("started", {"process_id": process_id})
    async for event in events:
        if wanted == "all" or event["type"] == "exit":
            yield sse(event["type"], pack_event(event))


@router.post("/processes", response_model=shape(ProcessInfo), status_code=201)
async def start(sandbox_id: str, body: ProcessBody, caller: User, services: Shared) -> Response:
    """Start a process and answer at once. Without a time-out it lives until it ends or its sandbox goes."""
    return Json(await services.engine.processes.start(caller.tenant, sandbox_id, body.spec(None)), 201)


@router.get("/processes", response_model=list[shape(ProcessInfo)])  # type: ignore[misc]  # a type made at run time
async def list_processes(sandbox_id: str, caller: Reader, services: Shared) -> Response:
    """Running processes, and the last ended ones."""
    return Json(await services.engine.processes.list(caller.tenant, sandbox_id))


@router.get("/processes/{process_id}/events", response_class=Response)
async def attach(sandbox_id: str, process_id: str, caller: Reader, services: Shared, replay: bool = True) -> Response:
    """Follow a process as server-sent events, from its first byte or from now. Leaving does not end it."""
    await _known(services, caller.tenant, sandbox_id, process_id)
    items = services.engine.processes.attach(caller.tenant, sandbox_id, process_id, replay=replay)
    return event_stream(_packed(items, process_id))


async def _known(services: Services, tenant: str, sandbox_id: str, process_id: str) -> None:
    """Raises: ProcessNotFound, SessionExpiredError, while the answer can still say so by its status."""
    await services.engine.processes.logs(tenant, sandbox_id, process_id, stream="stdout", offset=0, max_bytes=1)


@router.get("/processes/{process_id}/logs", response_model=shape(LogChunk))
async def logs(
    sandbox_id: str,
    process_id: str,
    caller: Reader,
    services: Shared,
    stream: StreamName = "stdout",
    offset: Whole = 0,
    max_bytes: Whole = 65536,
) -> Response:
    """A piece of what a process printed: `text`, and `data` in base64."""
    chunk = await services.engine.processes.logs(
        caller.tenant, sandbox_id, process_id, stream=stream, offset=offset, max_bytes=max_bytes
    )
    return Json(pack_chunk(chunk))


@router.get("/processes/{process_id}/result", response_model=shape(ExecResult | None))
async def wait(
    sandbox_id: str,
    process_id: str,
    caller: Reader,
    services: Shared,
    request: Request,
    timeout: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for its end.")] = LONGEST_WAIT,
) -> Response:
    """The result of a process; null when it still runs after that time. Ask again."""
    processes = services.engine.processes
    return Json(await unless_gone(request.receive, processes.wait(caller.tenant, sandbox_id, process_id, timeout)))


@router.post("/processes/{process_id}/input", status_code=204)
async def send_input(sandbox_id: str, process_id: str, caller: User, services: Shared, request: Request) -> Response:
    """Feed the body, as it is, to a process that was started with `stdin: "pipe"` or on a terminal."""
    await _known(services, caller.tenant, sandbox_id, process_id)
    # Small pieces, each fed before the next is read: what the process does not read yet waits at the caller's.
    async for piece in request.stream():
        if piece:
            await services.engine.processes.send_input(caller.tenant, sandbox_id, process_id, piece)
    return Response(status_code=204)


@router.delete("/processes/{process_id}/input", status_code=204)
async def close_input(sandbox_id: str, process_id: str, caller: User, services: Shared) -> Response:
    """End its input."""
    await services.engine.processes.close_input(caller.tenant, sandbox_id, process_id)
    return Response(status_code=204)


@router.post("/processes/{process_id}/resize", status_code=204)
async def resize(sandbox_id: str, process_id: str, body: SizeBody, caller: User, services: Shared) -> Response:
    """Change the size of its terminal."""
    await services.engine.processes.resize(caller.tenant, sandbox_id, process_id, body.rows, body.columns)
    return Response(status_code=204)


@router.post("/processes/{process_id}/signal", status_code=204)
async def signal(sandbox_id: str, process_id: str, body: SignalBody, caller: User, services: Shared) -> Response:
    """Send a signal to it, its group, or all it started."""
    note(f"signal {body.signum}")
    await services.engine.processes.signal(caller.tenant, sandbox_id, process_id, body.signum, body.scope)
    return Response(status_code=204)


@router.delete("/processes/{process_id}", status_code=204)
async def kill(sandbox_id: str, process_id: str, caller: User, services: Shared) -> Response:
    """End it and all it started. Fine when it has ended already."""
    await services.engine.processes.kill(caller.tenant, sandbox_id, process_id)
    return Response(status_code=204)
