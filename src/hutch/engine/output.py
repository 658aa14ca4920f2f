"""What a process printed, kept to be paged through.

Small output stays in memory. Larger output goes to a nameless temporary file, so nothing is left behind by a crash.
What does not fit the spool of the command or of its sandbox is counted and dropped.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hutch.model.limits import SPOOL_COMMAND_BYTES, SPOOL_SESSION_BYTES

CHARACTER_BYTES = 4  # of the longest character in UTF-8
MEMORY_BYTES = 32 * 1024  # of one stream, before a file is used


@dataclass(slots=True)
class SpoolBudget:
    """Bytes that may still be kept; a command's budget draws on its sandbox's."""

    left: int
    parent: SpoolBudget | None = None
    taken: int = 0
    make_room: Callable[[int], None] | None = None  # asked to give back at least so many bytes, if it can

    def take(self, wanted: int) -> int:
        if wanted > self.left and self.make_room is not None:
            self.make_room(wanted - self.left)
        granted = min(wanted, self.left)
        if self.parent is not None:
            granted = self.parent.take(granted)
        self.left -= granted
        self.taken += granted
        return granted

    def give_back(self) -> None:
        """All that was taken returns to the parent: the output it paid for was thrown away."""
        if self.parent is not None:
            self.parent.left += self.taken
        self.taken = 0


def session_budget(make_room: Callable[[int], None] | None = None) -> SpoolBudget:
    return SpoolBudget(SPOOL_SESSION_BYTES, make_room=make_room)


def command_budget(session: SpoolBudget) -> SpoolBudget:
    return SpoolBudget(SPOOL_COMMAND_BYTES, session)


@dataclass(slots=True)
class StreamLog:
    """One stream of one process. `total` counts every byte printed, `kept` those that can still be read."""

    budget: SpoolBudget
    spool_folder: Path
    total: int = 0
    kept: int = 0
    _memory: bytearray = field(default_factory=bytearray)
    _file: int | None = None

    def append(self, data: bytes) -> bool:
        """Keep `data` as far as the budget goes. False: (some of) it was dropped."""
        self.total += len(data)
        if self.kept + len(data) < self.total:
            return False  # a gap once made stays the end of what is kept
        granted = self.budget.take(len(data))
        piece = data if granted == len(data) else data[:granted]
        if self._file is None and self.kept + granted <= MEMORY_BYTES:
            self._memory += piece
            self.kept += granted
        else:
            self._spill(piece)
        return self.kept == self.total

    def _spill(self, piece: bytes) -> None:
        try:
            if self._file is None:
                with tempfile.TemporaryFile(dir=self.spool_folder, buffering=0) as file:
                    self._file = os.dup(file.fileno())
                _write_all(self._file, bytes(self._memory))
                self._memory.clear()
            _write_all(self._file, piece)
            self.kept += len(piece)
        except OSError:
            # The disk is full: what was printed is still counted, and the result says that it was cut.
            self.budget.left = 0

    def read(self, offset: int, max_bytes: int) -> bytes:
        size = max(0, min(max_bytes, self.kept - offset))
        if self._file is None:
            return bytes(self._memory[offset : offset + size])
        return os.pread(self._file, size, offset)

    def close(self) -> None:
        self._memory.clear()
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None
        self.kept = 0


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def decode(data: bytes, *, complete: bool) -> str:
    """Text of `data`: what is not UTF-8 shows as the replacement character.

    With `complete` false the bytes were cut by us, so a character cut in two at the end is left out, not replaced.
    """
    return (data if complete else whole_characters(data)).decode("utf-8", errors="replace")


def whole_characters(data: bytes) -> bytes:
    """`data` without a character that is cut in two at its end."""
    return data[: len(data) - _cut_tail(data)]


def _cut_tail(data: bytes) -> int:
    """Length of an unfinished UTF-8 character at the end of `data` (0 to 3)."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if needed > back else 0
    return 0
