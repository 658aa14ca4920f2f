"""How much an engine holds right now, for gauges."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hutch.engine.egress.service import Egress
from hutch.engine.live import LiveSandbox
from hutch.engine.pool import Pool
from hutch.engine.sandboxes import Sandboxes
from hutch.model.errors import HutchError

COUNTING_SECONDS = 0.1  # of one survey; the workspaces that it does not get to have their turn in the next
COUNTED_FILES = 10_000  # of one workspace: a larger one is known to hold at least what was counted


@dataclass(frozen=True, slots=True)
class Survey:
    sessions: int  # that this process has used and that have not ended
    sandboxes_running: int  # spare ones too
    sandboxes_spare: int
    sandboxes_max: int
    processes_running: int
    pool_hits: int
    pool_misses: int
    workspaces: int  # those whose size is known
    workspace_bytes: int  # that they hold together, as last counted
    workspace_files: int
    egress_passed: int  # requests of sandboxes to hosts, by how they went
    egress_refused: int
    egress_failed: int


@dataclass(frozen=True, slots=True)
class _Counted:
    size_bytes: int
    files: int
    at: float


class Surveyor:
    """Keeps what it counted of each workspace, until the sandbox is used again.

    It counts for itself: a `WorkspaceGauge` judges commands by what it counted before them.
    """

    def __init__(self, sandboxes: Sandboxes, pool: Pool, egress: Egress, max_running: int) -> None:
        self._sandboxes = sandboxes
        self._pool = pool
        self._egress = egress
        self._max_running = max_running
        self._counted: dict[str, _Counted] = {}

    async def take(self) -> Survey:
        held = [live for live in self._sandboxes.live.values() if not live.removed and not live.record.pooled]
        await self._count(held)
        known = [self._counted[live.sandbox_id] for live in held if live.sandbox_id in self._counted]
        return Survey(
            sessions=len(held),
            sandboxes_running=self._sandboxes.running,
            sandboxes_spare=self._pool.spare,
            sandboxes_max=self._max_running,
            processes_running=sum(1 for live in held for _ in live.running_processes()),
            pool_hits=self._pool.hits,
            pool_misses=self._pool.misses,
            workspaces=len(known),
            workspace_bytes=sum(one.size_bytes for one in known),
            workspace_files=sum(one.files for one in known),
            egress_passed=self._egress.requests["passed"],
            egress_refused=self._egress.requests["refused"],
            egress_failed=self._egress.requests["failed"],
        )

    async def _count(self, held: list[LiveSandbox]) -> None:
        ids = {live.sandbox_id for live in held}
        self._counted = {name: one for name, one in self._counted.items() if name in ids}
        until = time.monotonic() + COUNTING_SECONDS
        for live in sorted(held, key=self._counted_at):
            if time.monotonic() >= until:
                return
            machine, now = live.machine, time.time()
            if machine is None or not machine.alive or (self._counted_at(live) > live.last_activity and not live.busy):
                continue
            try:
                usage = await machine.usage(COUNTED_FILES, live.template.limits.workspace_bytes)
            except HutchError:
                continue  # it ends just now
            self._counted[live.sandbox_id] = _Counted(usage.bytes, usage.files, now)

    def _counted_at(self, live: LiveSandbox) -> float:
        counted = self._counted.get(live.sandbox_id)
        return counted.at if counted is not None else 0.0
