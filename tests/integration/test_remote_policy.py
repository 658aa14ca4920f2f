"""A session's answer names the profile that judges its commands: strict ones are refused by the client already, and by
the server whatever its client does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hutch import CommandRejected, SandboxClient
from hutch.engine.observe import Observation
from hutch.settings import Settings
from tests.server_rig import Served, served

pytestmark = pytest.mark.once


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(Settings(data_dir=tmp_path)) as made:
        yield made


def _judged(server: Served) -> list[str]:
    """Commands that the server refuses from now on."""
    refused: list[str] = []

    def watch(told: Observation) -> None:
        if told.event == "validation_failed":
            refused.append(told.command)

    server.engine.watchers.add(watch)
    return refused


def _client(server: Served, policy: str) -> SandboxClient:
    client = SandboxClient(mode="remote", server_url=server.url, api_key=server.key, policy=policy)
    client.get_or_create_session(user_id="u", thread_id=policy)
    return client


def test_what_strict_refuses_is_not_even_sent(server: Served) -> None:
    refused = _judged(server)
    client = _client(server, "strict")
    for run in (client.execute, client.start, lambda command: list(client.stream(command))):
        with pytest.raises(CommandRejected) as caught:
            run("rm -rf x")
        assert caught.value.details["word"] == "rm"
    assert refused == []
    assert client.execute("echo fine")["stdout"] == "fine\n"


def test_who_does_not_know_the_profile_is_refused_by_the_server(server: Served) -> None:
    refused = _judged(server)
    _client(server, "strict")
    joined = SandboxClient(mode="remote", server_url=server.url, api_key=server.key)
    joined.thread_id = "strict"  # found, not made: nothing said which profile it has
    with pytest.raises(CommandRejected) as caught:
        joined.execute("rm 1")
    assert caught.value.details["word"] == "rm"
    with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {server.key}"}, trust_env=False) as http:
        wanted = {"user_id": "u", "thread_id": "strict"}
        made = http.put("/v1/sessions", json=wanted).json()
        assert made["policy"] == "strict"
        for path in ("exec", "processes"):
            answer = http.post(f"/v1/sandboxes/{made['sandbox_id']}/{path}", json={"command": "rm 2"})
            assert (answer.status_code, answer.json()["code"]) == (400, "command_rejected")
        streamed = http.post(
            f"/v1/sandboxes/{made['sandbox_id']}/exec",
            json={"command": "rm 3"},
            headers={"accept": "text/event-stream"},
        )
        assert (streamed.status_code, streamed.json()["code"]) == (400, "command_rejected")
        assert (
            http.put("/v1/sessions", json={**wanted, "thread_id": "o", "template": "open"}).json()["policy"] == "open"
        )
    assert refused == ["rm 1", "rm 2", "rm 2", "rm 3"]


def test_an_open_session_is_judged_by_nobody(server: Served) -> None:
    client = _client(server, "open")
    assert client.execute("touch a; rm a; echo gone")["stdout"] == "gone\n"
