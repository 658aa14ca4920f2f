"""Room in a workspace that one upload has to itself, so that many at once do not each take all there is."""

from __future__ import annotations

from hutch.engine.gauge import WorkspaceGauge, file_too_large
from hutch.model.limits import MIB, Limits
from hutch.providers.base import Machine

STEP_BYTES = 16 * MIB  # taken ahead by an upload that does not say how long it is


class UploadRoom:
    def __init__(self, gauge: WorkspaceGauge, machine: Machine, limits: Limits, room: int, size: int | None) -> None:
        """`room` is what the gauge found a moment ago; nothing may be awaited between the two."""
        self._gauge = gauge
        self._machine = machine
        self._limits = limits
        self._left = 0
        self._written = 0
        self._take(min(room, STEP_BYTES) if size is None else size)

    def _take(self, size: int) -> None:
        self._left += size
        self._gauge.promised += size

    async def spend(self, size: int) -> None:
        """Before so many bytes are written. Raises: LimitExceeded."""
        self._written += size
        if self._limits.file_bytes and self._written > self._limits.file_bytes:
            raise file_too_large(self._limits.file_bytes, self._written)
        if size > self._left:
            missing = size - self._left
            room = await self._gauge.room_for(self._machine, missing, new_files=0)
            self._take(min(room, max(missing, STEP_BYTES)))
        self._take(-size)

    def close(self) -> None:
        self._take(-self._left)
