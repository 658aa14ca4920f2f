from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli_stage import HANG, Hutch, read_until

OPEN = ("--template", "open")


@pytest.fixture
def hutch(tmp_path: Path) -> Iterator[Hutch]:
    made = Hutch(tmp_path / "data")
    yield made
    made.close_all()


def test_what_is_piped_in_comes_out_byte_for_byte(hutch: Hutch) -> None:
    data = bytes(range(256)) * 8192
    done = hutch.run("exec", "--", "cat", given=data)
    assert (done.returncode, done.stdout, done.stderr) == (0, data, b"")


def test_exit_codes_are_the_commands(hutch: Hutch) -> None:
    assert hutch.run("exec", "--", "exit 7").returncode == 7
    assert hutch.run("exec", *OPEN, "--", "kill -9 $$").returncode == 128 + signal.SIGKILL
    assert hutch.run("exec", *OPEN, "--", "nonesuch").returncode == 127
    late = hutch.run("exec", *OPEN, "--timeout", "0.5", "--", "echo first; sleep 60")
    assert (late.returncode, late.stdout) == (124, b"first\n")
    assert late.stderr.startswith(b"hutch: timed_out: ")


def test_without_input_a_reader_returns_at_once(hutch: Hutch) -> None:
    assert hutch.run("exec", "--", "cat", stdin=subprocess.DEVNULL).returncode == 0
    closed = subprocess.run(
        ["bash", "-c", 'exec "$@" <&-', "bash", *hutch.argv("exec", "--", "cat; echo end")],
        capture_output=True,
        env=hutch.env,
        timeout=HANG,
        check=False,
    )
    assert (closed.returncode, closed.stdout) == (0, b"end\n")


def test_a_pipe_that_never_ends_holds_nothing_up(hutch: Hutch) -> None:
    read_end, write_end = os.pipe()
    try:
        assert hutch.run("exec", "--", "echo hi", stdin=read_end).stdout == b"hi\n"
        assert hutch.run("exec", "--no-stdin", "--", "cat; echo end", stdin=read_end).stdout == b"end\n"
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_command_that_never_reads_its_input_ends(hutch: Hutch) -> None:
    assert hutch.run("exec", "--", "echo hi", given=b"x" * 5_000_000).stdout == b"hi\n"


def test_output_comes_while_the_command_runs(hutch: Hutch) -> None:
    process = hutch.start("exec", *OPEN, "--", "echo one; read x; echo $x", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        read_until(process.stdout, b"one\n")
        process.stdin.write(b"two\n")
        process.stdin.close()
        read_until(process.stdout, b"two\n")
        assert process.wait(timeout=HANG) == 0


def test_a_reader_that_has_enough_ends_it_quietly(hutch: Hutch) -> None:
    process = hutch.start("exec", *OPEN, "--timeout", "50", "--", "yes")
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        read_until(process.stdout, b"y\n")
        process.stdout.close()
        assert process.wait(timeout=HANG) == 128 + signal.SIGPIPE
        assert process.stderr.read() == b""
    assert hutch.threads() == []


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_its_session(hutch: Hutch, signum: signal.Signals) -> None:
    process = hutch.start("exec", *OPEN, "--timeout", "300", "--", "echo go; sleep 250.125", start_new_session=True)
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        read_until(process.stdout, b"go\n")
        os.killpg(process.pid, signum)  # as a terminal sends it: to all there is
        assert process.wait(timeout=HANG) == 128 + signum
        assert process.stderr.read() == b""
    assert hutch.threads() == []
    assert not running("250.125")


def test_a_signal_ends_it_even_when_nobody_reads_the_output(hutch: Hutch) -> None:
    process = hutch.start("exec", *OPEN, "--timeout", "300", "--", "yes")
    assert process.stdout is not None
    with process:
        read_until(process.stdout, b"y\n")
        pipe_is_full = threading.Event()
        pipe_is_full.wait(0.5)
        process.terminate()
        assert process.wait(timeout=HANG) == 128 + signal.SIGTERM
    assert hutch.threads() == []


def test_what_a_kill_leaves_is_cleared_away_by_the_next_one(hutch: Hutch) -> None:
    process = hutch.start("exec", *OPEN, "--timeout", "300", "--", "echo go; sleep 250.25")
    assert process.stdout is not None
    with process:
        read_until(process.stdout, b"go\n")
        process.kill()
    hutch.close_all()
    assert hutch.threads() == []
    assert not running("250.25")


def test_output_beyond_what_is_kept_is_said_to_be_missing(hutch: Hutch) -> None:
    done = hutch.run("exec", *OPEN, "--", "head -c 70000000 /dev/zero")
    assert len(done.stdout) == 64 * 1024 * 1024
    assert b"hutch: truncated: of 70000000 bytes" in done.stderr


def test_what_was_left_running_is_named(hutch: Hutch) -> None:
    done = hutch.run("exec", *OPEN, "--", "sleep 250.5 & echo started")
    assert done.stdout == b"started\n"
    assert done.stderr == b"hutch: left_running: 1 ended with the command: sleep\n"
    assert not running("250.5")


def test_streams_that_are_closed_or_full(hutch: Hutch) -> None:
    closed = subprocess.run(
        ["bash", "-c", 'exec "$@" >&-', "bash", *hutch.argv("exec", "--", "echo hi")],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=hutch.env,
        timeout=HANG,
        check=False,
    )
    assert (closed.returncode, closed.stderr) == (0, b"")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            hutch.argv("exec", "--", "echo hi"),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            env=hutch.env,
            timeout=HANG,
            check=False,
        )
    assert done.returncode == 4
    assert b"No space left" in done.stderr


def test_a_threads_files_are_there_for_the_next_process(hutch: Hutch) -> None:
    assert hutch.run("exec", "--thread", "T", "--", "echo kept > note").returncode == 0
    assert hutch.run("exec", "--thread", "T", "--", "cat note").stdout == b"kept\n"
    assert hutch.run("files", "cat", "--thread", "T", "note").stdout == b"kept\n"
    assert hutch.threads() == ["T"]


def test_json_tells_it_all(hutch: Hutch) -> None:
    done = hutch.run("exec", "--json", "--", "echo out; echo err >&2; exit 3")
    result = json.loads(done.stdout)
    assert (done.returncode, result["exit_code"], result["stdout"], result["stderr"]) == (3, 3, "out\n", "err\n")


def test_refusals_are_one_line(hutch: Hutch) -> None:
    for words, code, name in (
        (["exec", "--", "rm -rf /"], 3, b"command_rejected"),
        (["exec", "--", "echo \udcff"], 3, b"command_rejected"),
        (["exec", "--cwd", "/nope", "--", "pwd"], 3, b"file_not_found"),
    ):
        done = hutch.run(*words)
        assert (done.returncode, done.stdout) == (code, b"")
        assert done.stderr.startswith(b"hutch: " + name + b": ")
    broken = hutch.run("exec", "--", "true", HUTCH_DATA_DIR="/proc/nowhere")
    assert broken.returncode == 4
    assert b"hutch: store_unavailable: " in broken.stderr


def running(argument: str) -> bool:
    """Whether any process of this machine has that word on its command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if argument.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False
