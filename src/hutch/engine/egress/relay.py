"""Bytes that pass both ways unread: tunnels, and connections that were turned into WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from hutch.engine.egress.outside import Link
from hutch.providers.base import ByteStream

PIECE = 64 * 1024
IDLE_SECONDS = 900.0  # nothing passed either way


@dataclass(slots=True)
class Meter:
    """What passed of one request."""

    sent: int = 0
    received: int = 0
    status: int | None = None
    last: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    def touch(self) -> None:
        self.last = asyncio.get_running_loop().time()


async def relay(stream: ByteStream, link: Link, meter: Meter) -> None:
    """Until both sides have ended, one broke off, or nothing passes any more."""
    ways = [asyncio.create_task(_out(stream, link, meter)), asyncio.create_task(_back(stream, link, meter))]
    try:
        while left := meter.last + IDLE_SECONDS - asyncio.get_running_loop().time():
            if left < 0:
                return
            done, open_ways = await asyncio.wait(ways, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
            if not open_ways or any(way.exception() for way in done):
                return
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _out(stream: ByteStream, link: Link, meter: Meter) -> None:
    while data := await stream.receive(PIECE):
        meter.sent += len(data)
        meter.touch()
        await link.send(data)
    with contextlib.suppress(OSError, NotImplementedError):  # TLS cannot be closed by half
        link.writer.write_eof()


async def _back(stream: ByteStream, link: Link, meter: Meter) -> None:
    while data := await link.reader.read(PIECE):
        meter.received += len(data)
        meter.touch()
        await stream.send(data)
    await stream.send_eof()
