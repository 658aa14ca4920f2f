"""`hutch serve` as one starts it: a program of its own, found by clients on the same machine."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from hutch import SandboxClient, ServerUnreachable, Unauthorized

WAIT = 30.0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _hutch(data_dir: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    environ = {"PATH": os.environ["PATH"], "HUTCH_DATA_DIR": str(data_dir), **variables}
    program = [sys.executable, "-m", "hutch", *words]
    return subprocess.Popen(program, env=environ, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def serving(data_dir: Path, *words: str, **variables: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    port = _free_port()
    program = _hutch(data_dir, "serve", "--port", str(port), "--preview-port", "0", *words, **variables)
    try:
        assert program.stderr is not None
        for line in program.stderr:
            if f":{port}" in line:
                break
        yield f"http://localhost:{port}", program
    finally:
        program.send_signal(signal.SIGTERM)
        try:
            program.communicate(timeout=WAIT)
        finally:
            program.kill()


def test_a_client_on_this_machine_needs_only_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUTCH_DATA_DIR", str(tmp_path))
    with serving(tmp_path) as (url, program):
        key = tmp_path / "api-key"
        assert key.stat().st_mode & 0o777 == 0o600
        client = SandboxClient(mode="remote", server_url=url)
        client.get_or_create_session(user_id="u", thread_id="t")
        client.upload_file_from_bytes("a.txt", b"kept")
        assert client.execute("cat a.txt")["stdout"] == "kept"
        stranger = SandboxClient(mode="remote", server_url=url, api_key="hutch_wrong")
        with pytest.raises(Unauthorized):
            stranger.get_or_create_session(user_id="u", thread_id="t")
        assert httpx.get(url + "/health").json() == {"status": "ok"}
    assert program.returncode == 0
    with serving(tmp_path) as (url, _):  # files and keys are there again
        client = SandboxClient(mode="remote", server_url=url)
        assert client.get_or_create_session(user_id="u", thread_id="t")["status"] == "existing"
        assert client.execute("cat a.txt")["stdout"] == "kept"


def test_a_command_may_end_before_the_server_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUTCH_DATA_DIR", str(tmp_path))
    with serving(tmp_path) as (url, program):
        client = SandboxClient(mode="remote", server_url=url, policy="open")
        client.get_or_create_session(user_id="u", thread_id="t")
        running = client.stream("echo on; sleep 1; echo done")
        assert next(iter(running))["text"] == "on\n"
        program.send_signal(signal.SIGTERM)
        said = list(running)
        assert said[0]["text"] == "done\n"
        assert said[-1]["result"] is not None
        assert said[-1]["result"]["exit_code"] == 0


def _told(data_dir: Path, *words: str, **variables: str) -> tuple[int, str, str]:
    program = _hutch(data_dir, *words, **variables)
    printed, said = program.communicate(timeout=WAIT)
    return program.returncode, printed, said


def test_a_port_that_is_taken_and_an_open_address_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with serving(tmp_path) as (url, _):
        code, _, said = _told(tmp_path, "serve", "--port", url.rpartition(":")[2], "--preview-port", "0")
        assert code == 3
        assert "--port" in said
    for words, variables in ((("--host", "0.0.0.0"), {}), ((), {"HOST": "0.0.0.0"})):
        open_one = _hutch(tmp_path, "serve", *words, **variables)
        _, said = open_one.communicate(timeout=WAIT)
        assert open_one.returncode == 3
        assert "--plain-http" in said


def test_programs_of_this_machine_need_no_key_where_that_was_said_and_others_never(tmp_path: Path) -> None:
    with serving(tmp_path, "--mypa-open") as (url, _):
        made = httpx.post(f"{url}/create_session", json={"user_id": "u", "thread_id": "t"})
        assert made.status_code == 201
        assert httpx.get(f"{url}/v1/sessions").status_code == 401
    code, _, said = _told(tmp_path, "serve", "--host", "0.0.0.0", "--plain-http", "--mypa-open")
    assert code == 3
    assert "mypa-open" in said


def test_keys_are_made_used_listed_and_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUTCH_DATA_DIR", str(tmp_path))
    with serving(tmp_path) as (url, _):
        _, made, said = _told(tmp_path, "keys", "create", "ci", "--scope", "read")
        key = made.strip()
        key_id = key.split("_")[1]
        assert key_id in said
        headers = {"authorization": f"Bearer {key}"}
        assert httpx.get(f"{url}/v1/sessions", headers=headers).status_code == 200
        _, listed, _ = _told(tmp_path, "keys", "list")
        assert key_id in listed
        assert key not in listed
        assert _told(tmp_path, "keys", "revoke", key_id)[0] == 0
        assert _told(tmp_path, "keys", "revoke", key_id)[0] == 3
        for _ in range(100):
            if httpx.get(f"{url}/v1/sessions", headers=headers).status_code == 401:
                break
        else:
            pytest.fail("a revoked key still works")


def test_a_remote_client_that_is_dropped_takes_its_thread_with_it() -> None:
    def names() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "hutch-client"]

    client = SandboxClient(mode="remote", server_url=f"http://127.0.0.1:{_free_port()}")
    with pytest.raises(ServerUnreachable, match="hutch serve"):
        client.health()
    assert names()
    del client
    gc.collect()
    deadline = time.monotonic() + 10
    while names() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not names()
