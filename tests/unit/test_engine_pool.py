"""Sandboxes made ahead: how many there are, who gets them, and when they make place."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hutch.model.errors import PoolExhausted, SandboxUnavailable
from hutch.testing.fake_provider import FakeProvider, FakeWorld
from tests.unit.engine_stage import TENANT, Stage, play, until


def _full(stage: Stage, size: int) -> bool:
    return stage.engine.pool.spare == size


def test_without_a_size_nothing_is_made_ahead(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.session("t", template="bash")
        await asyncio.sleep(0.05)
        assert (stage.engine.pool.spare, stage.engine.sandboxes.running) == (0, 1)

    play(tmp_path, body)


def test_the_pool_fills_up_and_a_session_takes_from_it(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await until(lambda: _full(stage, 3))
        ready = set(stage.folders())
        sandbox = await stage.session("t", template="bash")
        assert sandbox in ready
        assert stage.engine.pool.spare == 2
        assert (await stage.run(sandbox, "echo hi"))["stdout"] == "hi\n"

    play(tmp_path, body, pool_size=3, min_pool_size=0)


def test_a_taken_sandbox_has_the_times_of_its_session(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await until(lambda: _full(stage, 1))
        sandbox = await stage.session("t", template="bash", timeout_minutes=7)
        (row,) = await stage.engine.store.sandboxes()
        assert (row.sandbox_id, row.pooled, row.idle_seconds, row.tenant) == (sandbox, False, 420, TENANT)
        assert 0 < row.deadline_at - row.last_activity_at <= 421

    play(tmp_path, body, pool_size=1, min_pool_size=0)


def test_a_refill_goes_up_to_the_minimum(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await until(lambda: _full(stage, 4))
        await asyncio.gather(*(stage.session(f"t{number}", template="bash") for number in range(4)))
        await until(lambda: _full(stage, 2))
        await asyncio.sleep(0.1)
        assert stage.engine.pool.spare == 2

    play(tmp_path, body, pool_size=4, min_pool_size=2, pool_refill_delay=0.05)


def test_other_templates_do_not_take_from_it(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await until(lambda: _full(stage, 1))
        await stage.session("t", template="open")
        assert stage.engine.pool.spare == 1

    play(tmp_path, body, pool_size=1, min_pool_size=0)


def test_a_spare_one_makes_place_for_a_session(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await until(lambda: _full(stage, 2))
        await stage.session("t1", template="open")
        await stage.session("t2", template="open")
        assert stage.engine.pool.spare == 0
        with pytest.raises(PoolExhausted, match="Pool at max capacity"):
            await stage.session("t3", template="open")
        await until(lambda: len(stage.folders()) == 2)

    play(tmp_path, body, pool_size=2, min_pool_size=0, max_pool_size=2)


def test_a_full_house_does_not_stop_later_refills(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await until(lambda: _full(stage, 1))
        first = await stage.session("t1", template="bash")
        await stage.session("t2", template="bash")  # the refill finds no place
        await asyncio.sleep(0.05)
        await stage.engine.sessions.close(TENANT, first)
        await stage.session("t3", template="open")
        assert stage.engine.sandboxes.running == 2

    play(tmp_path, body, pool_size=1, min_pool_size=1, max_pool_size=2, pool_refill_delay=0.0)


def test_a_spare_one_that_died_is_not_handed_out(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await until(lambda: _full(stage, 1))
        (dead,) = stage.folders()
        stage.machine(dead).die("power cut")
        sandbox = await stage.session("t", template="bash")
        assert sandbox != dead
        assert stage.folders() == [sandbox]

    play(tmp_path, body, pool_size=1, min_pool_size=0)


def test_a_used_sandbox_never_comes_back(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await until(lambda: _full(stage, 1))
        used = await stage.session("t", template="bash")
        await stage.engine.sessions.close(TENANT, used)
        await until(lambda: _full(stage, 1))
        assert used not in stage.folders()

    play(tmp_path, body, pool_size=1, min_pool_size=1, pool_refill_delay=0.0)


def test_a_start_that_fails_does_not_end_the_engine(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        assert (await stage.run(await stage.session("t"), "echo hi"))["exit_code"] == 0
        assert stage.engine.pool.spare == 0

    provider = FakeProvider()
    provider.faults.fail_next("start", SandboxUnavailable("not now"))
    play(tmp_path, body, provider, pool_size=2, min_pool_size=0)


def test_the_end_of_the_engine_leaves_no_spare_ones(tmp_path: Path) -> None:
    world = FakeWorld()

    async def body(stage: Stage) -> None:
        await until(lambda: _full(stage, 3))

    play(tmp_path, body, FakeProvider(world=world), pool_size=3, min_pool_size=0)
    assert list((tmp_path / "sandboxes").iterdir()) == []
    assert not any(machine.alive for machine in world.machines.values())


def test_the_end_in_the_middle_of_filling_leaves_none_either(tmp_path: Path) -> None:
    world = FakeWorld()
    provider = FakeProvider(world=world)
    provider.faults.delays["start"] = 0.03

    async def body(stage: Stage) -> None:
        await until(lambda: stage.engine.pool.spare >= 1)

    play(tmp_path, body, provider, pool_size=50, min_pool_size=0)
    assert list((tmp_path / "sandboxes").iterdir()) == []
    assert not any(machine.alive for machine in world.machines.values())
