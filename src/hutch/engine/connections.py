"""Connections that are used again, over httpcore's own.

Its pool looks at every connection for each request, which with many callers takes longer than the requests do.
"""

from __future__ import annotations

import contextlib
import ssl
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass

import httpcore

# All ways in which a request may fail, and those in which it was surely not sent.
BROKEN = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)
NEVER_SENT = (httpcore.ConnectError, httpcore.ConnectTimeout)


@dataclass(frozen=True, slots=True)
class _Idle:
    connection: httpcore.AsyncConnectionInterface
    until: float  # on the monotonic clock


class Connections:
    """Belongs to one event loop. As many at once as there are requests; the last used is the first used again."""

    def __init__(
        self,
        *,
        kept: int,
        seconds: float,
        ssl_context: ssl.SSLContext | None = None,
        proxy: httpcore.Proxy | None = None,
    ) -> None:
        """`kept`: most without a request, for each server; `seconds`: how long one is kept so."""
        self._kept = kept
        self._seconds = seconds
        self._maker = httpcore.AsyncConnectionPool(ssl_context=ssl_context, proxy=proxy, keepalive_expiry=seconds)
        self._idle: defaultdict[tuple[bytes, bytes, int], deque[_Idle]] = defaultdict(deque)
        self._busy: set[httpcore.AsyncConnectionInterface] = set()
        self._closed = False

    async def send(self, request: httpcore.Request) -> httpcore.Response:
        """The beginning of the answer, which is to be closed. Raises: what httpcore raises."""
        connection = await self._take(request.url.origin)
        self._busy.add(connection)
        try:
            answer = await connection.handle_async_request(request)
        except BaseException:
            await self._end(connection)
            raise
        assert isinstance(answer.stream, AsyncIterable)
        body = _Body(answer.stream, self, request.url.origin, connection)
        return httpcore.Response(answer.status, headers=answer.headers, content=body, extensions=answer.extensions)

    async def _take(self, origin: httpcore.Origin) -> httpcore.AsyncConnectionInterface:
        if self._closed:
            raise RuntimeError("these connections were closed")
        idle = self._idle[_name(origin)]
        while idle:
            connection = idle.pop().connection
            if not connection.has_expired():  # its time is over, or its server ended it
                return connection
            await self._end(connection)
        return self._maker.create_connection(origin)

    async def give_back(self, origin: httpcore.Origin, connection: httpcore.AsyncConnectionInterface) -> None:
        """Its answer was read, or will not be."""
        if self._closed or not connection.is_idle():
            return await self._end(connection)
        self._busy.discard(connection)
        idle, now = self._idle[_name(origin)], time.monotonic()
        idle.append(_Idle(connection, now + self._seconds))
        while len(idle) > self._kept or idle[0].until < now:
            await idle.popleft().connection.aclose()

    async def _end(self, connection: httpcore.AsyncConnectionInterface) -> None:
        self._busy.discard(connection)
        await connection.aclose()

    async def aclose(self) -> None:
        """Those of requests under way as well."""
        self._closed = True
        ending = [*self._busy, *(one.connection for idle in self._idle.values() for one in idle)]
        self._idle.clear()
        self._busy.clear()
        for connection in ending:
            with contextlib.suppress(OSError, httpcore.NetworkError):
                await connection.aclose()


class _Body:
    def __init__(
        self,
        stream: AsyncIterable[bytes],
        home: Connections,
        origin: httpcore.Origin,
        connection: httpcore.AsyncConnectionInterface,
    ) -> None:
        self._stream = stream
        self._home = home
        self._origin = origin
        self._connection = connection
        self._closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        close = getattr(self._stream, "aclose", None)
        try:
            if close is not None:
                await close()
        finally:
            await self._home.give_back(self._origin, self._connection)


def _name(origin: httpcore.Origin) -> tuple[bytes, bytes, int]:
    return origin.scheme, origin.host, origin.port
