"""The bubblewrap provider: sandboxes on this machine, without a daemon and without root."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hutch.model.errors import HutchError, InvalidRequest, SandboxUnavailable, WallMissing
from hutch.model.wall import WALLS
from hutch.providers.base import Capabilities, Machine, MachineSpec, Provider, ProviderReport
from hutch.providers.bubblewrap import cgroup_files, record, workspace
from hutch.providers.bubblewrap.cgroup_files import MachineCgroups
from hutch.providers.bubblewrap.cgroups import Controller, Discovery
from hutch.providers.bubblewrap.ending import end_processes
from hutch.providers.bubblewrap.machine import BubblewrapMachine
from hutch.providers.bubblewrap.site import Site
from hutch.providers.bubblewrap.starting import Start, begin_in_thread, settle

DEFAULT_UIDS = (1_900_000_000, 1_900_065_535)  # above what systemd hands out, below 2^31: no account lives here


class BubblewrapProvider(Provider):
    """`data_folder` holds what is prepared once (layers, filters); a machine's folder may lie anywhere.

    `allow_missing`: required walls that may be absent when they cannot be built here. `walls_off`: walls that are not
    built at all; for the tests of the walls, no setting reaches it.
    """

    name = "bubblewrap"
    capabilities = Capabilities(
        pty=True, ports=True, listen=True, watch=True, strict=True, survives_engine=False, shared=True
    )

    def __init__(
        self,
        data_folder: Path,
        *,
        allow_missing: frozenset[str] = frozenset(),
        walls_off: frozenset[str] = frozenset(),
        uid_range: tuple[int, int] | None = None,
        bubblewrap: Path | None = None,
    ) -> None:
        unknown = sorted((allow_missing | walls_off) - {wall.name for wall in WALLS})
        if unknown:
            raise InvalidRequest(f"No such wall: {', '.join(unknown)}.")
        self._uids = uid_range or DEFAULT_UIDS
        self._site = Site(data_folder.absolute(), allow_missing, walls_off, bubblewrap)
        self._machines: set[BubblewrapMachine] = set()

    async def start(self, spec: MachineSpec) -> Machine:
        spec = replace(spec, folder=spec.folder.absolute())
        while True:
            try:
                start = await begin_in_thread(self._site, spec)
                init = await settle(start)
            except WallMissing as failure:
                if not self._site.do_without(failure, spec.folder):
                    raise
                continue
            machine = self._machine(start, init)
            machine.expect_command()  # a machine is started for one
            return machine

    def _machine(self, start: Start, init: record.ProcessId) -> BubblewrapMachine:
        machine = BubblewrapMachine(
            start.spec,
            watched=start.take_watched(),
            init=init,
            cgroups=start.cgroups,
            lock=start.lock,
            ended=self._machines.discard,
        )
        self._machines.add(machine)
        return machine

    async def reach(self, spec: MachineSpec) -> Machine | None:
        found = record.read(spec.folder)
        if found is None or found.monitor is None or found.init is None or not found.init.alive():
            return None
        try:
            watched = os.pidfd_open(found.monitor.pid)
        except ProcessLookupError:
            return None
        if not found.monitor.alive():
            os.close(watched)
            return None
        cgroups = MachineCgroups.existing(_folders(found.cgroups or {}))
        machine = BubblewrapMachine(
            spec, watched=watched, init=found.init, cgroups=cgroups, lock=None, ended=self._machines.discard
        )
        if await machine.ping():
            return machine
        machine.forget()
        return None

    async def sweep(self, spec: MachineSpec) -> None:
        """Raises: SandboxUnavailable when the machine runs in a process that lives."""
        for machine in self._machines_in(spec.folder):
            if not machine.alive:  # ours has ended and clears up after itself: never beside its successor's start
                await machine.wait_stopped()
        await asyncio.to_thread(self._sweep, spec)

    def _sweep(self, spec: MachineSpec) -> None:
        if record.is_blank(spec.folder):
            return
        found = record.read(spec.folder)
        if found is not None and found.owner.alive() and found.owner.pid != os.getpid():
            raise SandboxUnavailable(f"The sandbox in {spec.folder} runs in process {found.owner.pid}: stop it there.")
        paths = set(MachineCgroups(self._site.discovery, spec.sandbox_id).paths)
        paths |= set(_folders((found.cgroups if found else None) or {}).values())
        end_processes(found, spec.host_uid if os.geteuid() == 0 else None)
        cgroup_files.kill_members(paths)
        cgroup_files.remove(paths)
        workspace.forget_socket(spec.folder)
        (spec.folder / record.NAME).unlink(missing_ok=True)

    async def destroy(self, spec: MachineSpec) -> None:
        for machine in self._machines_in(spec.folder):
            await machine.stop()
        await self.sweep(spec)
        await asyncio.to_thread(workspace.destroy, spec.folder)

    def _machines_in(self, folder: Path) -> list[BubblewrapMachine]:
        return [machine for machine in self._machines if machine.spec.folder == folder.absolute()]

    def allocate_uid(self, taken: frozenset[int]) -> int | None:
        """A random one, so that a uid is not soon used again.

        Raises: SandboxUnavailable when the range is used up.
        """
        if os.geteuid() != 0:
            return None
        first, last = self._uids
        size = last - first + 1
        start = secrets.randbelow(size)
        for step in range(size):
            uid = first + (start + step) % size
            if uid not in taken:
                return uid
        raise SandboxUnavailable(
            f"All {size} host uids from {first} to {last} are taken. Widen the range (HUTCH_UID_RANGE), or remove "
            "sandboxes."
        )

    async def report(self) -> ProviderReport:
        from hutch.providers.bubblewrap.doctor import examine

        return await examine(self, self._site)

    async def aclose(self) -> None:
        failures: list[HutchError] = []
        for machine in tuple(self._machines):
            try:
                await machine.stop()
            except HutchError as failure:
                failures.append(failure)
        await asyncio.to_thread(self._site.close)
        if failures:
            raise failures[0]


def _folders(recorded: Mapping[str, str]) -> dict[Controller, Path]:
    names: tuple[Controller, ...] = ("memory", "cpu", "pids")
    return {name: Path(recorded[name]) for name in names if name in recorded}


__all__ = ["DEFAULT_UIDS", "BubblewrapProvider", "Discovery"]
