"""A sandbox as this process holds it: its row, its machine when it runs, and what runs in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hutch.engine.gauge import WorkspaceGauge
from hutch.engine.output import SpoolBudget, session_budget
from hutch.engine.ownership import FolderLock
from hutch.engine.process_log import ProcessLog
from hutch.model.errors import ProcessNotFound
from hutch.model.process import ProcessInfo
from hutch.model.template import Template
from hutch.providers.base import FileIdentity, Machine, MachineSpec
from hutch.store.records import SandboxRecord, SessionRecord


@dataclass(frozen=True, slots=True)
class Placed:
    """A file that was sent: what, and what it was in the sandbox then."""

    origin: str
    identity: FileIdentity


FINISHED_KEPT = 64  # ended processes whose output can still be read


@dataclass(slots=True, eq=False, weakref_slot=True)
class LiveSandbox:
    record: SandboxRecord
    template: Template
    spec: MachineSpec
    gauge: WorkspaceGauge
    session: SessionRecord | None = None
    machine: Machine | None = None
    lock: FolderLock | None = None  # held while this process runs the machine
    waking: asyncio.Lock = field(default_factory=asyncio.Lock)
    last_activity: float = field(default_factory=time.time)
    use_shown: float = 0.0  # when its row was last told that it is used, for a process that runs it
    busy: int = 0  # calls under way, and shells or connections that are open
    died: bool = False  # the machine ended before its time; the next result says so
    removed: bool = False
    placed: dict[str, Placed] = field(default_factory=dict[str, "Placed"])  # by path; forgotten at a restart
    processes: dict[str, ProcessLog] = field(default_factory=dict[str, ProcessLog])
    budget: SpoolBudget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = session_budget(self._forget_bytes)

    @property
    def sandbox_id(self) -> str:
        return self.record.sandbox_id

    @property
    def spool_folder(self) -> Path:
        return self.spec.folder

    @property
    def running(self) -> bool:
        return self.machine is not None and self.machine.alive

    def overdue(self) -> bool:
        """Past its idle time-out, going by what this process knows."""
        idle = self.record.idle_seconds
        return idle > 0 and not self.busy and time.time() >= self.last_activity + idle

    def touch(self) -> None:
        self.last_activity = time.time()

    def running_processes(self) -> Iterator[ProcessLog]:
        return (log for log in self.processes.values() if log.exit is None)

    def process(self, process_id: str) -> ProcessLog:
        """Raises: ProcessNotFound."""
        log = self.processes.get(process_id)
        if log is None:
            raise ProcessNotFound(
                f"No process {process_id!r} in this sandbox (output of the last {FINISHED_KEPT} ended ones is kept).",
                process_id=process_id,
            )
        return log

    def process_infos(self) -> list[ProcessInfo]:
        return [log.info() for log in self.processes.values()]

    def keep(self, log: ProcessLog) -> None:
        """Remember a process; the oldest ended ones make place for it."""
        self.processes[log.process_id] = log
        ended = self._ended()
        for old in ended[: max(0, len(ended) + 1 - FINISHED_KEPT)]:
            self._forget(old)

    def _forget_bytes(self, needed: int) -> None:
        """The spool is full: output of ended processes goes, the oldest first."""
        wanted = self.budget.left + needed
        for old in self._ended():
            if self.budget.left >= wanted:
                return
            if old.budget.taken:
                self._forget(old)

    def _ended(self) -> list[ProcessLog]:
        return [log for log in self.processes.values() if log.exit is not None]

    def _forget(self, log: ProcessLog) -> None:
        del self.processes[log.process_id]
        log.close()

    def drop_processes(self) -> None:
        for log in self.processes.values():
            log.close()
        self.processes.clear()
