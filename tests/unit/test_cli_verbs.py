"""The verbs over an engine whose provider is in memory."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hutch.cli.main import main
from hutch.engine import assemble
from hutch.model.errors import SandboxUnavailable
from hutch.providers import registry
from hutch.testing.fake_provider import FakeProvider, FakeWorld

Hutch = Callable[..., tuple[int, str, str]]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeProvider:
    world = FakeWorld()
    first = FakeProvider(world=world)
    monkeypatch.setattr(assemble, "make_provider", lambda *_: first)
    monkeypatch.setattr(registry, "make_provider", lambda *_: first)
    for name in [name for name in os.environ if name.startswith("HUTCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HUTCH_DATA_DIR", str(tmp_path / "data"))
    return first


@pytest.fixture
def hutch(provider: FakeProvider, capfd: pytest.CaptureFixture[str]) -> Hutch:
    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        said = capfd.readouterr()
        return code, said.out, said.err

    return call


def test_output_and_exit_code_are_the_commands(hutch: Hutch, provider: FakeProvider) -> None:
    provider.says("echo both", out="out\n", err="err\n", code=7)
    assert hutch("exec", "--no-stdin", "--", "echo both") == (7, "out\n", "err\n")


def test_several_words_are_quoted_and_one_is_bash(hutch: Hutch, provider: FakeProvider) -> None:
    hutch("exec", "--no-stdin", "echo", "a  b", "$HOME")
    hutch("exec", "--no-stdin", "echo a && echo b")
    assert [request.argv[2] for request in provider.spawned] == ["echo 'a  b' '$HOME'", "echo a && echo b"]


def test_environment_and_folder_reach_the_command(hutch: Hutch, provider: FakeProvider) -> None:
    assert hutch("exec", "--no-stdin", "-e", "A=1=2", "--cwd", "/workspace", "echo x")[0] == 0
    assert provider.spawned[0].env["A"] == "1=2"
    assert provider.spawned[0].cwd == "/workspace"


def test_a_session_of_its_own_goes_and_a_threads_stays(hutch: Hutch) -> None:
    hutch("exec", "--no-stdin", "echo x")
    assert hutch("sessions", "list", "--json")[1] == "[]\n"
    hutch("exec", "--no-stdin", "--thread", "T", "echo x")
    rows = json.loads(hutch("sessions", "list", "--json")[1])
    assert [(row["thread_id"], row["user_id"], row["template"]) for row in rows] == [("T", "cli", "bash")]


def test_a_limit_is_said_beside_the_output(hutch: Hutch, provider: FakeProvider) -> None:
    provider.says("echo big", out="part", code=137, limit="memory")
    code, out, err = hutch("exec", "--no-stdin", "echo big")
    assert (code, out) == (137, "part")
    assert err == "hutch: limit: the command reached its sandbox's limit of memory\n"


def test_a_time_out_is_124_and_says_so(hutch: Hutch) -> None:
    code, _, err = hutch("exec", "--no-stdin", "--template", "open", "--timeout", "0.2", "sleep 60")
    assert code == 124
    assert err.startswith("hutch: timed_out: ")


def test_json_is_the_whole_result(hutch: Hutch) -> None:
    code, out, err = hutch("exec", "--no-stdin", "--json", "echo x")
    result = json.loads(out)
    assert (code, err, result["stdout"], result["exit_code"]) == (0, "", "x\n", 0)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["exec", "rm -rf /"], 3, "hutch: command_rejected: "),
        (["exec", ""], 3, "hutch: command_rejected: "),
        (["exec", "--template", "nope", "true"], 3, "hutch: invalid_request: "),
        (["exec", "--timeout", "0", "true"], 3, "hutch: invalid_request: "),
        (["exec", "--policy", "/nope.toml", "true"], 3, "hutch: invalid_request: "),
        (["exec", "--env", "A", "true"], 2, "Usage: hutch exec"),
        (["exec", "--timeout", "soon", "true"], 2, "Usage: hutch exec"),
        (["exec"], 2, "Usage: hutch exec"),
        (["exek"], 2, "Usage: hutch "),
        (["batch"], 2, "Usage: hutch batch"),
        (["batch", "/nope"], 3, "hutch: path_rejected: "),
        (["sessions", "show", "T"], 3, "hutch: no_active_session: "),
        (["sessions", "close", "T"], 3, "hutch: no_active_session: "),
        (["sessions", "close"], 2, "Usage: hutch sessions close"),
        (["sessions", "close", "--all", "T"], 2, "Usage: hutch sessions close"),
        (["files", "ls"], 2, ""),
        (["files", "ls", "-t", "T"], 3, "hutch: no_active_session: "),
        (["files", "put", "-t", "T", "-"], 2, "Usage: hutch files put"),
    ],
)
def test_bad_input_gets_a_code_and_a_line(hutch: Hutch, words: list[str], code: int, said: str) -> None:
    got, out, err = hutch(*words)
    assert got == code
    assert said in err or said in out  # help that was asked for by saying nothing is output
    assert "Traceback" not in err


def test_a_sandbox_that_cannot_be_had_is_4(hutch: Hutch, provider: FakeProvider) -> None:
    provider.faults.fail_next("start", SandboxUnavailable("no room"))
    assert hutch("exec", "--no-stdin", "true") == (4, "", "hutch: sandbox_unavailable: no room\n")


def test_a_fault_of_ours_is_a_line_and_a_traceback_on_request(
    hutch: Hutch, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise TypeError("oh\nno")

    monkeypatch.setattr("hutch.cli.sessions._there", broken)
    code, _, err = hutch("sessions", "list")
    assert code == 4
    assert err.startswith("hutch: internal: TypeError: oh\\nno\n")
    assert "Traceback" in hutch("--traceback", "sessions", "list")[2]


def test_batch_shows_each_and_fails_when_one_did(hutch: Hutch, provider: FakeProvider, tmp_path: Path) -> None:
    provider.says("echo two", out="a\nb\n")
    provider.says("false", err="no\x1b[31m", code=5)
    file = tmp_path / "commands"
    file.write_text("echo one\n\n# not this\n  echo two\nfalse\nrm x\n")
    code, out, _ = hutch("batch", str(file))
    lines = [line.split(maxsplit=2)[:2] for line in out.splitlines()[1:]]
    assert code == 1
    assert lines == [["ok", "0"], ["ok", "0"], ["failed", "5"], ["failed", "-1"]]
    assert "a  (+1 lines)" in out
    assert "no\\x1b[31m" in out
    assert "command_rejected" in out
    code, out, _ = hutch("batch", "-c", "echo one", "-c", "echo two", "--json")
    assert code == 0
    assert [(row["command"], row["stdout"]) for row in json.loads(out)] == [
        ("echo one", "one\n"),
        ("echo two", "a\nb\n"),
    ]


def test_sessions_are_shown_and_closed(hutch: Hutch) -> None:
    assert hutch("sessions", "list")[2] == "hutch: there are no sessions\n"
    for thread in ("A", "B", "C"):
        hutch("exec", "--no-stdin", "-t", thread, "--user", "u", "echo x")
    assert json.loads(hutch("sessions", "show", "B", "--json")[1])["thread_id"] == "B"
    code, _, err = hutch("sessions", "close", "A", "nobody")
    assert code == 3
    assert "nobody" in err
    assert json.loads(hutch("sessions", "close", "--all", "--json")[1])["closed"] == ["B", "C"]
    assert json.loads(hutch("sessions", "list", "--json")[1]) == []


def test_a_threads_owner_counts_when_a_user_is_named(hutch: Hutch) -> None:
    assert hutch("exec", "--no-stdin", "-t", "T", "--user", "ann", "echo x")[0] == 0
    assert hutch("exec", "--no-stdin", "-t", "T", "echo x")[0] == 0
    code, _, err = hutch("exec", "--no-stdin", "-t", "T", "--user", "bob", "echo x")
    assert code == 3
    assert err.startswith("hutch: thread_owned_by_other: ")
    assert hutch("exec", "--no-stdin", "-t", "T", "--template", "open", "echo x")[0] == 3


def test_files_go_in_and_out_whole(hutch: Hutch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("text ü\n")
    assert hutch("files", "put", "-t", "T", "in.txt")[0] == 0
    assert hutch("files", "put", "-t", "T", "in.txt", "folder/")[0] == 0
    assert hutch("files", "cat", "-t", "T", "in.txt", "folder/in.txt")[1] == "text ü\n" * 2
    assert hutch("files", "get", "-t", "T", "in.txt", "-")[1] == "text ü\n"
    Path("there").mkdir()
    assert hutch("files", "get", "-t", "T", "in.txt", "there")[0] == 0
    assert Path("there/in.txt").read_text() == "text ü\n"
    rows = json.loads(hutch("files", "ls", "-t", "T", "-R", "--json")[1])
    assert [row["path"] for row in rows] == ["folder", "folder/in.txt", "in.txt"]
    assert hutch("files", "mkdir", "-t", "T", "-p", "a/b")[0] == 0
    assert hutch("files", "mv", "-t", "T", "in.txt", "out.txt")[0] == 0
    assert json.loads(hutch("files", "stat", "-t", "T", "out.txt", "--json")[1])["size_bytes"] == 8
    assert hutch("files", "rm", "-t", "T", "folder")[0] == 3
    assert hutch("files", "rm", "-t", "T", "-r", "folder", "a", "out.txt")[0] == 0
    assert hutch("files", "ls", "-t", "T") == (0, "", "")


def test_doctor_names_what_is_down_and_what_is_misspelt(
    hutch: Hutch, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUTCH_DATADIR", "x")
    code, out, _ = hutch("doctor", "--json")
    found = json.loads(out)
    assert (code, found["healthy"], found["unknown_variables"]) == (0, True, ["HUTCH_DATADIR"])
    assert found["walls"][0]["name"] == "user_namespace"
    provider.faults.fail_next("report", SandboxUnavailable("there is no kernel"))
    code, out, err = hutch("doctor")
    assert code == 1
    assert "hutch: problem: there is no kernel" in err


def test_doctor_works_when_nothing_else_does(hutch: Hutch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUTCH_DATA_DIR", "/proc/nowhere")
    code, out, _ = hutch("doctor", "--json")
    found = json.loads(out)
    assert code == 1
    assert found["data_folder"]["problem"]
    assert found["walls"]
    assert "HUTCH_DATA_DIR" in found["problems"][0]
    monkeypatch.setenv("POOL_SIZE", "many")
    code, out, _ = hutch("doctor", "--json")
    assert code == 1
    assert "POOL_SIZE" in json.loads(out)["problems"][0]


def test_version(hutch: Hutch) -> None:
    from hutch import __version__

    assert hutch("version")[:2] == (0, f"hutch {__version__}\n")
    assert json.loads(hutch("version", "--json")[1]) == {"hutch": __version__}


def test_what_breaks_after_a_signal_is_its_consequence(hutch: Hutch, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted_half_way(*_: Any) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            raise RuntimeError("left half done")

    monkeypatch.setattr("hutch.cli.sessions._there", interrupted_half_way)
    assert hutch("sessions", "list") == (143, "", "")
