"""What is kept of output, how it is decoded, and what it costs."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from hutch.engine.output import (
    MEMORY_BYTES,
    SpoolBudget,
    StreamLog,
    command_budget,
    decode,
    session_budget,
    whole_characters,
)
from hutch.engine.process_log import ProcessLog
from hutch.model.limits import MIB, OUTPUT_BYTES, SPOOL_COMMAND_BYTES, SPOOL_SESSION_BYTES
from hutch.model.process import ProcessExit, ProcessSpec


def log_in(folder: Path) -> ProcessLog:
    return ProcessLog.new(ProcessSpec(command="x"), session_budget(), folder)


class TestDecoding:
    @given(some.text(), some.integers(0, 4))
    def test_a_cut_anywhere_loses_at_most_the_cut_character(self, text: str, back: int) -> None:
        data = text.encode("utf-8", "ignore")
        kept = data[: max(0, len(data) - back)]
        whole = data.decode()
        assert whole.startswith(decode(kept, complete=False))
        assert len(whole_characters(kept)) >= len(kept) - 3

    @given(some.binary())
    def test_nothing_raises_and_complete_keeps_every_byte_visible(self, data: bytes) -> None:
        assert decode(data, complete=True) == data.decode("utf-8", "replace")
        assert data.startswith(whole_characters(data))

    def test_what_is_no_text_shows_as_replacement(self) -> None:
        assert decode(b"a\xff\xfeb", complete=True) == "a\ufffd\ufffdb"

    def test_line_ends_stay_as_they_are(self) -> None:
        assert decode(b"a\r\nb\rc\n", complete=True) == "a\r\nb\rc\n"


class TestStreamLog:
    def test_small_output_needs_no_file(self, tmp_path: Path) -> None:
        stream = StreamLog(session_budget(), tmp_path / "missing")
        assert stream.append(b"x" * MEMORY_BYTES)
        assert stream.read(0, 10**9) == b"x" * MEMORY_BYTES

    def test_large_output_is_read_back_at_any_offset(self, tmp_path: Path) -> None:
        stream = StreamLog(session_budget(), tmp_path)
        data = os.urandom(3 * MEMORY_BYTES)
        for start in range(0, len(data), 1000):
            assert stream.append(data[start : start + 1000])
        for offset in (0, 1, MEMORY_BYTES - 1, MEMORY_BYTES, len(data) - 1, len(data), len(data) + 5):
            assert stream.read(offset, 5000) == data[offset : offset + 5000]
        assert list(tmp_path.iterdir()) == []  # nameless: a crash leaves nothing
        stream.close()
        stream.close()
        assert stream.read(0, 10) == b""

    def test_a_budget_once_used_up_leaves_no_holes(self, tmp_path: Path) -> None:
        budget = SpoolBudget(10)
        stream = StreamLog(budget, tmp_path)
        assert stream.append(b"12345678")
        assert not stream.append(b"abcdef")
        assert not stream.append(b"z")
        assert (stream.kept, stream.total, stream.read(0, 99)) == (10, 15, b"12345678ab")
        assert budget.left == 0

    def test_a_full_disk_is_counted_not_raised(self, tmp_path: Path) -> None:
        stream = StreamLog(session_budget(), tmp_path / "missing")
        assert not stream.append(b"x" * (MEMORY_BYTES + 1))
        assert stream.total == MEMORY_BYTES + 1
        assert stream.kept == 0

    def test_two_streams_share_a_budget_and_give_it_back(self, tmp_path: Path) -> None:
        session = session_budget()
        budget = command_budget(session)
        out, err = StreamLog(budget, tmp_path), StreamLog(budget, tmp_path)
        out.append(b"x" * 1000)
        err.append(b"x" * 500)
        assert (session.left, budget.left) == (SPOOL_SESSION_BYTES - 1500, SPOOL_COMMAND_BYTES - 1500)
        budget.give_back()
        budget.give_back()
        assert session.left == SPOOL_SESSION_BYTES


class TestResults:
    def test_a_result_holds_ten_mebibytes_of_each_stream(self, tmp_path: Path) -> None:
        log = log_in(tmp_path)
        for _ in range(12):
            log.feed("stdout", b"o" * MIB)
        log.feed("stderr", b"e" * OUTPUT_BYTES)
        log.finish(ProcessExit(0))
        result = log.result()
        assert (len(result["stdout"]), result["stdout_bytes"], result["truncated"]) == (OUTPUT_BYTES, 12 * MIB, True)
        assert (len(result["stderr"]), result["stderr_bytes"]) == (OUTPUT_BYTES, OUTPUT_BYTES)
        assert (result["spooled_bytes"], result["limit"]) == (22 * MIB, None)
        log.close()

    def test_a_character_is_not_cut_where_a_result_is(self, tmp_path: Path) -> None:
        log = log_in(tmp_path)
        log.feed("stdout", b"x" * (OUTPUT_BYTES - 1) + "ü".encode() * 10)
        log.finish(ProcessExit(0))
        assert log.result()["stdout"] == "x" * (OUTPUT_BYTES - 1)
        log.close()

    def test_a_character_that_comes_in_two_pieces_is_whole(self, tmp_path: Path) -> None:
        log = log_in(tmp_path)
        for byte in "aü🦊".encode():
            log.feed("stdout", bytes([byte]))
        log.finish(ProcessExit(0))
        assert log.result()["stdout"] == "aü🦊"

    def test_what_is_dropped_is_a_limit_and_is_counted(self, tmp_path: Path) -> None:
        log = log_in(tmp_path)
        piece = b"x" * MIB
        kept = [log.feed("stdout", piece) for _ in range(70)]
        assert kept == [True] * 64 + [False] * 6
        log.finish(ProcessExit(0))
        result = log.result()
        assert (result["limit"], result["truncated"]) == ("output", True)
        assert (result["stdout_bytes"], result["spooled_bytes"]) == (70 * MIB, 64 * MIB)
        log.close()

    def test_a_timeout_has_one_exit_code(self, tmp_path: Path) -> None:
        log = log_in(tmp_path)
        log.timed_out = True
        log.finish(ProcessExit(137, signal=9, limit="cpu"))
        assert (log.result()["exit_code"], log.exit_code, log.result()["limit"]) == (124, 124, "cpu")

    def test_a_limit_hit_first_is_the_one_named(self, tmp_path: Path) -> None:
        log = log_in(tmp_path)
        log.limit = "workspace"
        log.finish(ProcessExit(137, signal=9, limit="memory"))
        assert log.result()["limit"] == "workspace"

    def test_a_flood_costs_no_memory(self, tmp_path: Path) -> None:
        tracemalloc.start()
        try:
            log = log_in(tmp_path)
            piece = b"y\n" * 32768
            for _ in range(4000):  # 250 MB
                log.feed("stdout", piece)
            assert tracemalloc.get_traced_memory()[1] < 2 * MIB
            log.close()
        finally:
            tracemalloc.stop()


class TestPieces:
    @pytest.mark.parametrize("size", [1, 2, 5, 7, 64])
    def test_paging_gives_every_byte_and_every_character(self, tmp_path: Path, size: int) -> None:
        log = log_in(tmp_path)
        data = "aü🦊漢\n".encode() * 20
        log.feed("stdout", data)
        log.finish(ProcessExit(0))
        offset, seen, text = 0, b"", ""
        while True:
            chunk = log.chunk("stdout", offset, size)
            assert (chunk["offset"], chunk["total_bytes"], chunk["first_offset"]) == (offset, len(data), 0)
            seen, text, offset = seen + chunk["data"], text + chunk["text"], chunk["next_offset"]
            if chunk["complete"]:
                break
            assert chunk["data"]
        assert seen == data
        if size > 4:
            assert text == data.decode()

    def test_a_running_process_is_never_complete(self, tmp_path: Path) -> None:
        log = log_in(tmp_path)
        log.feed("stdout", b"abc")
        assert log.chunk("stdout", 0, 100)["complete"] is False
        assert log.chunk("stdout", 3, 100)["data"] == b""
        log.finish(ProcessExit(0))
        assert log.chunk("stdout", 3, 100)["complete"] is True
        assert log.chunk("stdout", 99, 100)["complete"] is True
