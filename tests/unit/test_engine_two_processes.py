"""Two engines on one data folder, as two processes have it: one sandbox for a thread, and neither ends the other's."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from hutch.model.errors import SessionExpiredError
from hutch.testing.fake_provider import FakeProvider, FakeWorld
from tests.unit.engine_stage import TENANT, staged, until


def test_two_engines_on_one_folder_share_a_thread(tmp_path: Path) -> None:
    world = FakeWorld()

    async def run() -> None:
        async with (
            staged(tmp_path, FakeProvider(world=world)) as one,
            staged(tmp_path, FakeProvider(world=world)) as two,
        ):
            ours, theirs = await asyncio.gather(one.session("t"), two.session("t"))
            assert ours == theirs
            assert len([machine for machine in world.machines.values() if machine.alive]) == 1
            await one.write(ours, "a.txt", b"from one")
            assert (await two.run(theirs, "cat a.txt"))["stdout"] == "from one"
            await two.engine.sessions.close(TENANT, theirs)
            with pytest.raises(SessionExpiredError):
                await one.run(ours, "echo hi")
            assert one.folders() == []

    asyncio.run(run())


def test_fifty_callers_of_two_engines_get_one_sandbox(tmp_path: Path) -> None:
    world = FakeWorld()

    async def run() -> None:
        async with (
            staged(tmp_path, FakeProvider(world=world)) as one,
            staged(tmp_path, FakeProvider(world=world)) as two,
        ):
            found = await asyncio.gather(*((one, two)[number % 2].session("t") for number in range(50)))
            assert len(set(found)) == 1
            await until(lambda: len(one.folders()) == 1)
            assert len(await one.engine.store.sandboxes()) == 1

    asyncio.run(run())


def test_a_second_engine_takes_over_when_the_first_ends(tmp_path: Path) -> None:
    world = FakeWorld()

    async def run() -> None:
        async with staged(tmp_path, FakeProvider(world=world)) as two:
            async with staged(tmp_path, FakeProvider(world=world)) as one:
                sandbox = await one.session("t")
                await one.write(sandbox, "a.txt", b"kept")
                assert (await two.run(await two.session("t"), "cat a.txt"))["stdout"] == "kept"
            assert (await two.run(sandbox, "cat a.txt"))["stdout"] == "kept"

    asyncio.run(run())


def test_recovery_leaves_what_another_engine_runs_alone(tmp_path: Path) -> None:
    world = FakeWorld()

    async def run() -> None:
        async with staged(tmp_path, FakeProvider(world=world)) as one:
            sandbox = await one.session("t")
            command = asyncio.create_task(one.run(sandbox, "sleep 0.3; echo whole"))
            async with staged(tmp_path, FakeProvider(world=world)):
                assert (await command)["stdout"] == "whole\n"
            assert one.machine(sandbox).alive

    asyncio.run(run())


def test_who_runs_a_sandbox_does_not_end_it_under_another_process(tmp_path: Path) -> None:
    world = FakeWorld()

    async def run() -> None:
        async with (
            staged(tmp_path, FakeProvider(world=world)) as one,
            staged(tmp_path, FakeProvider(world=world)) as two,
        ):
            sandbox = await one.session("t", timeout_minutes=1 / 60)
            await one.write(sandbox, "a.txt", b"kept")
            await asyncio.sleep(0.8)
            result = await two.run(await two.session("t", timeout_minutes=1 / 60), "sleep 0.8; cat a.txt")
            assert result["stdout"] == "kept"
            assert one.folders() == [sandbox]

    asyncio.run(run())


def test_a_removal_and_a_use_by_another_process_never_both_go_on(tmp_path: Path) -> None:
    world = FakeWorld()

    async def run() -> None:
        async with (
            staged(tmp_path, FakeProvider(world=world), cleanup_interval=60) as one,
            staged(tmp_path, FakeProvider(world=world), cleanup_interval=60) as two,
        ):
            used, gone = await one.session("used"), await one.session("gone")
            for name, sandbox in (("used", used), ("gone", gone)):
                assert await two.session(name) == sandbox
                two.live(sandbox).use_shown = 0.0
            await two.run(used, "true")
            assert not await one.engine.sandboxes.expire(one.live(used))
            assert (await two.run(used, "echo on"))["stdout"] == "on\n"
            one.live(gone).last_activity = time.time()  # as its row says: the sweeper reads it before it acts
            assert await one.engine.sandboxes.expire(one.live(gone))
            with pytest.raises(SessionExpiredError):
                await two.run(gone, "true")

    asyncio.run(run())
