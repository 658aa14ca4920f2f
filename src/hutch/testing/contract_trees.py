"""The contract, part two: process trees, signals, and what is left running."""

from __future__ import annotations

import asyncio

import pytest

from hutch.model.errors import ProcessEnded
from hutch.testing import contract_scripts as scripts
from hutch.testing.contract_stage import Collector, ContractStage, Stage, staged, until


async def sleepers(stage: Stage) -> int:
    return int((await stage.execute(scripts.COUNT_SLEEPERS)).stdout)


class TreeContract(ContractStage):
    # --- leftovers ---------------------------------------------------------------------------------------------

    @staged
    async def test_leftovers_are_killed_and_named(self, stage: Stage) -> None:
        # The nap lets both become what they are called: until then they are copies of the shell.
        result = await stage.execute("sleep 60 & sleep 60 & sleep 0.3; echo started")
        assert (result.exit.exit_code, result.stdout) == (0, b"started\n")
        assert [killed.name for killed in result.exit.killed] == ["sleep", "sleep"]
        assert all(killed.pid > 1 for killed in result.exit.killed)
        assert await sleepers(stage) == 0

    @staged
    async def test_a_detached_leftover_is_killed_too(self, stage: Stage) -> None:
        result = await stage.execute(scripts.DETACHED)
        assert result.stdout == b"started\n"
        assert await sleepers(stage) == 0

    @staged
    async def test_leftovers_of_another_command_live_on(self, stage: Stage) -> None:
        other = await stage.start("sleep 60")
        await stage.execute("sleep 60 & echo started")
        await until(lambda: _is_one(stage))
        await other.kill()

    @staged
    async def test_kept_leftovers_live_and_work(self, stage: Stage) -> None:
        process = await stage.start(scripts.LATE_WRITER, leftovers="keep")
        ended = await process.wait()
        assert (ended.exit_code, ended.killed) == (0, ())

        async def written() -> bool:
            return "late.txt" in await stage.names() and await stage.read("late.txt") == b"done\n"

        await until(written)

    @staged
    async def test_kept_leftovers_do_not_hold_up_the_end(self, stage: Stage) -> None:
        process = await stage.start("sleep 60 & echo started", leftovers="keep")
        assert (await process.wait()).exit_code == 0
        await until(lambda: _is_one(stage))

    @staged
    async def test_kept_leftovers_end_by_kill(self, stage: Stage) -> None:
        process = await stage.start("sleep 60 & sleep 60 & echo started", leftovers="keep")
        await process.wait()
        await process.kill()
        assert await sleepers(stage) == 0

    # --- kill --------------------------------------------------------------------------------------------------

    @staged
    async def test_kill_ends_the_whole_tree(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start(scripts.FAMILY, sink)
        await sink.shows(b"ready\n")
        await process.kill()
        ended = await process.wait()
        assert (ended.exit_code, ended.signal, ended.lost) == (137, 9, False)
        assert await sleepers(stage) == 0

    @staged
    async def test_kill_ends_what_ignores_signals(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start(scripts.DEAF, sink)
        await sink.shows(b"ready\n")
        await process.signal(15, "tree")
        await process.signal(2, "tree")
        await process.kill()
        assert (await process.wait()).signal == 9
        assert await sleepers(stage) == 0

    @staged
    async def test_kill_ends_what_is_stopped(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start(scripts.STOP_SELF, sink)
        await sink.shows(b"ready\n")
        await process.kill()
        assert (await process.wait()).signal == 9
        assert b"went on" not in sink.stdout

    @staged
    async def test_kill_spares_the_neighbour_command(self, stage: Stage) -> None:
        one, other = await stage.start("sleep 60"), await stage.start("sleep 0.5; exit 9")
        await one.kill()
        assert (await other.wait()).exit_code == 9
        assert stage.machine.alive

    @staged
    async def test_kill_after_the_end_is_harmless(self, stage: Stage) -> None:
        process = await stage.start("exit 3")
        await process.wait()
        await process.kill()
        assert (await process.wait()).exit_code == 3

    @staged
    async def test_nothing_is_fed_after_the_end(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start("yes", sink)
        await sink.shows(b"y\n")
        await process.kill()
        await process.wait()
        fed = len(sink.stdout)
        await asyncio.sleep(0.1)
        assert len(sink.stdout) == fed

    # --- signals -----------------------------------------------------------------------------------------------

    @staged
    async def test_a_signal_ends_a_process(self, stage: Stage) -> None:
        process = await stage.start("sleep 60")
        await process.signal(15, "tree")
        ended = await process.wait()
        assert (ended.exit_code, ended.signal) == (143, 15)

    @staged
    async def test_a_signal_can_be_caught(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start(scripts.CATCHES, sink)
        await sink.shows(b"ready\n")
        await process.signal(10, "process")
        assert (await process.wait()).exit_code == 7
        assert bytes(sink.stdout) == b"ready\ngot\n"

    @staged
    async def test_scope_process_reaches_only_the_first(self, stage: Stage) -> None:
        assert b"caught" in (shown := await self._terminate(stage, scripts.CATCHES_BEFORE_NAP, "process"))
        assert b"after 0\n" in shown

    @staged
    async def test_scope_group_reaches_its_group(self, stage: Stage) -> None:
        assert b"after 143\n" in await self._terminate(stage, scripts.CATCHES_BEFORE_SLEEP, "group")

    @staged
    async def test_scope_tree_reaches_those_who_left_the_group(self, stage: Stage) -> None:
        assert b"after 143\n" in await self._terminate(stage, scripts.CATCHES_BEFORE_FAR_SLEEP, "tree")

    async def _terminate(self, stage: Stage, text: str, scope: str) -> bytes:
        sink = Collector()
        process = await stage.start(text, sink)
        await sink.shows(b"ready\n")
        if "sleep 60" in text:
            await until(lambda: _is_one(stage))
        await process.signal(15, "process" if scope == "process" else "group" if scope == "group" else "tree")
        await process.wait()
        return bytes(sink.stdout)

    @staged
    async def test_a_signal_after_the_end_says_so(self, stage: Stage) -> None:
        process = await stage.start("true")
        await process.wait()
        with pytest.raises(ProcessEnded):
            await process.signal(15, "process")

    # --- calls that are given up -------------------------------------------------------------------------------

    @staged
    async def test_a_start_that_is_given_up_leaves_nothing(self, stage: Stage) -> None:
        for turns in range(12):
            starting = asyncio.create_task(stage.start("sleep 60"))
            for _ in range(turns):
                await asyncio.sleep(0)
            if not starting.cancel():
                await starting.result().kill()
                continue
            try:
                await (await starting).kill()
            except asyncio.CancelledError:
                pass

        async def none_left() -> bool:
            return await sleepers(stage) == 0

        await until(none_left)
        assert (await stage.execute("echo hi")).stdout == b"hi\n"

    @staged
    async def test_a_kill_that_is_given_up_can_be_repeated(self, stage: Stage) -> None:
        process = await stage.start("sleep 60")
        killing = asyncio.create_task(process.kill())
        await asyncio.sleep(0)
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
        await process.kill()
        assert (await process.wait()).exit_code == 137


async def _is_one(stage: Stage) -> bool:
    return await sleepers(stage) == 1
