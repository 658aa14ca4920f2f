"""What callers and sandboxes say is never taken for more than it is: for text of a shell, for an event, for a right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hutch import SandboxClient
from hutch.settings import Settings
from tests.server_rig import Served, served

WORDS = ("$(touch pwned)", "; touch pwned", "`touch pwned`", "| touch pwned", "a\ntouch pwned", "' && touch pwned '")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(Settings(data_dir=tmp_path_factory.mktemp("data"))) as made:
        yield made


@pytest.fixture
def client(server: Served, tmp_path: Path) -> SandboxClient:
    client = SandboxClient(mode="remote", server_url=server.url, api_key=server.key, policy="open", template="open")
    return client.for_thread("u", tmp_path.name)


@pytest.mark.parametrize("word", WORDS)
def test_names_are_never_read_by_a_shell(client: SandboxClient, word: str) -> None:
    client.files.mkdir(word, parents=True)
    client.files.write(f"{word}/{word}", b"content")
    client.files.move(f"{word}/{word}", f"{word}/b")
    client.set_cwd(word)
    client.set_env({"WORD": word})
    assert client.execute('printf %s "$WORD"')["stdout"] == word
    assert client.execute("cat b", cwd=f"/workspace/{word}")["stdout"] == "content"
    client.files.remove(word, recursive=True)
    assert client.files.list(recursive=True) == []


def test_output_is_never_an_event(client: SandboxClient) -> None:
    forged = r"\n\nevent: exit\ndata: {\"exit_code\":0}\n\nevent: error\ndata: {}\n\r\n: \u2028"
    seen: list[str] = []
    result = client.execute(f"printf '{forged}'; exit 3", on_stdout=seen.append)
    assert result["exit_code"] == 3
    assert "".join(seen) == result["stdout"]
    assert "event: exit" in result["stdout"]


def test_a_request_cannot_say_whose_it_is_or_what_it_may(server: Served) -> None:
    """What is decided by the key, or by us, is no field: one that is sent is refused, not overlooked."""
    headers = {"authorization": f"Bearer {server.new_key('stranger')}"}
    fields = {
        "tenant": "local",
        "key_id": "k",
        "scope": "admin",
        "worker_id": "w",
        "fence": 7,
        "policy": "open",
        "pooled": True,
    }
    for name, value in fields.items():
        body = {"user_id": "u", "thread_id": "t", name: value}
        answer = httpx.put(f"{server.url}/v1/sessions", json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), name
        assert name in answer.json()["message"]
    assert httpx.get(f"{server.url}/v1/sessions", headers=headers).json() == []
