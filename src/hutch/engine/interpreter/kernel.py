"""One interpreter in a sandbox, behind its bridge: a process that the host gives orders and whose lines it reads."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources

from hutch.engine.interpreter.messages import Dead, Lines, Ready, read
from hutch.engine.interpreter.run import LINE_COST, CodeRun
from hutch.model.errors import HutchError, SandboxUnavailable
from hutch.model.process import ProcessExit, StreamName
from hutch.providers.base import TREES_DIR, Machine, Process, SpawnRequest

START_SECONDS = 60.0
END_SECONDS = 2.0  # a bridge whose interpreter has died ends by itself
COMPLAINT_BYTES = 2000
IDLE_BYTES = 1024 * 1024  # said while nothing runs: an honest bridge says nothing
PYTHON = "/usr/bin/python3"


@cache
def _bridge_text() -> str:
    return resources.files("hutch.engine.interpreter").joinpath("bridge.py").read_text("utf-8")


class Kernel:
    """Implements the provider's `OutputSink`."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.exit: ProcessExit | None = None  # of the bridge
        self.dead: int | None = None  # how the interpreter behind it ended: a code, or minus a signal
        self._process: Process | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._killing: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._lines = Lines()
        self._complaint = b""
        self._run: CodeRun | None = None
        self._idle_heard = 0
        self._honest = True

    # -- its life

    async def start(self, machine: Machine, tree: str, env: Mapping[str, str], cwd: str) -> None:
        """Raises: SandboxUnavailable, SandboxFileNotFound (no such folder)."""
        argv = (PYTHON, "-I", "-c", _bridge_text(), f"{TREES_DIR}/{tree}/lib")
        self._process = await machine.spawn(SpawnRequest(argv=argv, env=env, cwd=cwd, stdin=True), self)
        self._watcher = asyncio.create_task(self._watch(self._process))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_SECONDS):
                    await self._ready.wait()
        except BaseException:
            await asyncio.shield(self.kill())
            raise
        if not self.alive or not self._ready.is_set():
            await self.kill()
            said = self._complaint.decode("utf-8", "replace").strip()[-COMPLAINT_BYTES:]
            raise SandboxUnavailable(
                "The Python interpreter in the sandbox did not start" + (f": {said}" if said else " in time.")
            )

    @property
    def alive(self) -> bool:
        return not self.ended.is_set() and self._honest and self.dead is None

    async def _watch(self, process: Process) -> None:
        try:
            self.exit = await process.wait()
        finally:
            self.ended.set()
            self._ready.set()
            if self._run is not None:
                self._run.said.set()

    async def kill(self) -> None:
        """End it, with all it started."""
        if self._process is not None and not self.ended.is_set():
            with contextlib.suppress(HutchError):
                await self._process.kill()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self.ended.wait()

    async def settle(self) -> None:
        """Of one that is dying: how it ended is known then, or it was ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self.ended.wait()
        await self.kill()

    # -- its work

    async def begin(self, run: CodeRun, code: str) -> None:
        """Raises: ProcessEnded, SandboxUnavailable."""
        self._run = run
        self._idle_heard = 0
        run.begin()
        await self._order(do="run", id=run.run_id, code=code)

    async def interrupt(self) -> None:
        """Raises: ProcessEnded, SandboxUnavailable."""
        await self._order(do="interrupt")

    async def _order(self, **fields: str) -> None:
        assert self._process is not None
        await self._process.write(json.dumps(fields).encode() + b"\n")

    def let_go(self) -> None:
        """Of the run: what is said from now on is nobody's."""
        self._run = None

    # -- what it says

    def feed(self, stream: StreamName, data: bytes) -> bool:
        if stream == "stderr":
            self._complaint = (self._complaint + data)[-COMPLAINT_BYTES:]
            return False
        if not self._honest:
            return False
        if not self._room_for(len(data)):
            self._distrust()
            return False
        for line in self._lines.feed(data):
            self._hear(line)
        return self._honest

    def _room_for(self, size: int) -> bool:
        if self._run is not None:
            return self._run.room_for(size)
        self._idle_heard += size
        return self._idle_heard <= IDLE_BYTES

    def _hear(self, line: bytes) -> None:
        run = self._run
        if not self._honest or not self._room_for(LINE_COST):
            self._distrust()
            return
        said = read(line)
        if isinstance(said, Ready):
            self._ready.set()
        elif isinstance(said, Dead):
            self.dead = said.code
            if run is not None:
                run.said.set()
        elif run is not None and said is not None:
            run.hear(said)

    def _distrust(self) -> None:
        """It says more than a bridge of ours would: something else speaks in its place."""
        self._honest = False
        if self._run is not None:
            self._run.said.set()
        if self._killing is None:
            self._killing = asyncio.create_task(self.kill())
