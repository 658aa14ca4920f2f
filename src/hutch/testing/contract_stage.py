"""The stage of the provider contract: how its tests run, what they hold, and how gaps are declared."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from hutch.model.errors import NotSupported
from hutch.model.ids import new_sandbox_id
from hutch.model.process import Leftovers, ProcessExit, StreamName
from hutch.model.session import WORKSPACE_DIR
from hutch.model.template import OPEN
from hutch.providers.base import Machine, MachineSpec, Process, Provider, SpawnRequest

HANG = 60.0  # a test that takes so long hangs; each takes well under two seconds where it works
Need = Literal["pty", "ports", "listen", "watch"]


class Collector:
    """A sink that keeps everything, and lets a test wait for a piece of output."""

    def __init__(self, keep: bool = True) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self._keep = keep
        self._fed = asyncio.Event()

    def feed(self, stream: StreamName, data: bytes) -> bool:
        (self.stdout if stream == "stdout" else self.stderr).extend(data)
        self._fed.set()
        return self._keep

    async def shows(self, piece: bytes) -> None:
        """Returns once standard output holds `piece`."""
        while piece not in self.stdout:
            self._fed.clear()
            await self._fed.wait()


@dataclass(frozen=True, slots=True)
class Result:
    exit: ProcessExit
    stdout: bytes
    stderr: bytes


@dataclass(slots=True)
class Stage:
    """One provider, one running machine, and short ways to use them."""

    provider: Provider
    machine: Machine
    spec: MachineSpec

    async def start(
        self,
        text: str,
        sink: Collector | None = None,
        *,
        stdin: bool = False,
        pty: tuple[int, int] | None = None,
        leftovers: Leftovers = "kill",
        cwd: str = WORKSPACE_DIR,
        machine: Machine | None = None,
    ) -> Process:
        request = SpawnRequest(
            argv=[None, "-c", text], env=ENVIRONMENT, cwd=cwd, stdin=stdin, pty=pty, leftovers=leftovers
        )
        return await (machine or self.machine).spawn(request, sink or Collector())

    async def execute(self, text: str, *, cwd: str = WORKSPACE_DIR, machine: Machine | None = None) -> Result:
        sink = Collector()
        process = await self.start(text, sink, cwd=cwd, machine=machine)
        return Result(await process.wait(), bytes(sink.stdout), bytes(sink.stderr))

    async def write(self, path: str, data: bytes, *, mode: int = 0o644, parents: bool = False) -> None:
        writer = await self.machine.open_write(path, mode=mode, parents=parents)
        await writer.write(data)
        await writer.commit()

    async def read(self, path: str, offset: int = 0, machine: Machine | None = None) -> bytes:
        reader = await (machine or self.machine).open_read(path, offset)
        try:
            return b"".join([piece async for piece in _pieces(reader.read)])
        finally:
            await reader.aclose()

    async def names(self, path: str = ".", *, recursive: bool = False) -> list[str]:
        entries = await self.machine.list(path, recursive=recursive, max_entries=10_000)
        return sorted(entry["path"] for entry in entries)


ENVIRONMENT: Mapping[str, str] = {"PATH": "/usr/bin:/bin", "HOME": WORKSPACE_DIR, "GREETING": "good day"}


async def _pieces(read: Callable[[int], Awaitable[bytes]]) -> Any:
    while piece := await read(65536):
        yield piece


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Waits for what another process does; the test's own time-out ends a condition that never comes."""
    while not await condition():
        await asyncio.sleep(0.01)


Body = Callable[[Any, Stage], Coroutine[Any, Any, None]]


def staged(body: Body) -> Callable[[ContractStage, Path], None]:
    """Turns `async def test_x(self, stage)` into a test pytest can run."""
    return _test(body, None)


def staged_with(need: Need) -> Callable[[Body], Callable[[ContractStage, Path], None]]:
    """As `staged`, for what a provider may lack: then the test is that it says so."""
    return lambda body: _test(body, need)


def _test(body: Body, need: Need | None) -> Callable[[ContractStage, Path], None]:
    def run(self: ContractStage, tmp_path: Path) -> None:
        async def on_stage(stage: Stage) -> None:
            if need is not None and not getattr(stage.provider.capabilities, need):
                await _refuses(stage, need)
            else:
                await body(self, stage)

        self.play(tmp_path, on_stage)

    # Not functools.wraps: pytest would follow it to the arguments of `body`.
    run.__name__, run.__doc__, run.__qualname__ = body.__name__, body.__doc__, body.__qualname__
    run.__module__ = body.__module__
    return run


async def _refuses(stage: Stage, need: Need) -> None:
    with pytest.raises(NotSupported):
        await _ask_for(stage, need)


async def _ask_for(stage: Stage, need: Need) -> None:
    match need:
        case "pty":
            await stage.start("echo hi", pty=(24, 80))
        case "ports":
            await stage.machine.connect(8080)
        case "listen":
            await stage.machine.listen(8080)
        case "watch":
            async for _ in stage.machine.watch(".", recursive=False):
                break


class ContractStage:
    """Base of the contract's parts. A subclass that names a provider gives `make_provider`."""

    gaps: ClassVar[Mapping[str, str]] = {}  # test name -> why this provider cannot keep that promise (strict xfail)

    def make_provider(self, folder: Path) -> Provider:
        """A provider that keeps what it needs below `folder`."""
        raise NotImplementedError("a subclass of ProviderContract gives make_provider")

    def make_second_provider(self, folder: Path, first: Provider) -> Provider:
        """The provider as another process of the same user would have it."""
        return self.make_provider(folder)

    def make_spec(self, folder: Path, provider: Provider) -> MachineSpec:
        sandbox_id = new_sandbox_id()
        return MachineSpec(
            sandbox_id=sandbox_id,
            folder=folder / "sandboxes" / sandbox_id,
            limits=replace(OPEN.limits, tmp_bytes=64 * 1024 * 1024),
            strict=False,
            host_uid=provider.allocate_uid(frozenset()),
        )

    def play(self, folder: Path, body: Callable[[Stage], Awaitable[None]]) -> None:
        async def run() -> None:
            provider = self.make_provider(folder)
            spec = self.make_spec(folder, provider)
            try:
                async with asyncio.timeout(HANG):
                    await body(Stage(provider, await provider.start(spec), spec))
            finally:
                await provider.aclose()
                await provider.destroy(spec)

        asyncio.run(run())

    def __init_subclass__(cls) -> None:
        """Raises: TypeError when a subclass changes a test, or names a gap that is none."""
        super().__init_subclass__()
        inherited = {
            name: value for base in cls.__mro__[1:] for name, value in vars(base).items() if name.startswith("test_")
        }
        changed = [name for name in vars(cls) if name in inherited]
        if changed:
            raise TypeError(f"{cls.__name__} overrides {', '.join(changed)}: declare a gap instead, with its reason")
        for name, reason in cls.gaps.items():
            if name not in inherited or not reason.strip():
                raise TypeError(f"{cls.__name__}.gaps: {name!r} is no test of the contract, or has no reason")
            setattr(cls, name, pytest.mark.xfail(strict=True, reason=reason)(_copy(inherited[name])))


def _copy(test: Callable[[ContractStage, Path], None]) -> Callable[[ContractStage, Path], None]:
    """A function of its own, so that a mark on it does not reach other providers."""

    def run(self: ContractStage, tmp_path: Path) -> None:
        test(self, tmp_path)

    assert inspect.isfunction(test)
    run.__name__, run.__doc__, run.__qualname__ = test.__name__, test.__doc__, test.__qualname__
    return run
