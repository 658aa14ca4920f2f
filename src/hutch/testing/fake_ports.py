"""Byte streams between two ends in memory: what `FakeMachine.connect` hands out. No socket is opened."""

from __future__ import annotations

import asyncio

from hutch.providers.base import ByteStream

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
