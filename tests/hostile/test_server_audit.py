"""The audit trail of a server: every call of the API's description leaves a row, and no secret reaches rows or log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from hutch.model.audit import MAX_DETAIL, AuditEntry, redacted
from hutch.settings import Settings
from hutch.testing.fake_provider import FakeProvider
from tests.hostile.test_server_keys import API, BODIES, QUERIES
from tests.server_rig import Served, served
from tests.tree_rig import with_trees

pytestmark = pytest.mark.once

ACTIONS = [
    (method.upper(), path)
    for path, methods in API["paths"].items()
    for method, operation in methods.items()
    if "health" not in operation["tags"]
]
ENDLESS = ("/events", "/watch")
CANARY = "hunter2hunter2"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With sandboxes that run commands."""
    with served(Settings(data_dir=tmp_path_factory.mktemp("data"))) as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(
        Settings(data_dir=with_trees(tmp_path_factory.mktemp("data")), max_pool_size=1000), FakeProvider()
    ) as made:
        yield made


def _client(server: Served, key: str | None = None) -> httpx.Client:
    headers = {"authorization": f"Bearer {key or server.key}"}
    return httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=30)


def _rows(client: httpx.Client, **query: Any) -> list[AuditEntry]:
    answer = client.get("/v1/audit", params={"limit": 1000, **query})
    assert answer.status_code == 200, answer.text
    rows: list[AuditEntry] = answer.json()
    return rows


def _until_row(client: httpx.Client, key_id: str, **query: Any) -> AuditEntry:
    """The row of what that key just did. It may come a moment after the answer."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        found = [row for row in _rows(client, key_id=key_id, **query) if row["action"] != "access.audit"]
        if found:
            return found[0]
        time.sleep(0.02)
    pytest.fail("nothing was written down")


@pytest.mark.parametrize(("method", "path"), ACTIONS)
@pytest.mark.parametrize("there", [True, False])
def test_every_call_leaves_a_row(server: Served, method: str, path: str, *, there: bool) -> None:
    with _client(server) as admin:
        made = admin.put("/v1/sessions", json={"user_id": "u", "thread_id": f"{method} {path}", "template": "open"})
        ids = made.json()
        process = admin.post(f"/v1/sandboxes/{ids['sandbox_id']}/processes", json={"command": "cat", "stdin": "pipe"})
        assert admin.put(f"/v1/sandboxes/{ids['sandbox_id']}/files?path=a", content=b"x").status_code == 200
        key = server.new_key(scope="admin" if there else "read")
        names = {
            "sandbox_id": ids["sandbox_id"] if there else "sbnone",
            "process_id": process.json()["process_id"] if there else "pnone",
            "session_id": ids["session_id"] if there else "none",
            "key_id": "kaaaaaaaaaaaaaaaa",
            "port": "3000",
            "context_id": "default",
        }
        _call(server, key, method, path, names)
        wanted = {"before": 10**9} if path != "/v1/audit" else {"action": "access.audit"}
        if path == "/v1/audit":
            assert server.run(_flushed(server, key))
        else:
            row = _until_row(admin, key.split("_")[1], **wanted)
            assert row["tenant"] == "local"
            assert row["duration_ms"] >= 0
            assert row["action"]


async def _flushed(server: Served, key: str) -> bool:
    from hutch.model.audit import AuditFilter

    rows = await server.engine.audit.list(AuditFilter(key_id=key.split("_")[1]))
    return [row["action"] for row in rows] == ["access.audit"]


def _call(server: Served, key: str, method: str, path: str, names: dict[str, str]) -> None:
    def filled(fields: Any) -> Any:
        return {name: names["session_id"] if value == "{session_id}" else value for name, value in fields.items()}

    address = path.format(**names)
    body = filled(BODIES[path]) if path in BODIES and method in ("POST", "PUT", "PATCH") else None
    query = filled(QUERIES[path]) if path in QUERIES else {"path": "a"} if "/files" in path else {}
    if path.endswith("/result"):
        query = {"timeout": "0"}
    with _client(server, key) as client:
        if path == "/upload_file":
            client.post(address, data={"session_id": names["session_id"]}, files={"file": ("a", b"x")})
            return
        request = client.build_request(method, address, params=query, json=body)
        answer = client.send(request, stream=True)
        if not path.endswith(ENDLESS):
            answer.read()
        answer.close()


def test_a_row_says_who_did_what_how_it_ended_and_how_long_it_took(real: Served) -> None:
    with _client(real) as client:
        key_id = real.key.split("_")[1]
        made = client.put("/v1/sessions", json={"user_id": "ada", "thread_id": "t", "template": "open"}).json()
        sandbox = f"/v1/sandboxes/{made['sandbox_id']}"
        client.put(f"{sandbox}/files?path=notes.txt", content=b"x")
        client.post(f"{sandbox}/exec", json={"command": "exit 3"})
        client.post(f"{sandbox}/exec", json={"command": "echo hi"}, headers={"accept": "text/event-stream"})
        started = client.post(f"{sandbox}/processes", json={"command": "exit 4"}).json()
        client.get(f"{sandbox}/processes/{started['process_id']}/result")
        client.post(f"{sandbox}/files/move", json={"source": "notes.txt", "target": "b"})
        client.get(f"{sandbox}/files?path=none")
        client.patch(sandbox, json={"env": {"TOKEN": CANARY}})
        real.new_key()
        client.delete(sandbox)
        rows = _rows(client, sandbox_id=made["sandbox_id"])
        told = {(row["action"], row["detail"], row["outcome"], row["exit_code"]) for row in rows}
        assert told >= {
            ("session_created", "t", "ok", None),
            ("file_uploaded", "notes.txt", "ok", None),
            ("command_executed", "exit 3", "ok", 3),
            ("command_executed", "echo hi", "ok", 0),
            ("processes.start", "", "ok", None),
            ("command_executed", "exit 4", "ok", 4),
            ("files.move", "notes.txt -> b", "ok", None),
            ("file_download_failed", "none", "file_not_found", None),
            ("sandboxes.set_context", "env TOKEN", "ok", None),
            ("session_cleaned_up", "t", "ok", None),
        }
        assert {row["key_id"] for row in rows} == {key_id}
        assert {row["user_id"] for row in rows if row["action"] == "command_executed"} == {"ada"}
        assert all(row["duration_ms"] > 0 for row in rows if row["action"] == "command_executed")
        assert len([row for row in rows if row["detail"] == "exit 3"]) == 1  # once, not for the route as well


def test_websockets_leave_rows_too(real: Served) -> None:
    with _client(real) as client:
        made = client.put("/v1/sessions", json={"user_id": "u", "thread_id": "ws", "template": "open"}).json()
        key = real.new_key()
        address = f"{real.url.replace('http', 'ws', 1)}/v1/sandboxes/{made['sandbox_id']}"
        headers = {"authorization": f"Bearer {key}"}
        with connect(f"{address}/exec", additional_headers=headers, proxy=None) as socket:
            socket.send('{"command": "exit 5"}')
            assert any('"exit"' in str(message) for message in socket)
        row = _until_row(client, key.split("_")[1])
        assert (row["action"], row["exit_code"]) == ("command_executed", 5)
        other = real.new_key()
        with pytest.raises(Exception, match="502"):
            connect(f"{address}/ports/81/stream", additional_headers={"authorization": f"Bearer {other}"}, proxy=None)
        row = _until_row(client, other.split("_")[1])
        assert (row["action"], row["detail"], row["outcome"]) == ("streams.connect", "81", "port_unreachable")


def test_filters_and_pages(server: Served) -> None:
    with _client(server) as client:
        key = server.new_key()
        key_id = key.split("_")[1]
        with _client(server, key) as mine:
            for at in range(5):
                mine.put("/v1/sessions", json={"user_id": "u", "thread_id": f"page {at}", "template": "open"})
            mine.get("/v1/sandboxes/none")
        first = _until_row(client, key_id, failed=True)
        assert (first["action"], first["outcome"]) == ("sandboxes.info", "session_expired")
        made = _rows(client, key_id=key_id, action="session_created")
        assert [row["detail"] for row in made] == [f"page {at}" for at in (4, 3, 2, 1, 0)]
        older = _rows(client, key_id=key_id, action="session_created", before=made[1]["entry_id"], limit=2)
        assert [row["detail"] for row in older] == ["page 2", "page 1"]
        newer = _rows(client, key_id=key_id, action="session_created", after=made[2]["entry_id"])
        assert [row["detail"] for row in newer] == ["page 4", "page 3"]
        assert _rows(client, user_id="nobody") == []
        for limit in (0, -1, 1001):
            assert client.get("/v1/audit", params={"limit": limit}).status_code == 422
        with _client(server, server.new_key("other", "admin")) as other:
            assert all(row["tenant"] == "other" for row in _rows(other))


SECRET_COMMANDS = [
    f"curl -H 'Authorization: Bearer {CANARY}' http://x",
    f"curl -u ada:{CANARY} http://x",
    f"git clone https://ada:{CANARY}@host/repo",
    f"API_TOKEN={CANARY} run",
    f"export DB_PASS='{CANARY}'",
    f"mysql --password {CANARY}",
    f'mysql --password=x"{CANARY}"',
    f'echo \'{{"client_secret": "{CANARY}"}}\'',
    f"redis-cli -u redis://:{CANARY}@host",
    f"aws configure set aws_secret_access_key {CANARY}",
    f"echo ghp_{CANARY}{CANARY}",
    f"echo 'password: {CANARY}",  # a quote that does not end
    f"echo -----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----",
    "x" * (4 * MAX_DETAIL - 12) + f" password={CANARY}",  # cut in the midst of it
    ("password='" + "y" * 200 + "' ") * 9 + f"token={CANARY}",
]


@pytest.mark.parametrize("command", SECRET_COMMANDS)
def test_what_looks_like_a_secret_is_hidden(command: str) -> None:
    shown = redacted(command)
    assert CANARY[:7] not in shown
    assert len(shown) <= MAX_DETAIL


def test_an_ordinary_command_is_shown_as_it_is() -> None:
    for command in ("jq '.[].amount' a.json | awk '{s += $1} END {print s}'", "pwd && ls -l", "sort --key=2 a"):
        assert redacted(command) == command


def test_no_secret_reaches_the_trail_the_database_or_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with served(Settings(data_dir=tmp_path)) as server:
        keys = [server.key, server.new_key("other", "admin")]
        with _client(server) as client:
            made = client.put("/v1/sessions", json={"user_id": "u", "thread_id": "t", "template": "open"}).json()
            sandbox = f"/v1/sandboxes/{made['sandbox_id']}"
            keys.append(client.post("/v1/keys", json={"name": "new"}).json()["key"])
            client.patch(sandbox, json={"env": {"PLAIN": CANARY}})
            client.post(f"{sandbox}/exec", json={"command": "echo", "env": {"PLAIN": CANARY}})
            client.post(f"{sandbox}/exec", json={"command": "echo", "env": {"NOT VALID": CANARY}})
            client.post(f"{sandbox}/exec", json={"command": "echo", "env": CANARY})
            client.post(f"{sandbox}/exec", json={"argv": ["run", f"--token={CANARY}", "--password", CANARY]})
            for command in [*SECRET_COMMANDS, f"echo {keys[0]}"]:
                client.post(f"{sandbox}/exec", json={"command": command})
                client.post(f"{sandbox}/processes", json={"command": command})
            client.get("/v1/sessions", headers={"authorization": f"Bearer {CANARY}"})
            client.get("/v1/sessions", headers={"authorization": "", "x-api-key": keys[1][:-1]})
            client.get(f"/v1/sessions?api_key={keys[1]}")
            rows = client.get("/v1/audit?limit=1000").text
            assert "command_executed" in rows
            client.patch(sandbox, json={"env": {}})  # the sandbox's own row holds its environment, as it must
    ours = [record for record in caplog.records if not record.name.startswith("http")]  # the caller here logs, too
    logged = "\n".join(f"{record.getMessage()} {record.args} {record.exc_text}" for record in ours)
    secrets = [CANARY, *(key.rpartition("_")[2] if key.count("_") == 2 else key[-30:] for key in keys)]
    for secret in secrets:
        assert secret not in rows
        assert secret not in logged
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("hutch.db*"))
    for key in keys:
        assert key[-30:].encode() not in kept
