"""A running bubblewrap sandbox: its end, its limits, its workspace as the host sees it."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hutch.model.errors import SandboxUnavailable
from hutch.model.limits import LimitName
from hutch.model.process import ProcessExit
from hutch.providers.base import MachineSpec, Usage
from hutch.providers.bubblewrap import cgroup_files, trees, workspace
from hutch.providers.bubblewrap.cgroups import Controller, grown
from hutch.providers.bubblewrap.ending import end_processes
from hutch.providers.bubblewrap.record import Lock, ProcessId
from hutch.providers.guest.machine import GuestMachine

STOP_SECONDS = 20.0
THROTTLED_SHARE = 0.8  # a killed command that had this much of its CPU quota was held up by it
OWN_TASKS = 8  # of the sandbox's limit, at most: its init, and handlers with shells started ahead
SHORTEST_JUDGED = 0.5  # seconds; below, a share of a quota says nothing


@dataclass(frozen=True, slots=True)
class Mark:
    counters: Mapping[Controller, int]
    at: float


class BubblewrapMachine(GuestMachine):
    """`watched`: pidfd of the process whose end is the machine's end; the machine closes it.

    `lock` is None for a machine that another process runs: then nothing but the processes is ours to clear up.
    """

    def __init__(
        self,
        spec: MachineSpec,
        *,
        watched: int,
        init: ProcessId,
        cgroups: cgroup_files.MachineCgroups,
        lock: Lock | None,
        ended: Callable[[BubblewrapMachine], None],
    ) -> None:
        super().__init__(spec.sandbox_id, spec.folder / workspace.SOCKET)
        self.spec = spec
        self.init = init
        self._watched = watched
        self._cgroups = cgroups
        self._lock = lock
        self._ended = ended
        self._reason = "it ended by itself"
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._finishing: asyncio.Task[None] | None = None
        self._rlimits = tuple(_rlimits(spec, cgroups.folders))
        self._loop.add_reader(watched, self._on_end)

    # Life

    @property
    def alive(self) -> bool:
        if self._watched < 0:
            return False
        poll = select.poll()
        poll.register(self._watched, select.POLLIN)
        return not poll.poll(0)

    def _on_end(self) -> None:
        self._loop.remove_reader(self._watched)
        os.close(self._watched)
        self._watched = -1
        self.release()
        self._finishing = self._loop.create_task(self._finish())

    async def _finish(self) -> None:
        """The last process has ended: what remains are names."""
        self._cgroups.close()
        try:
            if self._lock is not None:
                await asyncio.to_thread(self._clear_up, self._lock)
        finally:
            self._ended(self)
            self._over.set()

    def _clear_up(self, lock: Lock) -> None:
        try:
            end_processes(lock.record, None)  # the init may outlive its monitor by a moment
            cgroup_files.remove(self._cgroups.paths)
            workspace.forget_socket(self.spec.folder)
        finally:
            lock.release()

    def forget(self) -> None:
        """Let go of a machine that another process runs, without ending it."""
        if self._watched >= 0:
            self._loop.remove_reader(self._watched)
            os.close(self._watched)
            self._watched = -1
        self.release()
        self._cgroups.close()

    async def stop(self) -> None:
        self._reason = "it was stopped"
        await self.end_machine()
        async with asyncio.timeout(STOP_SECONDS):
            await self._over.wait()
        if self._finishing is not None:
            await asyncio.shield(self._finishing)

    async def wait_stopped(self) -> str:
        await self._over.wait()
        return self._reason

    async def end_machine(self) -> None:
        """Kill the init: the kernel kills all others of its namespace before it reports the init's end."""
        if self._watched < 0:
            return
        try:
            descriptor = os.pidfd_open(self.init.pid)
        except ProcessLookupError:
            return  # ending already
        try:
            if self.init.alive():  # only now the pid is sure to be the init's: the descriptor holds that process
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError as failure:
            raise SandboxUnavailable(f"The sandbox belongs to another user: {failure.strerror}.") from failure
        finally:
            os.close(descriptor)

    # Limits

    def rlimits(self) -> Sequence[tuple[int, int, int]]:
        return self._rlimits

    def limit_mark(self) -> object:
        return Mark(self._cgroups.read(), time.monotonic())

    def limit_seen(self, mark: object, exit: ProcessExit) -> LimitName | None:
        if not isinstance(mark, Mark):
            return super().limit_seen(mark, exit)
        # The killed process may be one that the command survived: the counters know better than the exit code.
        hit = grown(mark.counters, self._cgroups.read()) or super().limit_seen(mark, exit)
        if hit is None and "pids" not in self._cgroups.folders and self._was_full(exit):
            hit = "pids"
        return hit or ("cpu" if self._was_throttled(exit, time.monotonic() - mark.at) else None)

    def _was_full(self, exit: ProcessExit) -> bool:
        """No counter tells of a fork that RLIMIT_NPROC refused. A bomb is still there when its command ends."""
        return exit.tasks_left >= self.spec.limits.pids - OWN_TASKS

    def _was_throttled(self, exit: ProcessExit, elapsed: float) -> bool:
        percent = self.spec.limits.cpu_percent
        if (
            exit.signal != signal.SIGKILL
            or not percent
            or elapsed < SHORTEST_JUDGED
            or "cpu" not in self._cgroups.folders
        ):
            return False
        return exit.cpu_ms / 1000 >= THROTTLED_SHARE * elapsed * percent / 100

    # The workspace

    async def usage(self, max_files: int, max_bytes: int) -> Usage:
        return await asyncio.to_thread(self._usage, max_files, max_bytes)

    def _usage(self, max_files: int, max_bytes: int) -> Usage:
        files = self.spec.folder / workspace.FILES
        try:
            descriptor = os.open(files, trees.FOLDER_FLAGS)
            try:
                return trees.usage(descriptor, max_files, max_bytes)
            finally:
                os.close(descriptor)
        except OSError as failure:
            raise SandboxUnavailable(f"The workspace {files} cannot be read: {failure.strerror}.") from failure

    def headroom_hint(self) -> tuple[int, int]:
        try:
            info = os.statvfs(self.spec.folder)
        except OSError as failure:
            raise SandboxUnavailable(f"The sandbox's folder cannot be read: {failure.strerror}.") from failure
        return info.f_bavail * info.f_frsize, info.f_favail


def _rlimits(spec: MachineSpec, cgroups: Mapping[Controller, Path]) -> list[tuple[int, int, int]]:
    limits = spec.limits
    found = [
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_NOFILE, limits.open_files, limits.open_files),
        (resource.RLIMIT_FSIZE, *(2 * (limits.file_bytes or limits.workspace_bytes,))),
    ]
    # What a cgroup cannot hold here, the older limits hold for each process (memory) or each user namespace (pids).
    if "memory" not in cgroups:
        found.append((resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes))
    if "pids" not in cgroups:
        found.append((resource.RLIMIT_NPROC, limits.pids, limits.pids))
    return found
