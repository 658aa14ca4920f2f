"""Watching how much a workspace holds, where the file system has no quota to do it for us.

While a command runs the workspace is counted at least every 250 ms (a count never takes more than a third of the time,
so the interval grows with very large workspaces). After a command a look at the file system's free space tells whether
a count is worth it at all: an `echo` pays two microseconds, not a walk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from hutch.model.errors import LimitExceeded, SandboxUnavailable
from hutch.model.limits import MIB, LimitName, Limits
from hutch.providers.base import Machine, Usage

INTERVAL = 0.2
TRUSTED_SECONDS = 5.0  # a count says enough for small uploads that come soon after it


class WorkspaceGauge:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._usage: Usage | None = None
        self._free_then = (0, 0)
        self._counted_at = 0.0
        self.promised = 0  # bytes that uploads under way are still to write

    def _over(self, usage: Usage, before: Usage | None) -> LimitName | None:
        """The limit that was passed since `before`. A command that clears up a full workspace passes none."""
        if before is None or not usage.complete:
            before = Usage(0, 0)
        if usage.bytes > max(self._limits.workspace_bytes, before.bytes):
            return "workspace"
        if usage.files > max(self._limits.workspace_files, before.files):
            return "files"
        return None

    def starts_empty(self, machine: Machine) -> None:
        """Of a sandbox that was made just now: its first command need not pay for a count."""
        self._remember(Usage(0, 0), machine.headroom_hint())

    def _remember(self, usage: Usage, free: tuple[int, int]) -> None:
        self._usage, self._free_then, self._counted_at = usage, free, time.monotonic()

    async def count(self, machine: Machine) -> Usage:
        free = machine.headroom_hint()
        limits = self._limits
        # Some way past the limits, so that growth is told from clearing up in a workspace that is too full already.
        usage = await machine.usage(2 * limits.workspace_files, 2 * limits.workspace_bytes)
        self._remember(usage, free)
        return usage

    def _at_most(self, machine: Machine) -> Usage | None:
        """What the workspace may hold by now: what was counted just before, and all that the file system lost since."""
        free_bytes, free_files = machine.headroom_hint()
        stale = time.monotonic() - self._counted_at > TRUSTED_SECONDS
        if self._usage is None or not self._usage.complete or stale or free_files == 0:
            return None
        return Usage(
            self._usage.bytes + max(0, self._free_then[0] - free_bytes),
            self._usage.files + max(0, self._free_then[1] - free_files),
        )

    def _worth_counting(self, machine: Machine) -> bool:
        """Could the workspace have passed its limits since the last count, going by the file system's free space?"""
        if self._usage is None:
            return True
        free_bytes, free_files = machine.headroom_hint()
        if free_files == 0:  # a file system that does not count its files
            return True
        room_bytes = self._limits.workspace_bytes - self._usage.bytes
        room_files = self._limits.workspace_files - self._usage.files
        return self._free_then[0] - free_bytes >= room_bytes or self._free_then[1] - free_files >= room_files

    async def after_command(self, machine: Machine) -> LimitName | None:
        """The limit that a command passed."""
        if not self._worth_counting(machine):
            return None
        before = self._usage
        return self._over(await self.count(machine), before)

    async def after_failure(self, machine: Machine, began: float, free_then: int) -> LimitName | None:
        """Whether a command that failed ran into the file size limit, when it wrote as much: a program that handles the
        kernel's refusal ends with a code of its own, so the file has to tell."""
        most = self._limits.file_bytes
        if not most or free_then - machine.headroom_hint()[0] < most // 2:
            return None
        size, written = (await self.count(machine)).largest
        return "file_size" if size == most and written >= began else None

    async def watch(self, machine: Machine, hit: Callable[[LimitName], None]) -> None:
        """Count until cancelled; call `hit` once when a limit is passed."""
        loop = asyncio.get_running_loop()
        before = self._usage
        while True:
            started = loop.time()
            try:
                limit = self._over(await self.count(machine), before)
            except SandboxUnavailable:
                return  # the machine went away; whoever waits for the command learns it there
            if limit is not None:
                hit(limit)
                return
            await asyncio.sleep(max(INTERVAL, 2 * (loop.time() - started)))

    def sure_room(self, machine: Machine, size: int | None) -> int | None:
        """What a new file of that size may take, when that can be told without a count: the workspace is far from full.

        Raises: LimitExceeded when the file is too large in itself.
        """
        limits = self._limits
        if size is None:
            return None
        if limits.file_bytes and size > limits.file_bytes:
            raise file_too_large(limits.file_bytes, size)
        usage = self._at_most(machine)
        if usage is None or self._nearly_full(usage.bytes + size, usage.files + 1):
            return None
        return self._room(usage)

    def _room(self, usage: Usage) -> int:
        room = self._limits.workspace_bytes - usage.bytes - self.promised
        return min(room, self._limits.file_bytes) if self._limits.file_bytes else room

    async def room_for(self, machine: Machine, size: int | None, *, new_files: int = 1) -> int:
        """How many bytes a new file may have.

        Raises: LimitExceeded when `size` bytes in `new_files` more files would pass a limit.
        """
        if (sure := self.sure_room(machine, size)) is not None:
            return sure
        usage = await self.count(machine)
        self._check(usage, size or 0, new_files)
        return self._room(usage)

    async def room_for_all(self, machine: Machine, size: int, new_files: int) -> None:
        """Raises: LimitExceeded when so many bytes in so many more files would pass a limit of the workspace."""
        usage = self._at_most(machine)
        if usage is None or self._nearly_full(usage.bytes + size, usage.files + new_files):
            usage = await self.count(machine)
        self._check(usage, size, new_files)

    def _nearly_full(self, size: int, files: int) -> bool:
        return size + self.promised >= self._limits.workspace_bytes // 2 or files >= self._limits.workspace_files // 2

    def _check(self, usage: Usage, size: int, new_files: int) -> None:
        limits = self._limits
        if usage.files + new_files > limits.workspace_files:
            raise LimitExceeded(
                f"Workspace holds {usage.files} files of at most {limits.workspace_files}. Remove files first.",
                limit="files",
                maximum=limits.workspace_files,
                actual=usage.files,
            )
        used = usage.bytes + self.promised
        if limits.workspace_bytes - used < size:
            raise workspace_full(limits.workspace_bytes, used, size)


def file_too_large(maximum: int, actual: int) -> LimitExceeded:
    return LimitExceeded(
        f"File size exceeds maximum of {maximum / MIB:g} MB (the file has {actual / MIB:.1f} MB or more). "
        "Raise MAX_FILE_SIZE_MB, or split the file.",
        limit="file_size",
        maximum=maximum,
        actual=actual,
    )


def workspace_full(maximum: int, used: int, size: int | None) -> LimitExceeded:
    return LimitExceeded(
        f"Workspace size exceeds maximum of {maximum / MIB:g} MB ({used / MIB:.1f} MB are used). "
        "Remove files first, or raise MAX_WORKSPACE_SIZE_MB.",
        limit="workspace",
        maximum=maximum,
        actual=used + (size or 0),
        used=used,
    )
