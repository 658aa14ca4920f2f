"""Passes requests on to a worker, byte for byte: HTTP streamed both ways, WebSockets message by message."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpcore
from starlette.types import Message, Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.frames import CloseCode
from websockets.http11 import Response

from hutch.cluster.workers import WorkerInfo
from hutch.engine.connections import NEVER_SENT, Connections
from hutch.model.errors import WorkerLost
from hutch.model.wire import pack_error, sse

T = TypeVar("T")
Headers = list[tuple[bytes, bytes]]
Alive = Callable[[WorkerInfo], bool]

CONNECT_SECONDS = 2.0
LOOK_SECONDS = 1.0  # between two looks whether the worker we wait for still lives
KEPT_CONNECTIONS = 256  # to each worker
KEPT_SECONDS = 4.0
WEBSOCKET_FAILED = 1011
_NO_FRAME = frozenset({1005, 1006, 1015})  # codes for what came without one
# Of one connection, never passed on; `origin` was checked here, and names us.
_OF_THE_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
        *(b"host", b"origin", b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"expect"),
    )
)


@dataclass(frozen=True, slots=True)
class At:
    """Another door of a worker than that of its API."""

    url: str
    host: str  # what the request shall call it by; its origin, which goes with that, is passed on


class Forward:
    """One for each coordinator; connections to workers are kept and used again."""

    def __init__(self, alive: Alive) -> None:
        self._alive = alive
        self._connections = Connections(kept=KEPT_CONNECTIONS, seconds=KEPT_SECONDS)

    async def aclose(self) -> None:
        await self._connections.aclose()

    # -- HTTP

    async def ask(
        self, worker: WorkerInfo, scope: Scope, body: AsyncIterator[bytes] | bytes, at: At | None = None
    ) -> httpcore.Response:
        """The beginning of the worker's answer; `relay` or `read` it. Raises: WorkerLost."""
        request = httpcore.Request(
            scope["method"],
            _target(worker.url if at is None else at.url, scope),
            headers=_request_headers(worker, scope, body, at),
            content=body,
            extensions={"timeout": {"connect": CONNECT_SECONDS}},
        )
        asking = asyncio.ensure_future(self._connections.send(request))
        try:
            return await self._unless_dead(worker, asking)
        except NEVER_SENT as error:
            raise lost(worker, sent=False) from error
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise lost(worker, sent=True) from error
        except BaseException:
            # The answer may have come in the moment in which its caller left: nobody else would let go of it.
            if not asking.cancelled() and asking.exception() is None:
                await asking.result().aclose()
            raise

    async def relay(self, worker: WorkerInfo, answer: httpcore.Response, send: Send) -> None:
        """Raises: ConnectionAbortedError when the worker goes in the middle: the caller must see that it is not all."""
        headers = [(name.lower(), value) for name, value in answer.headers if name.lower() not in _OF_THE_HOP]
        events = any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)
        try:
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            pieces = answer.aiter_stream()
            while True:
                try:
                    piece = await self._unless_dead(worker, anext(pieces, b""))
                except (httpcore.NetworkError, httpcore.ProtocolError, WorkerLost) as error:
                    if not events:
                        raise ConnectionAbortedError("the worker is gone") from error
                    await send(_body(sse("error", pack_error(lost(worker, sent=True))), more=True))
                    break
                if not piece:
                    break
                await send(_body(piece, more=True))
            await send(_body(b"", more=False))
        finally:
            await answer.aclose()

    async def read(self, worker: WorkerInfo, answer: httpcore.Response) -> bytes:
        """All of an answer that is known to be small. Raises: WorkerLost."""
        try:
            return await self._unless_dead(worker, answer.aread())
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise lost(worker, sent=True) from error
        finally:
            await answer.aclose()

    async def _unless_dead(self, worker: WorkerInfo, work: Awaitable[T]) -> T:
        """A machine that went without a word leaves connections that wait for ever. Raises: WorkerLost."""
        task = asyncio.ensure_future(work)
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=LOOK_SECONDS)
                if done:
                    return task.result()
                if not self._alive(worker):
                    raise lost(worker, sent=True)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    # -- WebSockets

    async def websocket(
        self, worker: WorkerInfo, scope: Scope, receive: Receive, send: Send, at: At | None = None
    ) -> None:
        """Raises: WorkerLost before the handshake; afterwards the connection is closed."""
        door = urlsplit(worker.url if at is None else at.url)
        named = door.netloc if at is None else at.host
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if _passes(name, at) and name != b"host" and not name.startswith(b"sec-websocket-")
        ]
        try:
            upstream = await _Connect(
                _address(f"{'wss' if door.scheme == 'https' else 'ws'}://{named}", scope),
                host=door.hostname,
                port=door.port or (443 if door.scheme == "https" else 80),
                additional_headers=headers,
                subprotocols=scope.get("subprotocols") or None,
                compression=None,
                max_size=None,
                max_queue=1,  # messages of any size: more wait with the worker
                open_timeout=CONNECT_SECONDS * 5,
                close_timeout=CONNECT_SECONDS,
                ping_interval=None,
                user_agent_header=None,
                proxy=None,
            )
        except InvalidStatus as refused:
            await receive()  # the client's connect
            return await _deny(refused.response, send)
        except (OSError, TimeoutError, InvalidHandshake) as error:
            raise lost(worker, sent=False) from error
        async with upstream:
            await receive()
            await send({"type": "websocket.accept", "subprotocol": upstream.subprotocol, "headers": []})
            await self._pump(worker, upstream, receive, send)

    async def _pump(self, worker: WorkerInfo, upstream: ClientConnection, receive: Receive, send: Send) -> None:
        tasks = [
            asyncio.ensure_future(work)
            for work in (_upwards(upstream, receive), _downwards(upstream, send), self._watch(worker))
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not tasks[0].done() or tasks[0].cancelled():
            code = upstream.close_code
            broken = code is None or code == 1006  # not in the worker's words
            with contextlib.suppress(RuntimeError, OSError):
                await send(
                    {
                        "type": "websocket.close",
                        "code": WEBSOCKET_FAILED if broken else code,
                        "reason": WorkerLost.code if broken else upstream.close_reason or "",
                    }
                )

    async def _watch(self, worker: WorkerInfo) -> None:
        while self._alive(worker):  # noqa: ASYNC110 - what we look at has no event
            await asyncio.sleep(LOOK_SECONDS)


class _Connect(connect):
    """A redirect is an answer for the client, which may be a sandbox's: nothing is fetched from where it points."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _upwards(upstream: ClientConnection, receive: Receive) -> None:
    while (message := await receive())["type"] != "websocket.disconnect":
        data = message.get("bytes")
        await upstream.send(message["text"] if data is None else data)
    code = message.get("code") or CloseCode.NORMAL_CLOSURE
    await upstream.close(CloseCode.NORMAL_CLOSURE if code in _NO_FRAME else code, message.get("reason") or "")


async def _downwards(upstream: ClientConnection, send: Send) -> None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            data = await upstream.recv()
            kind = "text" if isinstance(data, str) else "bytes"
            await send({"type": "websocket.send", kind: data})


async def _deny(answer: Response, send: Send) -> None:
    """The worker's refusal, as it is."""
    body = bytes(answer.body or b"")
    named = [
        (name.lower().encode("ascii"), value.encode("latin-1", "surrogateescape"))
        for name, value in answer.headers.raw_items()
    ]
    headers = [(name, value) for name, value in named if name not in _OF_THE_HOP and name != b"content-length"]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "websocket.http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


def lost(worker: WorkerInfo, *, sent: bool) -> WorkerLost:
    what = (
        "went while the call was under way: it may or may not have been done"
        if sent
        else "cannot be reached: nothing was done"
    )
    return WorkerLost(
        f"The machine {worker.worker_id} that runs this sandbox {what}.", sent=sent, worker=worker.worker_id
    )


def _target(url: str, scope: Scope) -> httpcore.URL:
    """In parts: of a whole one, httpcore drops what stands behind a semicolon."""
    door = urlsplit(url)
    query: bytes = scope["query_string"]
    target = door.path.encode("ascii") + scope["raw_path"] + (b"?" + query if query else b"")
    return httpcore.URL(scheme=door.scheme, host=door.hostname or "", port=door.port, target=target)


def _address(url: str, scope: Scope) -> str:
    path: str = scope["raw_path"].decode("latin-1")
    query: str = scope["query_string"].decode("latin-1")
    return url + path + ("?" + query if query else "")


def _passes(name: bytes, at: At | None) -> bool:
    return name not in _OF_THE_HOP or (at is not None and name == b"origin")


def _request_headers(worker: WorkerInfo, scope: Scope, body: AsyncIterator[bytes] | bytes, at: At | None) -> Headers:
    host = urlsplit(worker.url).netloc if at is None else at.host
    headers: Headers = [(b"host", host.encode("ascii"))]
    headers += [(name, value) for name, value in scope["headers"] if _passes(name, at)]
    if isinstance(body, bytes):
        headers = [(name, value) for name, value in headers if name != b"content-length"]
        if body or scope["method"] in ("POST", "PUT", "PATCH"):
            headers.append((b"content-length", str(len(body)).encode()))
    elif not any(name == b"content-length" for name, _ in headers):
        headers.append((b"transfer-encoding", b"chunked"))
    return headers


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


def has_body(scope: Scope) -> bool:
    """Whether a request brings a body."""
    given: dict[bytes, Any] = dict(scope["headers"])
    return b"transfer-encoding" in given or given.get(b"content-length", b"0") not in (b"0", b"")
