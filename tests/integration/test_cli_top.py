"""`hutch top` over a server that runs as users start it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hutch import SandboxClient
from tests.integration.cli_stage import SOURCE, Hutch, terminal
from tests.integration.test_serve import serving

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hutch, str]]:
    """A server with a session in which two commands ran, and the program beside it."""
    folder = tmp_path_factory.mktemp("data")
    with serving(folder, PYTHONPATH=str(SOURCE)) as (url, _):
        key = (folder / "api-key").read_text().strip()
        client = SandboxClient(mode="remote", server_url=url, api_key=key, policy="open")
        client.get_or_create_session(user_id="ada", thread_id="t\x1b[2J1")
        client.execute("echo hi")
        client.execute("exit 3")
        client.upload_file_from_bytes("a", b"x" * 2000)
        yield Hutch(folder), url


def test_once_it_shows_numbers_and_sessions_that_cannot_drive_a_terminal(place: tuple[Hutch, str]) -> None:
    hutch, url = place
    said = hutch.run("top", "--url", url, "--once")
    assert (said.returncode, said.stderr) == (0, b"")
    printed = said.stdout.decode()
    assert "1 sessions; 1 of 80 sandboxes run" in printed
    assert "2 commands: 0 failed, 0 refused, 0 timed out" in printed
    assert "2.0 KB up" in printed
    assert "t\\x1b[2J1" in printed
    assert "\x1b" not in printed


def test_json_is_a_document_with_the_servers_numbers_and_the_sessions(place: tuple[Hutch, str]) -> None:
    hutch, url = place
    found = json.loads(hutch.run("top", "--once", "--json", HUTCH_URL=url).stdout)
    assert found["server"]["commands"] == 2
    assert found["server"]["bytes_up"] == 2000
    assert found["server"]["workspace_bytes"] == 2000
    assert found["server"]["memory_bytes"] > 1_000_000
    assert [one["user_id"] for one in found["sessions"]] == ["ada"]


def test_json_goes_on_line_by_line_until_it_is_ended(place: tuple[Hutch, str]) -> None:
    hutch, url = place
    program = hutch.start("top", "--url", url, "--json", "--interval", "0.1")
    assert program.stdout is not None
    looks = [json.loads(program.stdout.readline()) for _ in range(3)]
    program.send_signal(signal.SIGINT)
    _, said = program.communicate(timeout=30)
    assert looks[2]["server"]["cpu_seconds"] >= looks[0]["server"]["cpu_seconds"]
    assert (program.returncode, said) == (128 + signal.SIGINT, b"")


def test_a_key_that_is_wrong_and_a_server_that_is_not_there(place: tuple[Hutch, str], tmp_path: Path) -> None:
    hutch, url = place
    refused = hutch.run("top", "--url", url, "--once", HUTCH_API_KEY="hutch_wrong")
    assert refused.returncode == 3
    assert refused.stderr.startswith(b"hutch: unauthorized: ")
    gone = hutch.run("top", "--url", "http://127.0.0.1:1", "--once")
    assert gone.stderr.startswith(b"hutch: server_unreachable: ")
    odd = hutch.run("top", "--url", "nowhere", "--once")
    assert odd.stderr.startswith(b"hutch: invalid_request: ")


def test_on_a_terminal_it_lives_and_leaves_it_as_it_was(place: tuple[Hutch, str]) -> None:
    hutch, url = place
    with terminal(hutch, "top", "--url", url, "--interval", "0.1") as screen:
        screen.until("sandboxes run")
        screen.until("now: ")
        screen.until("commands/s")
        screen.type("\x03")
        assert screen.end() == 128 + signal.SIGINT
        assert b"\x1b[?1049l" in screen.screen  # back from the screen of its own
        assert screen.restored
