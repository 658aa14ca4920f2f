from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli_stage import Hutch, terminal


@pytest.fixture
def hutch(tmp_path: Path) -> Iterator[Hutch]:
    made = Hutch(tmp_path / "data")
    yield made
    made.close_all()


def test_a_shell_on_a_terminal(hutch: Hutch) -> None:
    with terminal(hutch, "shell", "--template", "open") as screen:
        screen.until("$ ")
        screen.type("echo $((40+2)); stty size\n")
        screen.until("42")
        screen.until("30 100")
        assert not screen.restored  # every key goes to the sandbox
        screen.resize(50, 120)
        screen.type("sleep 100\n\x03")
        screen.until("^C")
        screen.type("stty size; echo $COLUMNS\n")
        screen.until("50 120")
        screen.type("exit 5\n")
        assert screen.end() == 5
        assert screen.restored
    assert hutch.threads() == []


def test_the_terminal_is_put_back_after_a_signal(hutch: Hutch) -> None:
    with terminal(hutch, "shell", "--template", "open") as screen:
        screen.until("$ ")
        screen.type("printf '\\033[?1049h\\033[?1000h\\033[?25l'; echo d''one; sleep 100\n")
        screen.until("done")
        screen.process.send_signal(signal.SIGTERM)
        assert screen.end() == 128 + signal.SIGTERM
        assert screen.restored
        for sequence in (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?25h"):
            assert sequence in screen.screen
    assert hutch.threads() == []


def test_the_terminal_is_put_back_when_the_sandbox_goes(hutch: Hutch) -> None:
    with terminal(hutch, "shell", "--thread", "T") as screen:
        screen.until("$ ")
        assert hutch.run("sessions", "close", "T").returncode == 0
        assert screen.end() != 0
        assert screen.restored


def test_ctrl_c_on_a_terminal_ends_exec(hutch: Hutch) -> None:
    with terminal(hutch, "exec", "--template", "open", "--", "echo go; sleep 100") as screen:
        screen.until("go")
        screen.type("\x03")
        assert screen.end() == 130
        assert screen.restored


def test_a_table_on_a_terminal_fits_it(hutch: Hutch) -> None:
    with terminal(hutch, "doctor") as screen:
        screen.resize(40, 60)
        screen.end()
        lines = screen.screen.decode().splitlines()
    assert any("user_namespace" in line for line in lines)
    assert not any(mark in line for line in lines for mark in "│┃─━")


def test_lines_from_a_pipe_run_one_by_one(hutch: Hutch) -> None:
    script = b"pwd\ncd /tmp\npwd\n\nrm x\ncd nowhere\ncat\ncd\npwd\nls /nope\n"
    done = hutch.run("shell", given=script)
    assert done.stdout == b"/workspace\n/tmp\n/workspace\n"
    assert b"hutch: command_rejected: " in done.stderr
    assert b"nowhere" in done.stderr
    assert b"$ " not in done.stderr
    assert done.returncode == 2


def test_exit_ends_the_lines(hutch: Hutch) -> None:
    done = hutch.run("shell", given=b"echo a\nexit 4\necho b\n")
    assert (done.returncode, done.stdout, done.stderr) == (4, b"a\n", b"")
    assert hutch.run("shell", given=b"false\nquit\n").returncode == 1
    assert hutch.run("shell", given=b"").returncode == 0
