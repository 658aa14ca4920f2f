"""The sweeper: what is idle goes, what is used stays, and one that makes trouble does not hold up the rest."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from hutch.model.errors import SandboxUnavailable, SessionExpiredError, StoreUnavailable
from hutch.testing.fake_provider import FakeProvider, FakeWorld
from tests.unit.engine_stage import TENANT, Stage, play, staged, until

SHORT = 0.25 / 60  # minutes


def test_an_idle_session_expires_and_its_files_go(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session(timeout_minutes=SHORT)
        await stage.write(sandbox, "a", b"x")
        await until(lambda: stage.folders() == [] and stage.engine.sandboxes.running == 0)
        with pytest.raises(SessionExpiredError):
            await stage.run(sandbox, "echo hi")
        fresh = await stage.session()
        assert fresh != sandbox
        assert (await stage.engine.files.list_files(TENANT, fresh))["total_files"] == 0

    play(tmp_path, body)


def test_use_arms_the_time_anew(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session(timeout_minutes=1 / 60)
        begun = time.monotonic()
        while time.monotonic() - begun < 2:
            await stage.run(sandbox, "echo hi")
            await asyncio.sleep(0.05)
        assert stage.folders() == [sandbox]

    play(tmp_path, body)


def test_what_runs_arms_it_too(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session(timeout_minutes=SHORT)
        process = await stage.start(sandbox, "sleep 0.8; echo done")
        ended = await stage.engine.processes.wait(TENANT, sandbox, process, 10)
        assert ended is not None
        assert ended["stdout"] == "done\n"

    play(tmp_path, body)


def test_an_expired_session_is_not_used_even_before_it_is_swept(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session(timeout_minutes=SHORT)
        await stage.engine.sweeper.close()
        await asyncio.sleep(0.4)
        with pytest.raises(SessionExpiredError):
            await stage.run(sandbox, "echo hi")
        assert await stage.session() != sandbox
        assert len(stage.folders()) == 1

    play(tmp_path, body)


def test_each_session_has_its_own_time(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        short = await stage.session("short", timeout_minutes=SHORT)
        long = await stage.session("long")
        await until(lambda: stage.folders() == [long])
        await until(lambda: short not in stage.engine.sandboxes.live)

    play(tmp_path, body, cleanup_interval=300.0)


def test_one_that_cannot_be_removed_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        stage.provider.faults.fail_next("destroy", *(SandboxUnavailable("stuck") for _ in range(2)))
        for number in range(4):
            await stage.session(f"t{number}", timeout_minutes=SHORT)
        await until(lambda: stage.folders() == [])

    play(tmp_path, body)


def test_a_store_that_fails_for_a_while_does_not_end_the_sweeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(stage: Stage) -> None:
        failures = 0

        async def fails(*_: Any) -> Any:
            nonlocal failures
            failures += 1
            raise StoreUnavailable("locked") if failures % 2 else ValueError("a mistake of ours")

        with monkeypatch.context() as patch:
            patch.setattr(stage.engine.store, "due", fails)
            await stage.session(timeout_minutes=SHORT)
            await until(lambda: failures >= 4)
        await until(lambda: stage.folders() == [])

    play(tmp_path, body)


def test_sessions_of_a_process_that_is_gone_expire_elsewhere(tmp_path: Path) -> None:
    world = FakeWorld()

    async def run() -> None:
        async with staged(tmp_path, FakeProvider(world=world)) as one:
            sandbox = await one.session(timeout_minutes=SHORT)
            assert one.folders() == [sandbox]
        async with staged(tmp_path, FakeProvider(world=world)) as two:
            await until(lambda: two.folders() == [])
            while await two.engine.store.sandboxes():
                await asyncio.sleep(0.01)

    asyncio.run(run())


def test_what_another_process_runs_is_not_swept_from_here(tmp_path: Path) -> None:
    world = FakeWorld()

    async def run() -> None:
        async with (
            staged(tmp_path, FakeProvider(world=world)) as one,
            staged(tmp_path, FakeProvider(world=world)) as two,
        ):
            sandbox = await one.session(timeout_minutes=SHORT)
            process = await one.start(sandbox, "sleep 1; echo done")
            ended = await one.engine.processes.wait(TENANT, sandbox, process, 10)
            assert ended is not None
            assert ended["stdout"] == "done\n"
            assert two.engine.sandboxes.live == {}

    asyncio.run(run())


def test_fifty_sessions_that_expire_together_leave_nothing(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await asyncio.gather(*(stage.session(f"t{number}", timeout_minutes=SHORT) for number in range(50)))
        await until(lambda: stage.folders() == [] and stage.engine.sandboxes.live == {})
        assert await stage.engine.store.sandboxes() == []

    play(tmp_path, body)
