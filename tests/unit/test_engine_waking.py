"""Machines that stop or die, and start again from their files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hutch.engine.assemble import assemble
from hutch.engine.ownership import try_lock
from hutch.model.errors import PoolExhausted, SandboxUnavailable, StoreUnavailable
from hutch.testing.fake_provider import FakeProvider, FakeWorld
from tests.unit.engine_stage import HANG, TENANT, Stage, play, settings, staged, until

SLEEPY: dict[str, Any] = {"idle_stop_minutes": 0.1 / 60}


def test_an_idle_machine_stops_and_wakes_with_its_files(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t")
        await stage.write(sandbox, "a.txt", b"kept")
        machine = stage.machine(sandbox)
        await until(lambda: not machine.alive)
        await until(lambda: stage.engine.sandboxes.running == 0)
        assert (await stage.engine.sessions.info(TENANT, sandbox))["state"] == "stopped"
        result = await stage.run(sandbox, "cat a.txt")
        assert result["stdout"] == "kept"
        assert not result["session_recreated"]  # it was put to sleep, nothing was lost
        assert result["files_kept"]

    play(tmp_path, body, **SLEEPY)


def test_what_runs_keeps_its_machine_awake(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t")
        process = await stage.start(sandbox, "sleep 0.6; echo done")
        result = await stage.engine.processes.wait(TENANT, sandbox, process, 10)
        assert result is not None
        assert (result["stdout"], result["exit_code"]) == ("done\n", 0)

    play(tmp_path, body, **SLEEPY)


def test_an_open_connection_keeps_it_awake(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t")
        machine = stage.machine(sandbox)

        async def answer(stream: object) -> None:
            await asyncio.sleep(20)

        machine.serve(80, answer)
        connection = await stage.engine.ports.connect(TENANT, sandbox, 80)
        await asyncio.sleep(0.4)
        assert machine.alive
        await connection.aclose()
        await connection.aclose()  # once more is fine
        assert stage.live(sandbox).busy == 0
        await until(lambda: not machine.alive)

    play(tmp_path, body, **SLEEPY)


def test_without_aggressive_cleanup_it_stays(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t")
        await asyncio.sleep(0.4)
        assert stage.machine(sandbox).alive

    play(tmp_path, body, aggressive_cleanup=False, **SLEEPY)


def test_cwd_and_env_outlive_the_machine(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t")
        await stage.engine.files.mkdir(TENANT, sandbox, "sub", parents=False)
        await stage.engine.context.set(TENANT, sandbox, cwd="sub", env={"COLOUR": "blue"})
        machine = stage.machine(sandbox)
        await until(lambda: not machine.alive)
        assert (await stage.run(sandbox, "pwd; printenv COLOUR"))["stdout"] == "/workspace/sub\nblue\n"

    play(tmp_path, body, **SLEEPY)


def test_fifty_calls_wake_it_once(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t")
        stage.machine(sandbox).die("power cut")
        stage.provider.faults.delays["start"] = 0.05
        results = await asyncio.gather(*(stage.run(sandbox, f"echo {number}") for number in range(50)))
        assert [result["stdout"] for result in results] == [f"{number}\n" for number in range(50)]
        assert sum(result["session_recreated"] for result in results) == 1
        events = [event.event for event in await stage.engine.store.events(sandbox)]
        assert events.count("wake") == 1

    play(tmp_path, body)


def test_a_machine_that_died_between_two_commands_is_told_of(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t")
        await stage.write(sandbox, "a.txt", b"kept")
        stage.machine(sandbox).die("power cut")
        first, second = await stage.run(sandbox, "cat a.txt"), await stage.run(sandbox, "cat a.txt")
        assert (first["stdout"], first["session_recreated"], first["files_kept"]) == ("kept", True, True)
        assert (second["stdout"], second["session_recreated"]) == ("kept", False)

    play(tmp_path, body)


def test_a_machine_that_dies_in_mid_command(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t")
        machine = stage.machine(sandbox)
        command = asyncio.create_task(stage.run(sandbox, "echo before; sleep 20"))
        background = await stage.start(sandbox, "sleep 20")
        await until(lambda: len(machine.running()) >= 4)
        machine.die("power cut")
        with pytest.raises(SandboxUnavailable, match="files are kept") as caught:
            await command
        printed = stage.live(sandbox).process(caught.value.details["process_id"]).stdout.read(0, 100)
        assert printed == b"before\n"
        after = await stage.run(sandbox, "echo after")
        assert (after["stdout"], after["session_recreated"], after["files_kept"]) == ("after\n", True, True)
        ended = await stage.engine.processes.wait(TENANT, sandbox, background, 10)
        assert ended is not None
        assert ended["exit_code"] == 137

    play(tmp_path, body)


def test_a_new_start_that_fails_keeps_the_files_for_the_next(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t")
        await stage.write(sandbox, "a.txt", b"kept")
        stage.machine(sandbox).die("power cut")
        stage.provider.faults.fail_next("start", SandboxUnavailable("not now"))
        with pytest.raises(SandboxUnavailable, match="not now"):
            await stage.run(sandbox, "cat a.txt")
        assert stage.engine.sandboxes.running == 0
        result = await stage.run(sandbox, "cat a.txt")
        assert (result["stdout"], result["session_recreated"]) == ("kept", True)

    play(tmp_path, body)


def test_a_sleeper_finds_the_house_full(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sleeper = await stage.session("t1")
        machine = stage.machine(sleeper)
        await until(lambda: not machine.alive)
        await until(lambda: stage.engine.sandboxes.running == 0)
        other = await stage.session("t2")
        process = await stage.start(other, "sleep 20")
        with pytest.raises(PoolExhausted):
            await stage.run(sleeper, "echo hi")
        await stage.engine.processes.kill(TENANT, other, process)
        await stage.engine.sessions.close(TENANT, other)
        assert (await stage.run(sleeper, "echo hi"))["stdout"] == "hi\n"

    play(tmp_path, body, max_pool_size=1, **SLEEPY)


def test_files_survive_an_orderly_end(tmp_path: Path) -> None:
    world = FakeWorld()

    async def before(stage: Stage) -> None:
        sandbox = await stage.session("t")
        await stage.write(sandbox, "a.txt", b"kept")
        await stage.engine.context.set(TENANT, sandbox, cwd=None, env={"A": "1"})

    async def after(stage: Stage) -> None:
        result = await stage.run(await stage.session("t"), "cat a.txt; printenv A")
        assert (result["stdout"], result["session_recreated"]) == ("kept1\n", False)

    play(tmp_path, before, FakeProvider(world=world))
    play(tmp_path, after, FakeProvider(world=world))


async def _crash(folder: Path, world: FakeWorld, threads: int = 1, **changes: Any) -> None:
    """An engine that goes without a word, as by kill -9: its machines and rows stay, its locks are free."""
    engine = await assemble(settings(folder, **changes), provider := FakeProvider(world=world))
    stage = Stage(engine, provider)
    for number in range(threads):
        sandbox = await stage.session(f"t{number}")
        await stage.write(sandbox, "a.txt", b"kept")
        await stage.engine.context.set(TENANT, sandbox, cwd=None, env={"A": "1"})
        await stage.start(sandbox, "sleep 20")
    await until(lambda: engine.pool.spare == changes.get("pool_size", 0))
    await engine.sweeper.close()
    engine.sandboxes._steps.close()
    for live in engine.sandboxes.live.values():
        if live.lock is not None:
            live.lock.release()
    await engine.store.aclose()


def crash_then(
    folder: Path, after: Callable[[Stage, FakeWorld], Awaitable[None]], threads: int = 1, **changes: Any
) -> None:
    async def run() -> None:
        world = FakeWorld()
        await _crash(folder, world, threads, **changes)
        async with asyncio.timeout(HANG), staged(folder, FakeProvider(world=world)) as stage:
            await after(stage, world)

    asyncio.run(run())


def test_a_crash_keeps_files_and_context_and_ends_the_rest(tmp_path: Path) -> None:
    async def after(stage: Stage, world: FakeWorld) -> None:
        assert stage.engine.sandboxes.running == 0
        assert not any(machine.alive for machine in world.machines.values())
        for number in range(3):
            sandbox = await stage.session(f"t{number}")
            assert (await stage.run(sandbox, "cat a.txt; printenv A"))["stdout"] == "kept1\n"
        assert len(stage.folders()) == 3

    crash_then(tmp_path, after, threads=3)


def test_a_crash_leaves_no_spare_sandboxes_behind(tmp_path: Path) -> None:
    async def after(stage: Stage, world: FakeWorld) -> None:
        assert len(stage.folders()) == 1
        assert len(await stage.engine.store.sandboxes()) == 1

    crash_then(tmp_path, after, pool_size=2, min_pool_size=0)


@pytest.mark.parametrize("state", ["creating", "removing"])
def test_what_a_crash_broke_off_is_finished(tmp_path: Path, state: str) -> None:
    async def run() -> None:
        world = FakeWorld()
        await _crash(tmp_path, world)
        with contextlib.closing(sqlite3.connect(tmp_path / "hutch.db")) as connection, connection:
            connection.execute("UPDATE sandboxes SET state = ?", (state,))
        async with staged(tmp_path, FakeProvider(world=world)) as stage:
            assert not any(machine.alive for machine in world.machines.values())
            if state == "removing":
                assert stage.folders() == []
                assert await stage.engine.store.sandboxes() == []
            else:
                assert (await stage.run(await stage.session("t0"), "cat a.txt"))["stdout"] == "kept"

    asyncio.run(run())


def test_folders_that_nobody_knows_go_unless_somebody_has_them_or_just_makes_them(tmp_path: Path) -> None:
    folder = tmp_path / "sandboxes"
    for name in ("sbfree", "sblocked", ".sbhalf", ".sbyoung"):
        (folder / name).mkdir(parents=True)
    os.utime(folder / ".sbhalf", (time.time() - 1000,) * 2)
    lock = try_lock(folder / "sblocked")
    assert lock is not None

    async def body(stage: Stage) -> None:
        assert stage.folders() == [".sbyoung", "sblocked"]
        lock.release()

    play(tmp_path, body)


def test_recovery_goes_on_past_a_sandbox_that_makes_trouble(tmp_path: Path) -> None:
    async def run() -> None:
        world = FakeWorld()
        await _crash(tmp_path, world, 2)
        provider = FakeProvider(world=world)
        provider.faults.fail_next("sweep", SandboxUnavailable("stuck"))
        async with staged(tmp_path, provider) as stage:
            for number in (0, 1, 1, 0):
                with contextlib.suppress(SandboxUnavailable):  # of the one that was stuck: the failed start clears up
                    result = await stage.run(await stage.session(f"t{number}"), "cat a.txt")
            assert result["stdout"] == "kept"

    asyncio.run(run())


@pytest.mark.parametrize("stopped", [False, True])
def test_a_start_that_is_not_written_down_leaves_no_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    async def body(stage: Stage) -> None:
        if stopped:
            await stage.engine.sandboxes.stop(stage.live(await stage.session()))
        written = stage.engine.store.transition

        async def broken(*given: Any, **more: Any) -> bool:
            if given[3] == "started":
                raise StoreUnavailable("away for a moment")
            return await written(*given, **more)

        monkeypatch.setattr(stage.engine.store, "transition", broken)
        with pytest.raises(StoreUnavailable):
            await stage.run(await stage.session(), "true")
        assert [machine for machine in stage.provider.world.machines.values() if machine.alive] == []
        assert stage.engine.sandboxes.running == 0
        monkeypatch.setattr(stage.engine.store, "transition", written)
        assert (await stage.run(await stage.session(), "echo on"))["stdout"] == "on\n"

    play(tmp_path, body)
