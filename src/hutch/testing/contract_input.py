"""The contract, part three: standard input and terminals."""

from __future__ import annotations

import asyncio

import pytest

from hutch.model.errors import HutchError, ProcessEnded
from hutch.providers.base import Process
from hutch.testing import contract_scripts as scripts
from hutch.testing.contract_stage import Collector, ContractStage, Stage, staged, staged_with


async def _write_on(process: Process) -> None:
    for _ in range(3):  # the first bytes may still find room
        await process.write(b"x" * 200_000)


class InputContract(ContractStage):
    @staged
    async def test_input_is_empty_unless_asked_for(self, stage: Stage) -> None:
        assert (await stage.execute("cat")).stdout == b""
        assert (await stage.execute(scripts.READ_LINE)).stdout == b"got \n"

    @staged
    async def test_what_is_written_arrives(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start("cat", sink, stdin=True)
        await process.write(b"one\n")
        await sink.shows(b"one\n")
        await process.write(bytes(range(256)))
        await process.close_input()
        assert (await process.wait()).exit_code == 0
        assert bytes(sink.stdout) == b"one\n" + bytes(range(256))

    @staged
    async def test_a_megabyte_goes_in_and_comes_out(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start("cat", sink, stdin=True)
        data = bytes(range(256)) * 4096
        await process.write(data)
        await process.close_input()
        await process.wait()
        assert bytes(sink.stdout) == data

    @staged
    async def test_closed_input_takes_no_more(self, stage: Stage) -> None:
        process = await stage.start("sleep 60", stdin=True)
        await process.close_input()
        await process.close_input()
        with pytest.raises(ProcessEnded):
            await process.write(b"more")
        await process.kill()

    @staged
    async def test_an_ended_process_takes_no_input(self, stage: Stage) -> None:
        process = await stage.start("true", stdin=True)
        await process.wait()
        with pytest.raises(ProcessEnded):
            await process.write(b"more")
        await process.close_input()

    @staged
    async def test_input_that_nobody_reads_any_more(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start(scripts.CLOSED_INPUT, sink, stdin=True)
        await sink.shows(b"ready\n")
        with pytest.raises(ProcessEnded):
            await _write_on(process)
        await process.kill()

    @staged
    async def test_a_writer_that_waits_for_room_can_give_up(self, stage: Stage) -> None:
        process = await stage.start("sleep 60", stdin=True)
        writing = asyncio.create_task(process.write(b"x" * 10_000_000))
        await asyncio.sleep(0.1)
        assert not writing.done()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await process.kill()
        assert (await process.wait()).signal == 9

    # --- terminals ---------------------------------------------------------------------------------------------

    @staged_with("pty")
    async def test_a_terminal_is_one(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start(scripts.ON_TERMINAL, sink, pty=(24, 80))
        assert (await process.wait()).exit_code == 0
        assert bytes(sink.stdout) == b"yes\r\n"

    @staged_with("pty")
    async def test_a_terminal_has_one_stream(self, stage: Stage) -> None:
        sink = Collector()
        await (await stage.start(scripts.BOTH_STREAMS, sink, pty=(24, 80))).wait()
        assert bytes(sink.stdout) == b"out\r\nerr\r\nout again\r\n"
        assert bytes(sink.stderr) == b""

    @staged_with("pty")
    async def test_without_one_there_is_none(self, stage: Stage) -> None:
        assert (await stage.execute(scripts.ON_TERMINAL)).exit.exit_code == 1

    @staged_with("pty")
    async def test_a_terminal_has_the_size_asked_for(self, stage: Stage) -> None:
        sink = Collector()
        await (await stage.start(scripts.TERMINAL_SIZE, sink, pty=(31, 97))).wait()
        assert bytes(sink.stdout) == b"31 97\r\n"

    @staged_with("pty")
    async def test_a_terminal_can_be_resized(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start(scripts.TERMINAL_RESIZED, sink, pty=(24, 80))
        await sink.shows(b"ready")
        await process.resize(50, 132)
        assert (await process.wait()).exit_code == 0
        assert b"50 132" in sink.stdout

    @staged_with("pty")
    async def test_what_is_typed_arrives_and_is_shown(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start(scripts.READ_LINE, sink, pty=(24, 80))
        await process.write(b"hello\r")
        await process.wait()
        assert bytes(sink.stdout).count(b"hello") == 2
        assert b"got hello\r\n" in sink.stdout

    @staged_with("pty")
    async def test_control_c_interrupts(self, stage: Stage) -> None:
        sink = Collector()
        process = await stage.start(scripts.TERMINAL_WAITS, sink, pty=(24, 80))
        await sink.shows(b"ready")
        await process.write(b"\x03")
        ended = await process.wait()
        assert (ended.exit_code, ended.signal) == (130, 2)
        assert b"survived" not in sink.stdout

    @staged_with("pty")
    async def test_a_terminal_is_killed_like_anything(self, stage: Stage) -> None:
        process = await stage.start("sleep 60 & sleep 60", pty=(24, 80))
        await process.kill()
        assert (await process.wait()).signal == 9

    @staged
    async def test_only_a_terminal_can_be_resized(self, stage: Stage) -> None:
        process = await stage.start("sleep 60")
        with pytest.raises(HutchError):
            await process.resize(10, 10)
        await process.kill()
