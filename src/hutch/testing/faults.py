"""What a test lets go wrong in the fake provider."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from hutch.model.errors import HutchError


@dataclass(slots=True)
class Faults:
    """By name of a call (`start`, `spawn`, `open_read`, `stop`, …)."""

    delays: dict[str, float] = field(default_factory=dict[str, float])  # seconds before the call does its work
    errors: dict[str, deque[HutchError]] = field(default_factory=dict[str, deque[HutchError]])
    always: dict[str, HutchError] = field(default_factory=dict[str, HutchError])
    disk_bytes: int = 1 << 40
    disk_files: int = 1 << 24

    def fail_next(self, call: str, *errors: HutchError) -> None:
        """The next calls of that name fail so, one error each."""
        self.errors.setdefault(call, deque()).extend(errors)

    async def before(self, call: str) -> None:
        """Raises: whatever the test asked for."""
        if delay := self.delays.get(call):
            await asyncio.sleep(delay)
        if waiting := self.errors.get(call):
            raise waiting.popleft()
        if call in self.always:
            raise self.always[call]
