"""Feeding a command's stdin or terminal without ever blocking the event loop."""

from __future__ import annotations

import asyncio
import os

from hutch.model.errors import ProcessEnded


class InputFeed:
    """Writes in the order of the calls. `owned`: close the descriptor, too, not only stop using it."""

    __slots__ = ("_lock", "_loop", "_owned", "_waiter", "descriptor")

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, *, owned: bool) -> None:
        self.descriptor = descriptor
        self._loop = loop
        self._owned = owned
        self._lock: asyncio.Lock | None = None  # made at the first write: most commands get no input
        self._waiter: asyncio.Future[None] | None = None

    @property
    def open(self) -> bool:
        return self.descriptor >= 0

    async def write(self, data: bytes) -> None:
        """Raises: ProcessEnded when nobody reads any more, or the input was closed."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            rest = memoryview(data)
            while rest:
                rest = rest[await self._write_some(rest) :]

    async def _write_some(self, data: memoryview) -> int:
        if not self.open:
            raise ProcessEnded("The process has ended, or its input was closed: it takes no more input.")
        try:
            return os.write(self.descriptor, data)
        except BlockingIOError:
            await self._writable()
            return 0
        except OSError:  # EPIPE of a pipe, EIO of a terminal
            raise ProcessEnded("Nobody in the sandbox reads this input any more.") from None

    async def _writable(self) -> None:
        """Returns when there is room, when the reader is gone, or when the feed was closed."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiter = waiter
        self._loop.add_writer(self.descriptor, self._wake)
        try:
            await waiter
        finally:
            self._waiter = None
            if self.open:
                self._loop.remove_writer(self.descriptor)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Twice is fine. A write that waits fails with ProcessEnded."""
        if not self.open:
            return
        if self._waiter is not None:
            self._loop.remove_writer(self.descriptor)
        if self._owned:
            os.close(self.descriptor)
        self.descriptor = -1
        self._wake()
