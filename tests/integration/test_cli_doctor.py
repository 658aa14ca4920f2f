from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hutch.model.wall import WALLS
from tests.integration.cli_stage import HANG, Hutch, read_until


@pytest.fixture
def hutch(tmp_path: Path) -> Iterator[Hutch]:
    made = Hutch(tmp_path / "data")
    yield made
    made.close_all()


def test_doctor_finds_every_wall_and_the_self_test_passes(hutch: Hutch) -> None:
    done = hutch.run("doctor", "--run", "--json")
    found = json.loads(done.stdout)
    assert [wall["name"] for wall in found["walls"]] == [wall.name for wall in WALLS]
    assert [check for check in found["self_test"] if not check["passed"]] == []
    assert (done.returncode, found["healthy"], found["problems"]) == (0, True, [])
    assert set(found["versions"]) >= {"hutch", "bubblewrap", "kernel"}
    assert hutch.threads() == []


def test_doctor_in_a_pipe_is_plain(hutch: Hutch) -> None:
    done = hutch.run("doctor", NO_COLOR="1")
    assert b"\x1b" not in done.stdout
    assert done.stdout.decode().splitlines()[-1] == "Sandboxes can be started, and every wall they need stands."


def test_doctor_explains_a_data_folder_that_cannot_be_used(hutch: Hutch) -> None:
    done = hutch.run("doctor", "--run", "--json", HUTCH_DATA_DIR="/proc/nowhere")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert "HUTCH_DATA_DIR" in found["problems"][0]
    assert {wall["state"] for wall in found["walls"] if wall["need"] == "required"} == {"up"}
    assert [check["passed"] for check in found["self_test"]] == [False]


def test_doctor_explains_that_bubblewrap_is_missing(hutch: Hutch) -> None:
    # In a process whose search finds none: the machine's own is not touched.
    hide = (
        "import sys; from hutch.providers.bubblewrap import host; host.SEARCHED = '/nonexistent'; "
        "host.packaged_bubblewrap = lambda: None; "
        "from hutch.cli.main import main; sys.exit(main(['doctor', '--run', '--json']))"
    )
    argv = [hutch.argv()[0], "-c", hide]
    done = subprocess.run(argv, capture_output=True, env=hutch.env, timeout=HANG, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert "bubblewrap is missing" in found["problems"][0]
    assert "apt-get install bubblewrap" in found["problems"][0]
    assert found["self_test"][0]["passed"] is False


def test_sessions_of_another_process_are_listed_and_closed(hutch: Hutch) -> None:
    other = hutch.start("exec", "--thread", "T", "--template", "open", "--", "echo go; sleep 100")
    assert other.stdout is not None
    with other:
        read_until(other.stdout, b"go\n")
        assert hutch.threads() == ["T"]
        assert hutch.run("exec", "--thread", "T", "--", "echo beside").stdout == b"beside\n"
        assert hutch.run("sessions", "close", "T").returncode == 0
        assert other.wait(timeout=HANG) != 0
    assert hutch.threads() == []


def test_files_of_any_name_and_bytes(hutch: Hutch, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096
    (tmp_path / "in").write_bytes(data)
    assert hutch.run("files", "put", "-t", "T", str(tmp_path / "in"), "folder/").returncode == 0
    assert hutch.run("files", "put", "-t", "T", "-", "piped", given=data).returncode == 0
    assert hutch.run("files", "get", "-t", "T", "folder/in", "-").stdout == data
    assert hutch.run("files", "cat", "-t", "T", "piped").stdout == data
    assert hutch.run("files", "put", "-t", "T", "--", "-", "-rf", given=b"x").returncode == 0
    assert hutch.run("exec", "-t", "T", "--", "echo x > $'bad\\n\\e[31m\\xff'").returncode == 0
    listed = hutch.run("files", "ls", "-t", "T").stdout
    assert b"bad\\n\\x1b[31m\\xff" in listed
    assert b"\x1b" not in listed
    assert hutch.run("files", "cat", "-t", "T", "bad\n\x1b[31m\udcff").stdout == b"x\n"
    for path in ("../etc/passwd", "/etc/passwd", "folder", "nothing"):
        refused = hutch.run("files", "cat", "-t", "T", path)
        assert (refused.returncode, refused.stdout) == (3, b"")


def test_watch_prints_changes_until_it_is_ended(hutch: Hutch) -> None:
    assert hutch.run("exec", "-t", "T", "--", "echo x > first").returncode == 0
    for _ in range(5):
        with hutch.start("files", "watch", "-t", "T", "--json") as watcher:
            seen = changes_seen(hutch, watcher)
            if seen:
                watcher.terminate()
                assert watcher.wait(timeout=HANG) == 143
                break
    assert json.loads(seen.splitlines()[0])["path"] == "second"


def changes_seen(hutch: Hutch, watcher: subprocess.Popen[bytes]) -> bytes:
    """Nothing when it ended: it had joined the machine of a command's process, which went with that."""
    assert watcher.stdout is not None
    seen = b""
    while b"second" not in seen:  # until it watches, changes go unseen
        assert hutch.run("exec", "-t", "T", "--", "echo x >> second").returncode == 0
        if readable(watcher):
            more = os.read(watcher.stdout.fileno(), 65536)
            if not more:
                return b""
            seen += more
    return seen


def readable(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 1.0)[0])
