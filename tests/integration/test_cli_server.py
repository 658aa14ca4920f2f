"""Every verb of `hutch` against a server, as a program of its own that shares nothing with it but the network."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from hutch.cli import verbs
from hutch.model.principal import KEY_FILE
from hutch.settings import Settings
from tests.integration.cli_stage import HANG, Hutch, read_until, terminal
from tests.server_rig import Served, served

NO_PLACE = ("serve", "trees build")  # it is a server; what it builds is for this machine


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(Settings(data_dir=tmp_path_factory.mktemp("server"))) as made:
        yield made


class Remote(Hutch):
    """With a data folder of its own, which nothing may be written to."""

    def __init__(self, data: Path, server: Served, key: str | None = None) -> None:
        super().__init__(data)
        self.env |= {"HUTCH_URL": server.url, "HUTCH_API_KEY": key or server.key}

    def out(self, *words: str, given: bytes = b"", code: int = 0) -> str:
        ended = self.run(*words, given=given)
        assert ended.returncode == code, ended.stderr.decode()
        return ended.stdout.decode()

    def json(self, *words: str) -> Any:
        return json.loads(self.out(*words, "--json"))


@pytest.fixture
def hutch(server: Served, tmp_path: Path) -> Iterator[Remote]:
    made = Remote(tmp_path / "data", server)
    yield made
    made.close_all()
    assert not (tmp_path / "data" / "hutch.db").exists()  # nothing was done here


def _verbs() -> list[tuple[str, Any]]:
    app: Any = typer.main.get_command(verbs.build_app())
    found: list[tuple[str, Any]] = []
    groups = [("", app)]
    while groups:
        prefix, group = groups.pop()
        for name, verb in group.commands.items():
            named = f"{prefix} {name}".strip()
            if hasattr(verb, "commands"):
                groups.append((named, verb))
            else:
                found.append((named, verb))
    return found


def test_every_verb_can_be_pointed_at_a_server() -> None:
    found = _verbs()
    assert len(found) >= 20
    for name, verb in found:
        options = {option for one in verb.params for option in one.opts}
        assert ({"--url", "--api-key"} <= options) == (name not in NO_PLACE), name


def test_commands(hutch: Remote) -> None:
    ended = hutch.run("exec", "--", "cat; echo err >&2; exit 7", given=b"piped")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, b"piped", b"err\n")
    assert json.loads(hutch.out("exec", "--no-stdin", "--json", "-t", "T", "-e", "A=1", "echo $A"))["stdout"] == "1\n"
    assert hutch.run("exec", "--no-stdin", "rm x").stderr.startswith(b"hutch: command_rejected: ")
    assert hutch.run("exec", "--no-stdin", "--template", "open", "rm -f x").returncode == 0
    assert (
        hutch.run("exec", "--no-stdin", "--timeout", "0.3", "python3 -c 'import time; time.sleep(60)'").returncode
        == 124
    )
    rows = json.loads(hutch.out("batch", "-", "--json", given=b"echo a\necho b\n"))
    assert [row["stdout"] for row in rows] == ["a\n", "b\n"]
    assert hutch.out("shell", "-t", "T", given=b"echo lines\nexit 0\n") == "lines\n"


def test_a_shell_on_a_terminal(hutch: Remote) -> None:
    with terminal(hutch, "shell", "--template", "open") as screen:
        screen.type("echo $((6 * 7)); stty size\n")
        screen.until("42")
        screen.until("30 100")
        screen.type("exit 5\n")
        assert screen.end() == 5
        assert screen.restored


def test_files(hutch: Remote, tmp_path: Path) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(os.urandom(100_000))
    thread = ("-t", "F")
    hutch.out("files", "put", *thread, "--template", "open", str(source), "kept.bin")
    hutch.out("files", "put", *thread, "--template", "open", "-", "sub/piped", given=b"from a pipe")
    assert hutch.run("files", "cat", *thread, "kept.bin").stdout == source.read_bytes()
    hutch.out("files", "get", *thread, "kept.bin", str(tmp_path / "back.bin"))
    assert (tmp_path / "back.bin").read_bytes() == source.read_bytes()
    hutch.out("files", "mkdir", *thread, "-p", "a/b")
    hutch.out("files", "mv", *thread, "sub/piped", "a/b/moved")
    names = {row["path"] for row in hutch.json("files", "ls", *thread, "-R")}
    assert names == {"kept.bin", "sub", "a", "a/b", "a/b/moved"}
    assert hutch.json("files", "stat", *thread, "a/b/moved")["size_bytes"] == 11
    hutch.out("files", "rm", *thread, "-r", "a", "sub")
    assert [row["path"] for row in hutch.json("files", "ls", *thread)] == ["kept.bin"]
    assert hutch.run("files", "cat", *thread, "none").returncode == 3
    watching = hutch.start("files", "watch", *thread, "--json")
    try:
        assert watching.stdout is not None
        for _ in range(20):  # until it watches
            hutch.out("files", "put", *thread, "--template", "open", "-", "new", given=b"x")
            if _ready(watching):
                break
        assert b"new" in read_until(watching.stdout, b"\n")
    finally:
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=HANG)


def _ready(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0.5)[0])


def test_sessions(hutch: Remote) -> None:
    hutch.out("exec", "--no-stdin", "-t", "S", "echo")
    assert [row["thread_id"] for row in hutch.json("sessions", "list")] == ["S"]
    assert hutch.json("sessions", "show", "S")["template"] == "bash"
    assert hutch.json("sessions", "close", "S") == {"closed": ["S"]}
    assert hutch.run("sessions", "show", "S").returncode == 3


def test_doctor_and_version(hutch: Remote) -> None:
    found = hutch.json("doctor", "--run")
    assert found["healthy"] is True
    assert found["walls"]
    assert found["data_folder"]["path"] is None
    assert all(check["passed"] for check in found["self_test"])
    assert "every wall they need stands" in hutch.out("doctor")
    assert hutch.json("version")["server"]["protocol"] >= 1
    assert "server" in hutch.out("version")


def test_keys(hutch: Remote, server: Served, tmp_path: Path) -> None:
    made = hutch.json("keys", "create", "ci", "--scope", "read")
    reader = Remote(tmp_path / "data", server, made["key"])
    assert reader.json("sessions", "list") == []
    assert b"forbidden" in reader.run("keys", "list").stderr
    assert b"forbidden" in reader.run("exec", "--no-stdin", "echo").stderr
    assert made["key_id"] in hutch.out("keys", "list")
    assert hutch.run("keys", "create", "x", "--tenant", "other").returncode == 3
    hutch.out("keys", "revoke", made["key_id"])
    assert hutch.run("keys", "revoke", made["key_id"]).returncode == 3
    assert reader.run("sessions", "list").returncode == 3


def test_audit_of_a_server_and_of_a_data_folder(hutch: Remote, server: Served) -> None:
    hutch.out("exec", "--no-stdin", "-t", "audited", "--user", "eve", "echo 1; exit 0")
    assert hutch.run("exec", "--no-stdin", "-t", "audited", "python3 -c 'exit(9)' --password hunter2").returncode == 9
    here = Hutch(server.engine.settings.data_dir)
    server.run(server.engine.audit.flush())
    for words, run in ((("--url", server.url), hutch.run), ((), here.run)):
        asked = ("audit", *words, "--json", "--user", "eve", "--action", "command_executed")
        rows = json.loads(run(*asked).stdout)
        assert [(row["detail"].split()[0], row["exit_code"]) for row in rows] == [("echo", 0), ("python3", 9)]
        assert "hunter2" not in json.dumps(rows)
        assert rows[0]["key_id"] == server.key.split("_")[1]
        shown = run("audit", *words, "--user", "eve", "-n", "1").stdout.decode()
        assert "command_executed" in shown
        assert run("audit", *words, "-n", "0").returncode == 2


def test_audit_follows(hutch: Remote) -> None:
    following = hutch.start("audit", "--follow", "--json", "--action", "session_created", "-n", "1")
    try:
        assert following.stdout is not None
        for thread in ("one", "two", "three"):
            hutch.out("exec", "--no-stdin", "-t", thread, "echo")
        assert b'"one"' in read_until(following.stdout, b'"three"')
    finally:
        following.send_signal(signal.SIGINT)
        following.communicate(timeout=HANG)


def test_which_server_and_which_key(hutch: Remote, server: Served) -> None:
    def run(*words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
        return hutch.run(*words, given=b"", stdin=None, **env)

    lost = {"HUTCH_URL": "http://127.0.0.1:1"}
    unreachable = run("sessions", "list", **lost)
    assert unreachable.returncode == 4
    assert b"server_unreachable" in unreachable.stderr
    assert run("sessions", "list", "--url", server.url, **lost).returncode == 0  # the line wins
    wrong = {"HUTCH_API_KEY": "hutch_wrong"}
    assert b"unauthorized" in run("sessions", "list", **wrong).stderr
    assert run("sessions", "list", "--api-key", server.key, **wrong).returncode == 0
    # Without either the key in the data folder, for this machine's servers.
    nothing = {"HUTCH_API_KEY": ""}
    assert b"unauthorized" in run("sessions", "list", **nothing).stderr
    hutch.data.mkdir()
    (hutch.data / KEY_FILE).write_text(server.key)
    assert run("sessions", "list", **nothing).returncode == 0
    other = run("sessions", "list", "--url", "http://192.0.2.1:1", **nothing)
    assert server.key.encode() not in other.stderr
    # SANDBOX_URL is for programs in mode remote; a key without a server is a slip.
    local = {"HUTCH_URL": "", "SANDBOX_URL": server.url}
    slip = run("sessions", "list", "--api-key", "k", **local)
    assert (slip.returncode, b"--url" in slip.stderr) == (3, True)
    far = run("version", SANDBOX_MODE="remote", **local)
    assert b"server" in far.stdout
    assert b"server" not in run("version", **local).stdout
