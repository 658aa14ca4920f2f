"""One HTTP request through a preview, both ways at once: memory stays flat, and what is said comes through at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import h11
from starlette.types import Message, Receive, Scope, Send

from hutch.model.errors import HutchError, InvalidRequest, PortMisbehaved, PortUnreachable
from hutch.server.answers import internal, refusal
from hutch.server.guard import PIECE_SECONDS
from hutch.server.preview.upstream import Upstream
from hutch.server.preview.visit import Visit
from hutch.server.routes.streams import both

ANSWER_SECONDS = 120.0  # for the head of the answer, once the request was sent
_NO_BODY = frozenset({204, 304})


async def relay(visit: Visit, scope: Scope, receive: Receive, send: Send, over: Callable[[], Awaitable[None]]) -> None:
    """Until the answer has ended, the visitor is gone, or `over`. Takes over the visit's stream."""
    upstream = Upstream(visit.stream, visit.place.port)
    answer = _Answer(visit, scope, send, upstream)
    try:
        await upstream.begin(scope["method"], visit.target, [*visit.headers(scope), *_framing(scope)])
        sending = _send_body(receive, upstream)
        async with both(answer.pass_on(), sending, _impatience(upstream, visit.place.port), over()):
            pass
    except HutchError as error:
        await answer.refuse(error)
    except OSError:  # the visitor takes no more
        pass
    except Exception as error:  # noqa: BLE001 - whatever a sandbox can provoke ends one request
        await answer.refuse(internal(error))
    finally:
        await upstream.aclose()


def _framing(scope: Scope) -> list[tuple[bytes, bytes]]:
    """How the body is delimited. Raises: InvalidRequest when that could be read in two ways."""
    given = [(name, value) for name, value in scope["headers"] if name in (b"content-length", b"transfer-encoding")]
    if len(given) > 1 or (given and given[0][0] == b"transfer-encoding" and given[0][1].lower() != b"chunked"):
        raise InvalidRequest("A body is delimited in one way: by its length, or in chunks.")
    return given


async def _send_body(receive: Receive, upstream: Upstream) -> None:
    """Ends when the visitor is gone. A sandbox that stops reading may still answer. Raises: InvalidRequest."""
    more = wanted = True
    while True:
        message = await _in_time(receive) if more else await receive()
        if message["type"] == "http.disconnect":
            return
        data, more = message.get("body", b""), bool(message.get("more_body")) and more
        if not wanted:
            continue
        try:
            if data:
                await upstream.send(data)
            if not more:
                await upstream.end()
        except PortUnreachable:
            wanted = False
            upstream.sent.set()
        wanted = wanted and more


async def _in_time(receive: Receive) -> Message:
    try:
        async with asyncio.timeout(PIECE_SECONDS):
            return await receive()
    except TimeoutError:
        return {"type": "http.disconnect"}


async def _impatience(upstream: Upstream, port: int) -> None:
    """Raises: PortMisbehaved when there is no answer in time."""
    await upstream.sent.wait()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await upstream.answered.wait()
    except TimeoutError:
        raise PortMisbehaved(f"Port {port} did not answer within {ANSWER_SECONDS:g} s.") from None
    await asyncio.Event().wait()


class _Answer:
    def __init__(self, visit: Visit, scope: Scope, send: Send, upstream: Upstream) -> None:
        self._visit = visit
        self._scope = scope
        self._send = send
        self._upstream = upstream
        self._begun = False

    async def pass_on(self) -> None:
        """Raises: PortMisbehaved, PortUnreachable, Forbidden, ConnectionError."""
        response = await self._upstream.answer()
        await self._start(response)
        async for piece in self._upstream.pieces():
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _start(self, response: h11.Response) -> None:
        status = response.status_code
        if not 200 <= status <= 599:
            raise PortMisbehaved(f"Port {self._visit.place.port} answered with status {status}, which there is not.")
        given = list(response.headers)
        headers = self._visit.answer_headers(given)
        chunked = any(name == b"transfer-encoding" for name, _ in given)
        if not chunked and status not in _NO_BODY:
            headers += [(name, value) for name, value in given if name == b"content-length"][:1]
        self._begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def refuse(self, error: HutchError) -> None:
        """Where the answer has begun, only breaking it off still says that it is not whole: the server does that."""
        if not self._begun:
            await refusal(error)(self._scope, _no_more, self._send)


async def _no_more() -> Message:
    return {"type": "http.disconnect"}
