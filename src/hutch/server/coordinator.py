"""The app of a coordinator: it finds the worker a request belongs to, and passes it on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hutch.cluster.locate import Locator, nobody
from hutch.cluster.workers import WorkerInfo
from hutch.model.errors import (
    HutchError,
    InvalidRequest,
    PoolExhausted,
    RequestTooLarge,
    SandboxMoved,
    SessionExpiredError,
    WorkerLost,
)
from hutch.model.principal import Principal
from hutch.server.answers import Json, internal, refusal
from hutch.server.auth import principal_of
from hutch.server.calls import passing_on
from hutch.server.destinations import (
    AllWorkers,
    AnyWorker,
    Destination,
    OfName,
    OfSandbox,
    Own,
    destination,
    named_in,
    pattern,
)
from hutch.server.form_field import FieldFinder
from hutch.server.forward import Forward, has_body
from hutch.server.guard import MAX_JSON_BYTES
from hutch.server.services import Services

TRIES = 3  # of workers, for one request that none of them began
SPOOLED_IN_MEMORY = 1024 * 1024
MISDIRECTED = SandboxMoved.http_status
Body = AsyncIterator[bytes] | bytes


@dataclass(frozen=True, slots=True)
class Passed:
    """Stands where routes of our own leave word of themselves."""

    path: str


class Coordinator:
    """Wraps the app that answers what is the coordinator's own."""

    def __init__(
        self, own: ASGIApp, services: Services, locator: Locator, forward: Forward, max_upload_bytes: int
    ) -> None:
        self._own = own
        self._services = services
        self._locator = locator
        self._forward = forward
        self._max_upload = max_upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._own(scope, receive, send)
        begun = False

        async def watched(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            where = _where(scope)
            if isinstance(where, Own):
                return await self._own(scope, receive, send)
            scope["route"] = Passed(pattern(scope["raw_path"].decode("latin-1"), where))
            caller = await principal_of(HTTPConnection(scope), self._services)
            if isinstance(where, OfSandbox) and scope["type"] == "websocket":
                worker = await self._locator.sandbox(caller.tenant, where.sandbox_id)
                return await self._forward.websocket(worker, scope, receive, watched)
            work = partial(self._pass_on, caller, where, scope)
            await passing_on(work, receive, watched, body=has_body(scope))
        except HutchError as error:
            await _say(error, scope, receive, send, begun=begun)
        except ClientDisconnect:
            if not begun:
                await Response(status_code=400)(scope, receive, send)  # to nobody, or to somebody who sends no more
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - this is the outermost place there is
            await _say(internal(error), scope, receive, send, begun=begun)

    async def _pass_on(self, caller: Principal, where: Destination, scope: Scope, receive: Receive, send: Send) -> None:
        if isinstance(where, AllWorkers):
            return await self._gather(scope, receive, send)
        if isinstance(where, AnyWorker):
            return await self._relay_any(scope, send)
        if isinstance(where, OfSandbox):
            return await self._of_sandbox(caller, where.sandbox_id, scope, body_of(scope, receive), send)
        assert isinstance(where, OfName), "what is our own was answered before"
        async with contextlib.AsyncExitStack() as spools:
            if where.form:
                await spools.enter_async_context(self._services.spools)
                await self._form(caller, scope, receive, send, spools)
            else:
                await self._of_name(caller, where, scope, receive, send)

    # -- one sandbox

    async def _of_sandbox(self, caller: Principal, sandbox_id: str, scope: Scope, body: Body, send: Send) -> None:
        """What is known of where a sandbox is may be a second old: its worker says so, and nothing was done."""
        for left in reversed(range(TRIES)):
            worker = await self._keeper(caller, sandbox_id, scope)
            again = left > 0 and isinstance(body, bytes)
            try:
                answer = await self._forward.ask(worker, scope, body)
            except WorkerLost as error:
                self._locator.forget(sandbox_id)
                if error.details["sent"] or not again:
                    raise
                await asyncio.sleep(0.1)
                continue
            if answer.status == MISDIRECTED:
                self._locator.forget(sandbox_id)
                if again:
                    await answer.aclose()
                    await asyncio.sleep(0.1)
                    continue
            return await self._forward.relay(worker, answer, send)

    async def _keeper(self, caller: Principal, sandbox_id: str, scope: Scope) -> WorkerInfo:
        """The worker of a sandbox. To remove what is not there (any more) is fine: any worker says so."""
        try:
            return await self._locator.sandbox(caller.tenant, sandbox_id)
        except SessionExpiredError:
            if scope["method"] != "DELETE":
                raise
            return self._any()

    # -- threads and sessions

    async def _of_name(self, caller: Principal, where: OfName, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read(receive) if has_body(scope) else b""
        name = where.value
        if name is None:
            try:
                name = named_in(json.loads(body), where.named)
            except (ValueError, RecursionError):
                name = ""  # no worker can do anything with it either, and any of them says so in the right words
        if where.makes and name:
            return await self._made(caller, name, scope, body, send)
        worker = await self._holder(caller, where, name)
        answer = await self._forward.ask(worker, scope, body)
        await self._forward.relay(worker, answer, send)

    async def _holder(self, caller: Principal, where: OfName, name: str) -> WorkerInfo:
        """The worker of a thread or session; for one that is not there, any: it says so in its words."""
        with contextlib.suppress(SessionExpiredError):
            if where.named == "session_id":
                return await self._locator.session(caller.tenant, name)
            found = await self._locator.thread(caller.tenant, name)
            if found is not None:
                return found
        return self._any()

    def _any(self) -> WorkerInfo:
        for worker in self._locator.workers:
            if worker.alive:
                return worker
        raise nobody()

    async def _relay_any(self, scope: Scope, send: Send) -> None:
        worker = self._any()
        await self._forward.relay(worker, await self._forward.ask(worker, scope, b""), send)

    async def _made(self, caller: Principal, thread_id: str, scope: Scope, body: bytes, send: Send) -> None:
        """The sandbox of a thread, found or made. A worker that cannot take it is passed over."""
        tried: frozenset[str] = frozenset()
        failure: HutchError | None = None
        for _ in range(TRIES):
            worker = await self._locator.thread(caller.tenant, thread_id)
            placed = worker is None
            try:
                worker = worker or await self._locator.place(caller.tenant, thread_id, tried)
            except PoolExhausted as error:
                raise failure or error from None
            try:
                answer = await self._forward.ask(worker, scope, body)
            except WorkerLost as error:
                failure = error  # making is finding, the second time: to be asked again does no harm
            else:
                if not placed or answer.status not in (MISDIRECTED, PoolExhausted.http_status):
                    return await self._forward.relay(worker, answer, send)
                failure = _refusal(await self._forward.read(worker, answer))
            if placed:
                tried |= {worker.worker_id}
                await self._locator.not_there(caller.tenant, thread_id, worker)
            await asyncio.sleep(0.1)
        assert failure is not None
        raise failure

    async def _form(
        self, caller: Principal, scope: Scope, receive: Receive, send: Send, spools: contextlib.AsyncExitStack
    ) -> None:
        """A form may name its session after the file: it is kept until it did, then passed on."""
        spool: BinaryIO = tempfile.SpooledTemporaryFile(SPOOLED_IN_MEMORY)  # type: ignore[assignment]  # noqa: SIM115
        spools.callback(spool.close)
        finder = FieldFinder(Headers(scope=scope).get("content-type", ""), "session_id")
        size = 0
        async for piece in _stream(receive):
            size += len(piece)
            if size > self._max_upload:
                raise RequestTooLarge(f"An upload has at most {self._max_upload} bytes.", maximum=self._max_upload)
            finder.feed(piece)
            await asyncio.to_thread(spool.write, piece)
        worker = await self._holder(caller, OfName("session_id"), finder.value or "")
        spool.seek(0)
        answer = await self._forward.ask(worker, scope, _from_spool(spool))
        await self._forward.relay(worker, answer, send)

    # -- all of them

    async def _gather(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One list of what each worker lists. Raises: WorkerLost."""
        alive = [worker for worker in self._locator.workers if worker.alive]
        answers = await asyncio.gather(*(self._listed(worker, scope) for worker in alive))
        for status, body in answers:
            if status != 200:
                raise _refusal(body)
        try:
            rows = sorted((row for _, body in answers for row in json.loads(body)), key=lambda row: row["created_at"])
        except (ValueError, KeyError, TypeError):
            raise _unreadable() from None
        await Json(rows)(scope, receive, send)

    async def _listed(self, worker: WorkerInfo, scope: Scope) -> tuple[int, bytes]:
        answer = await self._forward.ask(worker, scope, b"")
        return answer.status, await self._forward.read(worker, answer)


def _where(scope: Scope) -> Destination:
    """Raises: InvalidRequest."""
    try:
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=100))
    except ValueError:
        raise InvalidRequest("The query cannot be read.") from None
    where = destination(scope.get("method", "GET"), scope["raw_path"].decode("latin-1"), query)
    # WebSockets hang off sandboxes: wherever else one is asked for, there is none.
    return Own() if scope["type"] == "websocket" and not isinstance(where, OfSandbox) else where


def _refusal(body: bytes) -> HutchError:
    from hutch.model.wire import unpack_error

    try:
        return unpack_error(json.loads(body))
    except (ValueError, KeyError, TypeError):
        return _unreadable()


def _unreadable() -> WorkerLost:
    return WorkerLost("A worker gave an answer that cannot be read; its log says more.", sent=True)


async def _say(error: HutchError, scope: Scope, receive: Receive, send: Send, *, begun: bool) -> None:
    """Raises: ConnectionAbortedError when the answer had begun: it cannot be taken back, only broken off."""
    if begun:
        raise ConnectionAbortedError(error.code) from error
    if scope["type"] == "websocket":
        await receive()
    await refusal(error)(scope, receive, send)


def body_of(scope: Scope, receive: Receive) -> Body:
    return _stream(receive) if has_body(scope) else b""


async def _stream(receive: Receive) -> AsyncIterator[bytes]:
    """Raises: ClientDisconnect, so that a worker never takes a part for the whole."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return


async def _read(receive: Receive) -> bytes:
    """Raises: RequestTooLarge, ClientDisconnect."""
    pieces: list[bytes] = []
    size = 0
    async for piece in _stream(receive):
        size += len(piece)
        if size > MAX_JSON_BYTES:
            raise RequestTooLarge(f"A JSON body has at most {MAX_JSON_BYTES} bytes.", maximum=MAX_JSON_BYTES)
        pieces.append(piece)
    return b"".join(pieces)


async def _from_spool(spool: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(spool.read, 256 * 1024):
        yield piece
