"""What a long command tells before its end: its output as it comes, and that it still runs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio

PAUSE_SECONDS = 0.2  # between two pieces
SILENT_SECONDS = 10.0  # then it tells that it still runs: many callers wait only as long as they hear of it
PIECE_CHARACTERS = 4_000

Report = Callable[[float, float | None, str | None], Awaitable[None]]


class Progress:
    """Tells lines as they are printed; of a flood, the last ones and how much was left out."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._pending = ""
        self._left_out = 0
        self._began = time.monotonic()

    def feed(self, text: str) -> None:
        self._pending += text
        if len(self._pending) > 2 * PIECE_CHARACTERS:
            self._left_out += len(self._pending) - PIECE_CHARACTERS
            self._pending = self._pending[-PIECE_CHARACTERS:]

    @contextlib.asynccontextmanager
    async def telling(self, total_seconds: float | None) -> AsyncIterator[None]:
        """Tells meanwhile, and what is left at the end. Its amount are the seconds that went by."""
        task = asyncio.create_task(self._tell(total_seconds))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
        if self._pending:
            await self._tell_piece(total_seconds, at_end=True)

    async def _tell(self, total_seconds: float | None) -> None:
        told = time.monotonic()
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            if self._has_line() or time.monotonic() - told > SILENT_SECONDS:
                await self._tell_piece(total_seconds)
                told = time.monotonic()

    def _has_line(self) -> bool:
        return "\n" in self._pending or len(self._pending) > PIECE_CHARACTERS

    async def _tell_piece(self, total_seconds: float | None, *, at_end: bool = False) -> None:
        cut = (
            len(self._pending) if at_end or not self._has_line() else self._pending.rfind("\n") + 1 or PIECE_CHARACTERS
        )
        text, self._pending = self._pending[:cut], self._pending[cut:]
        if self._left_out:
            text, self._left_out = f"[{self._left_out} characters left out]\n{text}", 0
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # nobody listens any more
            await self._report(round(time.monotonic() - self._began, 3), total_seconds, text or None)
