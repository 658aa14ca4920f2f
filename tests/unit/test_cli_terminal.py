from __future__ import annotations

from types import SimpleNamespace

import pytest

from hutch.cli import show, terminal
from hutch.cli.endings import Interrupted
from hutch.cli.lines import CHANGES_FOLDER, ENDS
from hutch.cli.terminal import Modes


def left(*pieces: bytes) -> bytes:
    modes = Modes()
    for piece in pieces:
        modes.see(piece)
    return modes.undo()


def test_modes_that_were_left_on_are_switched_off() -> None:
    assert left(b"x\x1b[?1049h\x1b[?25ly") == b"\x1b[?25h\x1b[?1049l"
    assert left(b"\x1b[?1000;1006h") == b"\x1b[?1000l\x1b[?1006l"


def test_what_was_put_back_is_left_alone() -> None:
    assert left(b"\x1b[?2004h$ ls\x1b[?2004l", b"\x1b[?25l", b"\x1b[?25h") == b""
    assert left(b"\x1b[?7l\x1b[?99999h") == b""


def test_a_sequence_cut_in_two_is_seen() -> None:
    whole = b"text\x1b[?1049hmore"
    for at in range(len(whole)):
        assert left(whole[:at], whole[at:]) == b"\x1b[?1049l"
    assert left(*(whole[at : at + 1] for at in range(len(whole)))) == b"\x1b[?1049l"


def test_output_of_any_kind_costs_little_memory() -> None:
    modes = Modes()
    for _ in range(100):
        modes.see(b"\x1b[?" + b"1;" * 5000)
    assert modes.undo() == b""


@pytest.mark.parametrize("line", ["cd", "cd x", "cd ..", "cd 'a b'", 'cd "$HOME/x"', "cd -", "cd a\\ b"])
def test_a_line_that_only_changes_folder_counts_for_later_ones(line: str) -> None:
    assert CHANGES_FOLDER.match(line)


@pytest.mark.parametrize(
    "line", ["cdx", "cd a && ls", "cd a; ls", "cd a | cat", "cd $(ls)", "cd `ls`", "cd a > f", "cd a & ", "cd a # b"]
)
def test_a_longer_line_does_not(line: str) -> None:
    assert not CHANGES_FOLDER.match(line)


def test_what_ends_a_shell() -> None:
    assert ENDS.match("exit")
    assert ENDS.match("quit")
    assert ENDS.match("exit 3")
    assert not ENDS.match("exit $x")
    assert not ENDS.match("exits")


def test_a_signal_right_behind_an_output_leaves_nothing_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    def write(descriptor: int, data: bytes) -> None:
        written.append(data)
        if len(written) == 1:
            raise Interrupted

    monkeypatch.setattr(show, "write", write)
    monkeypatch.setattr(terminal, "Feeder", lambda *_, **__: SimpleNamespace(poke=lambda: None, stop=lambda: None))
    shell = SimpleNamespace(output=lambda: (piece for piece in (b"\x1b[?1049h",)), send=None, close=lambda: None)
    with pytest.raises(Interrupted):
        terminal._relay(shell)  # type: ignore[arg-type]  # all of a shell that is used here
    assert written == [b"\x1b[?1049h", b"\x1b[?1049l"]
