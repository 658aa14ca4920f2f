from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from hutch.cli import show
from hutch.model.errors import CommandRejected, SandboxFileNotFound

NOW = datetime(2025, 6, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ü, 漢, 🙂", "plain, ü, 漢, 🙂"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("right\u202eleft", "right\\u202eleft"),
        ("bad \udcff byte", "bad \\xff byte"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_could_drive_a_terminal_is_spelled_out(text: str, shown: str) -> None:
    assert show.visible(text) == shown


def test_a_table_that_is_piped_is_plain_text(capfd: pytest.CaptureFixture[str]) -> None:
    show.table(["NAME", "STATE"], [["x\x1b[31m", "up"], ["a-longer-name", "down"]], {"up": "green"})
    assert capfd.readouterr().out == "NAME           STATE\nx\\x1b[31m      up\na-longer-name  down\n"


def test_json_is_ascii_on_any_names(capfd: pytest.CaptureFixture[str]) -> None:
    show.document({"name": "ü \udcff \x9b"})
    out = capfd.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"name": "ü \udcff \x9b"}


def test_an_error_is_one_line_and_its_hint_another(capfd: pytest.CaptureFixture[str]) -> None:
    show.failure(SandboxFileNotFound("no\nsuch \x1b[2J file"))
    show.failure(CommandRejected("rm is forbidden", hint="use files.remove"))
    show.failure(CommandRejected("rm is forbidden: use files.remove", hint="use files.remove"))
    assert capfd.readouterr().err.splitlines() == [
        "hutch: file_not_found: no\\nsuch \\x1b[2J file",
        "hutch: command_rejected: rm is forbidden",
        "hutch: hint: use files.remove",
        "hutch: command_rejected: rm is forbidden: use files.remove",
    ]


@pytest.mark.parametrize(
    ("iso", "words"),
    [
        ("2025-06-01T11:59:48.000Z", "12 s ago"),
        ("2025-06-01T12:29:30.000Z", "in 29 min"),
        ("2025-06-01T09:00:00.000Z", "3 h ago"),
        ("2025-06-08T12:00:00.000Z", "in 7 days"),
    ],
)
def test_times_are_told_as_distances(iso: str, words: str) -> None:
    assert show.when(iso, NOW) == words


def test_sizes_are_for_people() -> None:
    assert [show.size(n) for n in (0, 999, 1000, 1_500_000, 10**13)] == [
        "0 B",
        "999 B",
        "1.0 KB",
        "1.5 MB",
        "10000.0 GB",
    ]
