"""A provider in memory, for unit tests of what stands on providers: no process, no socket, no wall.

    provider = FakeProvider()
    provider.on("make", behaviour)          # an async function of a `Running`: prints, reads, sleeps, returns a code
    provider.faults.fail_next("start", SandboxUnavailable("no"))
    machine.die("power cut")

Limits are not enforced: a behaviour that returns `ProcessExit(exit_code=137, limit="memory")` plays one being hit.
"""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

from hutch.model.errors import SandboxUnavailable
from hutch.model.limits import LimitName
from hutch.model.process import ProcessExit
from hutch.model.wall import WALLS, WallReport
from hutch.providers.base import Capabilities, MachineSpec, Provider, ProviderReport, SpawnRequest
from hutch.testing.fake_files import Tree
from hutch.testing.fake_machine import FakeMachine
from hutch.testing.fake_process import Behaviour, Running
from hutch.testing.fake_shell import shell, words
from hutch.testing.faults import Faults

_FIRST_UID = 700_000


class FakeWorld:
    """What outlives a provider object: workspaces and running machines. Give two providers one world to play two
    processes of one user."""

    def __init__(self) -> None:
        self.trees: dict[Path, Tree] = {}
        self.machines: dict[Path, FakeMachine] = {}


class FakeProvider(Provider):
    name = "fake"

    def __init__(
        self,
        *,
        world: FakeWorld | None = None,
        pty: bool = True,
        ports: bool = True,
        listen: bool = True,
        watch: bool = True,
        shared: bool = True,
        as_root: bool = False,
    ) -> None:
        self.world = world or FakeWorld()
        self.faults = Faults()
        self.capabilities = Capabilities(
            pty=pty, ports=ports, listen=listen, watch=watch, strict=False, survives_engine=False, shared=shared
        )
        self.spawned: list[SpawnRequest] = []
        self._as_root = as_root
        self._behaviours: dict[tuple[str, ...], Behaviour] = {}
        self._started: dict[Path, FakeMachine] = {}

    def on(self, command: str | tuple[str, ...], behaviour: Behaviour) -> None:
        """What `bash -c command`, or that argument vector, shall do."""
        self._behaviours[(command,) if isinstance(command, str) else command] = behaviour

    def says(self, command: str, out: str = "", err: str = "", code: int = 0, limit: LimitName | None = None) -> None:
        """The short form of `on`: print and end."""

        async def behaviour(me: Running) -> ProcessExit:
            me.out(out)
            me.err(err)
            return ProcessExit(exit_code=code, limit=limit)

        self.on(command, behaviour)

    def machine(self, sandbox_id: str) -> FakeMachine:
        """The running machine of that sandbox, to look into it or let it die. Raises: LookupError."""
        for machine in self._started.values():
            if machine.sandbox_id == sandbox_id and machine.alive:
                return machine
        raise LookupError(f"no machine of sandbox {sandbox_id} runs")

    def _resolve(self, request: SpawnRequest) -> Behaviour:
        self.spawned.append(request)
        argv = tuple(request.argv)
        if argv[:2] == (None, "-c"):
            text = argv[2] or ""
            return self._behaviours.get((text,)) or shell(text)
        vector = tuple(word or "bash" for word in argv)
        return self._behaviours.get(vector) or words(vector)

    # --- the contract ------------------------------------------------------------------------------------------

    async def start(self, spec: MachineSpec) -> FakeMachine:
        await self.faults.before("start")
        running = self.world.machines.get(spec.folder)
        if running is not None and running.alive:
            raise SandboxUnavailable(f"sandbox {spec.sandbox_id} is already running")
        spec.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tree = self.world.trees.setdefault(spec.folder, Tree())
        machine = FakeMachine(spec, tree, self.capabilities, self.faults, self._resolve)
        self.world.machines[spec.folder] = self._started[spec.folder] = machine
        return machine

    async def reach(self, spec: MachineSpec) -> FakeMachine | None:
        await self.faults.before("reach")
        machine = self.world.machines.get(spec.folder)
        return machine if machine is not None and machine.alive and self.capabilities.shared else None

    async def destroy(self, spec: MachineSpec) -> None:
        await self.faults.before("destroy")
        await self.sweep(spec)
        self.world.trees.pop(spec.folder, None)
        shutil.rmtree(spec.folder, ignore_errors=True)

    async def sweep(self, spec: MachineSpec) -> None:
        await self.faults.before("sweep")
        self._started.pop(spec.folder, None)
        machine = self.world.machines.pop(spec.folder, None)
        if machine is not None:
            await machine.stop()

    def allocate_uid(self, taken: frozenset[int]) -> int | None:
        return next(uid for uid in count(_FIRST_UID) if uid not in taken) if self._as_root else None

    async def report(self) -> ProviderReport:
        await self.faults.before("report")
        walls = tuple(WallReport(wall.name, "off", "the fake builds no walls") for wall in WALLS)
        return ProviderReport(provider=self.name, usable=True, walls=walls, notes=("for tests only",))

    async def aclose(self) -> None:
        for folder, machine in list(self._started.items()):
            await machine.stop()
            self._started.pop(folder, None)
