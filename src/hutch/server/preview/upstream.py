"""HTTP/1.1 towards a sandbox, whose answers may be anything. One connection for each request: answers cannot mix.

The rules of HTTP are h11's; it refuses what has two meanings, and what would not end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import h11

from hutch.engine.ports import ByteStream
from hutch.model.errors import InvalidRequest, PortMisbehaved

LONGEST_HEAD = 64 * 1024  # bytes of an answer's headers, as of one line between its pieces
PIECE_BYTES = 64 * 1024
PIECE_SECONDS = 60.0  # for the sandbox to take a piece of a body
QUIET_SECONDS = 600.0  # between two pieces of an answer
INTERIM_ANSWERS = 20  # 1xx before the answer itself


class Upstream:
    """One request to what listens on a port. Takes over `stream`."""

    def __init__(self, stream: ByteStream, port: int) -> None:
        self._stream = stream
        self._port = port
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_HEAD)
        self.sent = asyncio.Event()
        self.answered = asyncio.Event()

    async def begin(self, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Raises: InvalidRequest, PortUnreachable, PortMisbehaved."""
        try:
            await self._put(h11.Request(method=method, target=target, headers=[*headers, (b"connection", b"close")]))
        except h11.LocalProtocolError as error:
            raise InvalidRequest(f"This request cannot be passed on: {error}.") from error

    async def send(self, data: bytes) -> None:
        """Raises: InvalidRequest when it is more than was announced, PortUnreachable, PortMisbehaved."""
        try:
            await self._put(h11.Data(data=data))
        except h11.LocalProtocolError as error:
            raise InvalidRequest("The body is not as long as its headers say.") from error

    async def end(self) -> None:
        """Raises: InvalidRequest when it is less than was announced, PortUnreachable, PortMisbehaved."""
        try:
            await self._put(h11.EndOfMessage())
        except h11.LocalProtocolError as error:
            raise InvalidRequest("The body is not as long as its headers say.") from error
        self.sent.set()

    async def _put(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            try:
                async with asyncio.timeout(PIECE_SECONDS):
                    await self._stream.send(data)
            except TimeoutError:
                raise PortMisbehaved(f"What listens on port {self._port} does not read its request.") from None

    async def answer(self) -> h11.Response:
        """The head of the answer, however long it takes. Raises: PortMisbehaved, PortUnreachable."""
        for _ in range(INTERIM_ANSWERS):
            event = await self._next()
            if isinstance(event, h11.Response):
                self.answered.set()
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise PortMisbehaved(f"What listens on port {self._port} closed the connection without an answer.")
        raise PortMisbehaved(f"What listens on port {self._port} puts off its answer again and again.")

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, as it comes. Raises: PortMisbehaved when it ends early or says nothing for too long."""
        while True:
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    event = await self._next()
            except TimeoutError:
                raise PortMisbehaved(f"Port {self._port} said nothing for {QUIET_SECONDS:g} s.") from None
            if not isinstance(event, h11.Data):
                return
            yield bytes(event.data)

    async def _next(self) -> h11.Event | type[h11.PAUSED]:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._stream.receive(PIECE_BYTES))
        except h11.RemoteProtocolError as error:
            raise PortMisbehaved(
                f"What listens on port {self._port} does not speak HTTP/1.1 as it should: {error!s:.200}."
            ) from error
        return event  # type: ignore[return-value]  # NEED_DATA is dealt with

    async def aclose(self) -> None:
        await self._stream.aclose()
