"""Byte streams between two ends in memory: what `FakeMachine.connect` hands out. No socket is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hutch.model.errors import SandboxUnavailable
from hutch.providers.base import ByteStream, Listener

_WINDOW_BYTES = 262_144  # a sender waits while this much lies unread, as on a real connection


class Pipe:
    """One direction: bytes in, bytes out, an end."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ended = False
        self._broken = False
        self._changed = asyncio.Condition()

    async def put(self, data: bytes) -> None:
        """Raises: BrokenPipeError when the other side has gone."""
        for start in range(0, len(data), _WINDOW_BYTES):
            async with self._changed:
                await self._changed.wait_for(lambda: len(self._data) < _WINDOW_BYTES or self._broken)
                if self._broken or self._ended:
                    raise BrokenPipeError("the other side has closed the connection")
                self._data += data[start : start + _WINDOW_BYTES]
                self._changed.notify_all()

    async def take(self, max_bytes: int) -> bytes:
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._data) or self._ended or self._broken)
            taken = bytes(self._data[:max_bytes])
            del self._data[:max_bytes]
            self._changed.notify_all()
            return taken

    async def end(self) -> None:
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def break_off(self) -> None:
        """Nobody reads any more."""
        async with self._changed:
            self._broken = True
            self._data.clear()
            self._changed.notify_all()


class FakeStream(ByteStream):
    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._incoming.take(max_bytes)

    async def send(self, data: bytes) -> None:
        await self._outgoing.put(data)

    async def send_eof(self) -> None:
        await self._outgoing.end()

    async def aclose(self) -> None:
        await self._outgoing.end()
        await self._incoming.break_off()


def stream_pair() -> tuple[FakeStream, FakeStream]:
    one, other = Pipe(), Pipe()
    return FakeStream(one, other), FakeStream(other, one)


class FakeListener(Listener):
    """What the host listens on; programs of the sandbox reach it like any other port."""

    def __init__(self, port: int, closed: Callable[[], None]) -> None:
        self.port = port
        self._closed = closed
        self._waiting: asyncio.Queue[FakeStream | None] = asyncio.Queue()

    async def answer(self, stream: FakeStream) -> None:
        """A connection; it is held until both sides are done with it."""
        ours, theirs = stream_pair()
        self._waiting.put_nowait(theirs)
        await asyncio.gather(_pass_on(stream, ours), _pass_on(ours, stream))

    async def accept(self) -> ByteStream:
        found = await self._waiting.get()
        if found is None:
            self.end()
            raise SandboxUnavailable("this listener has ended")
        return found

    def end(self) -> None:
        self._waiting.put_nowait(None)

    async def aclose(self) -> None:
        self._closed()
        self.end()


async def _pass_on(source: FakeStream, target: FakeStream) -> None:
    try:
        while data := await source.receive():
            await target.send(data)
        await target.send_eof()
    except BrokenPipeError:
        await source.aclose()
