"""The fake provider's own levers: registered commands, faults, death. The contract suite judges the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hutch.model.errors import SandboxUnavailable, WallMissing
from hutch.model.process import ProcessExit, StreamName
from hutch.model.template import OPEN
from hutch.providers.base import MachineSpec, SpawnRequest
from hutch.testing.fake_machine import FakeMachine
from hutch.testing.fake_process import Running
from hutch.testing.fake_provider import FakeProvider
from hutch.testing.fake_shell import UnknownCommand

HANG = 10.0


class Sink:
    def __init__(self, keep: int | None = None) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self._keep = keep
        self.fed = asyncio.Event()

    def feed(self, stream: StreamName, data: bytes) -> bool:
        (self.stdout if stream == "stdout" else self.stderr).extend(data)
        self.fed.set()
        return self._keep is None or len(self.stdout) < self._keep


def spec(folder: Path) -> MachineSpec:
    return MachineSpec("sbtest", folder / "sbtest", OPEN.limits, strict=False)


def bash(text: str) -> SpawnRequest:
    return SpawnRequest(argv=[None, "-c", text], env={"GREETING": "hello"}, cwd="/workspace")


def play(folder: Path, body: Callable[[FakeProvider, FakeMachine], Awaitable[None]]) -> None:
    async def run() -> None:
        provider = FakeProvider()
        machine = await provider.start(spec(folder))
        async with asyncio.timeout(HANG):
            await body(provider, machine)
        await provider.aclose()

    asyncio.run(run())


async def execute(machine: FakeMachine, text: str) -> tuple[ProcessExit, Sink]:
    sink = Sink()
    process = await machine.spawn(bash(text), sink)
    return await process.wait(), sink


@pytest.mark.parametrize(
    ("text", "code", "out"),
    [
        ("echo hi", 0, "hi\n"),
        ("echo 'a;b $c'", 0, "a;b $c\n"),
        ("echo one; exit 3; echo two", 3, "one\n"),
        ("false && echo no; echo yes", 0, "yes\n"),
        ("write a.txt hello; cat a.txt", 0, "hello"),
        ("echo x > a; echo y >> a; cat a", 0, "x\ny\n"),
        ("pwd; printenv GREETING", 0, "/workspace\nhello\n"),
        ("cat missing", 1, ""),
        ("frobnicate", 127, ""),
        ("sleep 0.01 && echo woke", 0, "woke\n"),
        ("sleep 60 & echo started", 0, "started\n"),
        ("cat", 0, ""),
    ],
)
def test_the_small_interpreter(tmp_path: Path, text: str, code: int, out: str) -> None:
    async def body(provider: FakeProvider, machine: FakeMachine) -> None:
        result, sink = await execute(machine, text)
        assert (result.exit_code, sink.stdout.decode()) == (code, out)
        assert not machine.running()

    play(tmp_path, body)


@pytest.mark.parametrize(
    "text", ["echo $HOME", "ls | wc", "for x in a; do echo; done", "echo *", "a=1 echo", "cd /tmp", "echo > a b"]
)
def test_what_it_does_not_know_is_refused_loudly(tmp_path: Path, text: str) -> None:
    async def body(provider: FakeProvider, machine: FakeMachine) -> None:
        with pytest.raises(UnknownCommand):
            await execute(machine, text)

    play(tmp_path, body)


def test_registered_commands_say_what_the_test_wants(tmp_path: Path) -> None:
    async def body(provider: FakeProvider, machine: FakeMachine) -> None:
        async def build(me: Running) -> int:
            me.out("building\n")
            me.err("warning\n")
            machine.tree.write("a.out", b"\x7fELF")
            return 2

        provider.on("make", build)
        provider.says("boom", limit="memory", code=137)
        result, sink = await execute(machine, "make")
        assert (result.exit_code, bytes(sink.stdout), bytes(sink.stderr)) == (2, b"building\n", b"warning\n")
        assert machine.tree.file("a.out").data == b"\x7fELF"
        assert (await execute(machine, "boom"))[0] == ProcessExit(exit_code=137, limit="memory")
        assert [request.argv[2] for request in provider.spawned] == ["make", "boom"]

    play(tmp_path, body)


def test_a_mistake_in_a_behaviour_reaches_the_one_who_waits(tmp_path: Path) -> None:
    async def body(provider: FakeProvider, machine: FakeMachine) -> None:
        async def broken(me: Running) -> int:
            raise KeyError("typo")

        provider.on("broken", broken)
        with pytest.raises(KeyError):
            await execute(machine, "broken")

    play(tmp_path, body)


def test_faults_come_when_asked_for(tmp_path: Path) -> None:
    async def run() -> None:
        provider = FakeProvider()
        provider.faults.fail_next("start", WallMissing("no seccomp"), SandboxUnavailable("no room"))
        with pytest.raises(WallMissing):
            await provider.start(spec(tmp_path))
        with pytest.raises(SandboxUnavailable):
            await provider.start(spec(tmp_path))
        machine = await provider.start(spec(tmp_path))
        provider.faults.always["open_read"] = SandboxUnavailable("the disk is gone")
        for _ in range(2):
            with pytest.raises(SandboxUnavailable):
                await machine.open_read("a")
        provider.faults.delays["spawn"] = 60
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await execute(machine, "echo hi")
        assert not machine.running()
        await provider.aclose()

    asyncio.run(run())


def test_death_loses_processes_and_keeps_files(tmp_path: Path) -> None:
    async def body(provider: FakeProvider, machine: FakeMachine) -> None:
        machine.tree.write("kept", b"1")
        process = await machine.spawn(bash("sleep 60"), Sink())
        machine.die("power cut")
        result = await process.wait()
        assert (result.exit_code, result.lost) == (137, True)
        assert await machine.wait_stopped() == "power cut"
        assert not machine.alive
        with pytest.raises(SandboxUnavailable, match="power cut"):
            await execute(machine, "echo hi")
        again = await provider.start(spec(tmp_path))
        assert again.tree.file("kept").data == b"1"

    play(tmp_path, body)


def test_what_cannot_be_killed_costs_the_machine(tmp_path: Path) -> None:
    async def body(provider: FakeProvider, machine: FakeMachine) -> None:
        async def stuck(me: Running) -> None:
            me.unkillable = True
            await me.forever()

        provider.on("stuck", stuck)
        process = await machine.spawn(bash("stuck"), Sink())
        await asyncio.sleep(0)
        await process.kill(grace=0.05)
        assert (await process.wait()).lost
        assert not machine.alive

    play(tmp_path, body)


def test_a_flood_goes_on_until_somebody_ends_it(tmp_path: Path) -> None:
    async def body(provider: FakeProvider, machine: FakeMachine) -> None:
        sink = Sink(keep=100_000)
        process = await machine.spawn(bash("yes"), sink)
        while len(sink.stdout) < 200_000:
            sink.fed.clear()
            await sink.fed.wait()
        await process.kill()
        assert (await process.wait()).signal == 9
        printed = len(sink.stdout)
        await asyncio.sleep(0.02)
        assert len(sink.stdout) == printed

    play(tmp_path, body)
