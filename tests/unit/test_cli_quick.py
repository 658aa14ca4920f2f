"""The short way of `hutch exec` says what typer says, or leaves it to typer."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from hutch.cli import quick, verbs
from hutch.cli.exec import ExecRequest

SAME = [
    ["--", "echo", "hi"],
    ["echo", "hi"],
    ["echo", "-n", "--json", "x"],
    ["ls", "--", "-la"],
    ["--", "--", "x"],
    ["--", "-la"],
    ["--json", "--no-stdin", "--", "cat"],
    ["--stdin", "--no-stdin", "x"],
    ["--no-stdin", "--stdin", "x"],
    ["-t", "T", "--user", "u", "--template", "open", "--policy", "p.toml", "--cwd", "/tmp", "pwd"],
    ["--thread=T", "--thread=U", "--user=", "x"],
    ["--timeout", "1.5", "x"],
    ["--timeout=3", "x"],
    ["--env", "A=1", "-e", "B=x=y z", "-e", "A=2", "-e", "C=", "env"],
    ["--thread", "--json", "x"],
    ["--url", "http://h:1", "--api-key=k", "x"],
    ["--cwd", "ä ü", "echo 'a b' | wc"],
]
LEFT_TO_TYPER = [
    [],
    ["--"],
    ["--help"],
    ["--json"],
    ["--thread"],
    ["--jso", "x"],
    ["-tT", "x"],
    ["-la", "x"],
    ["--env", "A", "x"],
    ["--env", "=1", "x"],
    ["--timeout", "nan", "x"],
    ["--timeout", "1e3", "x"],
    ["--timeout", "-1", "x"],
    ["--json=yes", "x"],
]


def typers(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> ExecRequest:
    seen: list[ExecRequest] = []

    def execute(request: ExecRequest) -> int:
        seen.append(request)
        return 0

    monkeypatch.setattr(verbs, "execute", execute)
    app: Any = typer.main.get_command(verbs.build_app())
    with pytest.raises(SystemExit) as ending:
        app.main(args=["exec", *arguments], prog_name="hutch")
    assert ending.value.code == 0
    return seen[0]


@pytest.mark.parametrize("arguments", SAME, ids=" ".join)
def test_both_ways_understand_the_same(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert quick.exec_request(["exec", *arguments]) == typers(arguments, monkeypatch)


@pytest.mark.parametrize("arguments", LEFT_TO_TYPER, ids=" ".join)
def test_what_is_unusual_is_left_to_typer(arguments: list[str]) -> None:
    assert quick.exec_request(["exec", *arguments]) is None


def test_other_verbs_are_left_to_typer() -> None:
    assert quick.exec_request(["batch", "-"]) is None
    assert quick.exec_request([]) is None


def test_it_knows_every_option_of_the_verb() -> None:
    app: Any = typer.main.get_command(verbs.build_app())
    options = [one for one in app.commands["exec"].params if one.param_type_name == "option"]
    assert {*quick.TEXTS, *quick.FLAGS} == {name for one in options for name in (*one.opts, *one.secondary_opts)}
