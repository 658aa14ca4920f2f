"""The contract, part one: commands, how they end, and what they print."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hutch.model.errors import SandboxFileNotFound
from hutch.providers.base import SpawnRequest
from hutch.testing import contract_scripts as scripts
from hutch.testing.contract_stage import ENVIRONMENT, Collector, ContractStage, Stage, staged


class ProcessContract(ContractStage):
    # --- how a command ends ------------------------------------------------------------------------------------

    @staged
    async def test_a_command_prints_and_ends(self, stage: Stage) -> None:
        result = await stage.execute("echo hi")
        assert (result.stdout, result.stderr) == (b"hi\n", b"")
        assert (result.exit.exit_code, result.exit.signal, result.exit.killed) == (0, None, ())
        assert (result.exit.limit, result.exit.lost) == (None, False)

    @staged
    async def test_an_exit_code_is_a_result(self, stage: Stage) -> None:
        for code in (1, 3, 255):
            assert (await stage.execute(f"exit {code}")).exit.exit_code == code

    @staged
    async def test_an_unknown_word_is_a_result(self, stage: Stage) -> None:
        result = await stage.execute("no-such-program")
        assert result.exit.exit_code == 127
        assert b"no-such-program" in result.stderr

    @staged
    async def test_a_signal_is_128_and_its_number(self, stage: Stage) -> None:
        ended = (await stage.execute(scripts.TERMINATE_SELF)).exit
        assert (ended.exit_code, ended.signal) == (143, 15)
        ended = (await stage.execute(scripts.KILL_SELF)).exit
        assert (ended.exit_code, ended.signal, ended.lost) == (137, 9, False)

    @staged
    async def test_the_next_command_works_whatever_the_last_one_did(self, stage: Stage) -> None:
        await stage.execute(scripts.KILL_SELF)
        await stage.execute(scripts.CHANGED_SHELL)
        result = await stage.execute(scripts.SHOW_CHANGES)
        assert result.stdout == b"nothing /workspace\n"

    @staged
    async def test_what_it_used_is_told(self, stage: Stage) -> None:
        ended = (await stage.execute(scripts.NUMBERS)).exit
        assert ended.cpu_ms >= 0
        assert ended.max_rss_bytes >= 0

    @staged
    async def test_waiting_again_gives_the_same_answer(self, stage: Stage) -> None:
        process = await stage.start("exit 5")
        answers = await asyncio.gather(process.wait(), process.wait())
        assert [answer.exit_code for answer in [*answers, await process.wait()]] == [5, 5, 5]

    @staged
    async def test_one_who_stops_waiting_disturbs_nobody(self, stage: Stage) -> None:
        process = await stage.start("sleep 0.3; exit 6")
        impatient = asyncio.create_task(process.wait())
        await asyncio.sleep(0.05)
        impatient.cancel()
        assert (await process.wait()).exit_code == 6

    # --- what it is given --------------------------------------------------------------------------------------

    @staged
    async def test_arguments_arrive_as_they_are(self, stage: Stage) -> None:
        words = ["", "two words", "'\"$HOME`", "new\nline", "é€", "-c", "*"]
        sink = Collector()
        request = SpawnRequest(argv=[None, "-c", scripts.ARGUMENTS, "name", *words], env=ENVIRONMENT, cwd="/workspace")
        await (await stage.machine.spawn(request, sink)).wait()
        assert bytes(sink.stdout).decode().split("\0")[:-1] == words

    @staged
    async def test_a_program_runs_without_a_shell(self, stage: Stage) -> None:
        sink = Collector()
        request = SpawnRequest(argv=["echo", "$HOME;", "x"], env=ENVIRONMENT, cwd="/workspace")
        assert (await (await stage.machine.spawn(request, sink)).wait()).exit_code == 0
        assert bytes(sink.stdout) == b"$HOME; x\n"

    @staged
    async def test_a_program_that_does_not_exist_is_the_callers_error(self, stage: Stage) -> None:
        for program in ("no-such-program", "/usr/bin/no-such-program"):
            with pytest.raises(SandboxFileNotFound):
                await stage.machine.spawn(SpawnRequest([program], ENVIRONMENT, "/workspace"), Collector())

    @staged
    async def test_it_runs_in_the_folder_asked_for(self, stage: Stage) -> None:
        await stage.machine.mkdir("sub/folder", parents=True)
        assert (await stage.execute("pwd")).stdout == b"/workspace\n"
        assert (await stage.execute("pwd", cwd="/workspace/sub/folder")).stdout == b"/workspace/sub/folder\n"

    @staged
    async def test_a_folder_that_does_not_exist_is_the_callers_error(self, stage: Stage) -> None:
        with pytest.raises(SandboxFileNotFound):
            await stage.execute("echo hi", cwd="/workspace/missing")

    @staged
    async def test_it_sees_the_environment_it_is_given(self, stage: Stage) -> None:
        assert (await stage.execute("printenv GREETING")).stdout == b"good day\n"

    def test_it_sees_nothing_of_our_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async def body(stage: Stage) -> None:
            shown = (await stage.execute(scripts.VARIABLES)).stdout
            assert b"GREETING" in shown
            assert b"HUTCH_CONTRACT" not in shown

        monkeypatch.setenv("HUTCH_CONTRACT_SECRET", "do not tell")
        self.play(tmp_path, body)

    @staged
    async def test_the_pid_is_the_one_it_sees_itself(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start(scripts.OWN_PID, sink)
        await process.wait()
        assert process.pid == int(bytes(sink.stdout)) > 1

    # --- what it prints ----------------------------------------------------------------------------------------

    @staged
    async def test_the_two_streams_stay_apart(self, stage: Stage) -> None:
        result = await stage.execute(scripts.BOTH_STREAMS)
        assert (result.stdout, result.stderr) == (b"out\nout again\n", b"err\n")

    @staged
    async def test_output_keeps_its_order_and_is_whole(self, stage: Stage) -> None:
        result = await stage.execute(scripts.NUMBERS)
        assert result.stdout == b"".join(b"%d\n" % number for number in range(20000))

    @staged
    async def test_a_megabyte_without_a_line_end(self, stage: Stage) -> None:
        assert (await stage.execute(scripts.MEGABYTE)).stdout == b" " * 999_999 + b"x"

    @staged
    async def test_every_byte_passes(self, stage: Stage) -> None:
        assert (await stage.execute(scripts.ALL_BYTES)).stdout == bytes(range(256))

    @staged
    async def test_output_comes_while_it_runs(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start("echo early; sleep 60", sink)
        await sink.shows(b"early\n")
        await process.kill()

    @staged
    async def test_nothing_printed_is_nothing_fed(self, stage: Stage) -> None:
        result = await stage.execute("true")
        assert (result.stdout, result.stderr) == (b"", b"")

    @staged
    async def test_closed_output_is_no_end(self, stage: Stage) -> None:
        assert (await stage.execute(scripts.CLOSED_OUTPUT)).exit.exit_code == 4

    @staged
    async def test_output_that_nobody_keeps_does_not_hold_it_up(self, stage: Stage) -> None:
        sink = Collector(keep=False)
        process = await stage.start(scripts.MEGABYTE, sink)
        assert (await process.wait()).exit_code == 0

    # --- many at once ------------------------------------------------------------------------------------------

    @staged
    async def test_many_at_once_each_get_their_own(self, stage: Stage) -> None:
        results = await asyncio.gather(*(stage.execute(f"echo {n}; exit {n}") for n in range(30)))
        assert [(result.stdout, result.exit.exit_code) for result in results] == [(b"%d\n" % n, n) for n in range(30)]

    @staged
    async def test_a_busy_one_does_not_hold_up_another(self, stage: Stage) -> None:
        flood = await stage.start("yes", Collector(keep=False))
        for _ in range(5):
            assert (await stage.execute("echo hi")).stdout == b"hi\n"
        await flood.kill()
