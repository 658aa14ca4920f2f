"""Every route of the API's description, without a key, with a revoked one, and with another tenant's ids.

A route is covered here the day it is added: the list is the description's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.routing import WebSocketRoute
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hutch.engine.assemble import Engine
from hutch.model.git import GIT_VERBS
from hutch.server.app import PUBLIC, create_api
from hutch.server.services import ServerOptions
from hutch.settings import Settings
from hutch.testing.fake_provider import FakeProvider
from tests.server_rig import Served, served

pytestmark = pytest.mark.once

API = json.loads((Path(__file__).parents[2] / "docs/reference/openapi.json").read_text())
OPERATIONS = [(method.upper(), path) for path, methods in API["paths"].items() for method in methods]
NEED_A_KEY = [(method, path) for method, path in OPERATIONS if path not in PUBLIC]
OF_A_SESSION = [
    (method.upper(), path)
    for path, methods in API["paths"].items()
    for method, operation in methods.items()
    if "mypa" in operation["tags"] and path != "/create_session"
]
OF_A_SANDBOX = [(method, path) for method, path in OPERATIONS if "{sandbox_id}" in path]
# What each operation needs to get past the check of its shape.
BODIES: dict[str, Any] = {
    "/v1/sessions": {"user_id": "u", "thread_id": "stolen"},
    "/v1/keys": {"name": "more"},
    "/v1/sandboxes/{sandbox_id}": {"cwd": "."},
    "/v1/sandboxes/{sandbox_id}/exec": {"command": "echo hi"},
    "/v1/sandboxes/{sandbox_id}/processes": {"command": "echo hi"},
    "/v1/sandboxes/{sandbox_id}/processes/{process_id}/resize": {"rows": 1, "columns": 1},
    "/v1/sandboxes/{sandbox_id}/processes/{process_id}/signal": {"signum": 15},
    "/v1/sandboxes/{sandbox_id}/files/mkdir": {"path": "folder"},
    "/v1/sandboxes/{sandbox_id}/files/move": {"source": "a", "target": "b"},
    "/v1/sandboxes/{sandbox_id}/egress": {"rules": [{"host": "a.test"}]},
    "/v1/sandboxes/{sandbox_id}/code/run": {"code": "1"},
    "/v1/sandboxes/{sandbox_id}/code/contexts": {"cwd": "."},
    **{f"/v1/sandboxes/{{sandbox_id}}/git/{verb}": {"path": "."} for verb in GIT_VERBS},
    "/v1/sandboxes/{sandbox_id}/git/clone": {"url": "x"},
    "/v1/sandboxes/{sandbox_id}/git/add": {"paths": ["a"]},
    "/v1/sandboxes/{sandbox_id}/git/commit": {"message": "m"},
    "/v1/sandboxes/{sandbox_id}/git/create-branch": {"name": "b"},
    "/v1/sandboxes/{sandbox_id}/git/checkout": {"name": "b"},
    "/v1/sandboxes/{sandbox_id}/git/delete-branch": {"name": "b"},
    "/v1/sandboxes/{sandbox_id}/git/add-remote": {"name": "o", "url": "x"},
    "/v1/sandboxes/{sandbox_id}/git/restore": {"paths": ["a"]},
    "/v1/sandboxes/{sandbox_id}/git/config": {"key": "a.b"},
    "/v1/sandboxes/{sandbox_id}/drive/place": {"paths": ["/a"]},
    "/v1/sandboxes/{sandbox_id}/drive/save": {"filename": "a", "path": "/a"},
    "/create_session": {"user_id": "u", "thread_id": "stolen"},
    "/execute": {"session_id": "{session_id}", "command": "echo hi"},
    "/download_file": {"session_id": "{session_id}", "filename": "a"},
    "/cleanup": {"session_id": "{session_id}"},
}
QUERIES = {
    "/get_session": {"thread_id": "t"},
    "/list_files": {"session_id": "{session_id}"},
    "/v1/sandboxes/{sandbox_id}/drive/place": {"user_id": "u"},
    "/v1/sandboxes/{sandbox_id}/drive/save": {"user_id": "u"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(Settings(data_dir=tmp_path_factory.mktemp("data")), FakeProvider()) as made:
        yield made


@pytest.fixture(scope="module")
def sandbox(server: Served) -> str:
    """Of the tenant `local`, with a file and a process that has ended."""
    with _client(server, server.key) as client:
        made = client.put("/v1/sessions", json={"user_id": "u", "thread_id": "t", "template": "open"}).json()
        assert client.put(f"/v1/sandboxes/{made['sandbox_id']}/files?path=a", content=b"secret").status_code == 200
    return str(made["sandbox_id"])


@pytest.fixture(scope="module")
def process(server: Served, sandbox: str) -> str:
    with _client(server, server.key) as client:
        order = {"command": "cat", "stdin": "pipe"}
        started = client.post(f"/v1/sandboxes/{sandbox}/processes", json=order)
    return str(started.json()["process_id"])


def _client(server: Served, key: str | None) -> httpx.Client:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=30)


def call(
    client: httpx.Client, method: str, path: str, sandbox: str, process: str, session: str = "x"
) -> httpx.Response:
    def filled(fields: dict[str, Any] | None) -> dict[str, Any] | None:
        return fields and {name: session if value == "{session_id}" else value for name, value in fields.items()}

    address = path.format(
        sandbox_id=sandbox,
        process_id=process,
        context_id="default",
        key_id="kaaaaaaaaaaaaaaaa",
        port=80,
        session_id=session,
    )
    if path == "/upload_file":
        return client.post(address, data={"session_id": session}, files={"file": ("a", b"changed")})
    if path.endswith("/drive/bytes"):
        return client.put(address, content=json.dumps([["a", 0, hashlib.sha256().hexdigest()]]) + "\n")
    query = filled(QUERIES.get(path)) or ({"path": "a"} if "/files" in path else {})
    body = filled(BODIES.get(path)) if method in ("POST", "PUT", "PATCH") else None
    return client.request(method, address, params=query, json=body or None)


@pytest.mark.parametrize(("method", "path"), NEED_A_KEY)
def test_without_a_key_nothing_is_said(server: Served, sandbox: str, process: str, method: str, path: str) -> None:
    revoked = server.new_key()
    server.run(server.engine.keys.revoke(revoked.split("_")[1]))
    for key in (None, revoked, revoked[:-1] + ("A" if revoked[-1] != "A" else "B"), "hutch_", "x" * 5000):
        with _client(server, key) as client:
            answer = call(client, method, path, sandbox, process)
        assert answer.status_code == 401, f"{key}: {answer.text}"
        assert answer.json()["code"] == "unauthorized"
        assert sandbox not in answer.text


@pytest.mark.parametrize(("method", "path"), OF_A_SANDBOX)
def test_another_tenants_sandbox_is_not_there(
    server: Served, sandbox: str, process: str, method: str, path: str
) -> None:
    with _client(server, server.new_key("other", "admin")) as client:
        answer = call(client, method, path, sandbox, process)
        missing = call(client, method, path, "sbaaaaaaaaaaaaaaaa", process)
    if (method, path) == ("DELETE", "/v1/sandboxes/{sandbox_id}"):
        assert answer.status_code == missing.status_code == 204  # as for one that ended: fine, and nothing happens
        return
    assert answer.status_code == 404, answer.text
    assert (missing.status_code, missing.json()) == (404, answer.json())  # not told from one that never was


@pytest.mark.parametrize(("method", "path"), OF_A_SESSION)
def test_another_tenants_session_is_not_there(server: Served, sandbox: str, method: str, path: str) -> None:
    with _client(server, server.key) as client:
        session = client.get(f"/v1/sandboxes/{sandbox}").json()["session_id"]
    with _client(server, server.new_key("other", "admin")) as client:
        answer = call(client, method, path, sandbox, "", session)
        missing = call(client, method, path, sandbox, "", "none")
    if path == "/cleanup":
        assert answer.status_code == missing.status_code == 200  # as for one that ended: fine, and nothing happens
        return
    assert answer.status_code == missing.status_code == 404, answer.text
    assert (answer.json()["code"], answer.json()["error"]) == (missing.json()["code"], missing.json()["error"])
    assert sandbox not in answer.text


def test_the_list_of_flat_routes_is_not_empty() -> None:
    assert len(OF_A_SESSION) == 7


def test_nothing_was_done_to_it(server: Served, sandbox: str, process: str) -> None:
    with _client(server, server.key) as client:
        assert client.get(f"/v1/sandboxes/{sandbox}/files?path=a").content == b"secret"
        assert client.get(f"/v1/sandboxes/{sandbox}/processes").json()[0]["status"] == "running"


@pytest.mark.parametrize(("method", "path"), NEED_A_KEY)
def test_a_key_that_may_only_read_changes_nothing(
    server: Served, sandbox: str, process: str, method: str, path: str
) -> None:
    with _client(server, server.new_key(scope="read")) as client:
        if path.endswith(("/events", "/watch", "/result")):
            return  # these wait for what happens; they only read
        answer = call(client, method, path, sandbox, process)
    if method != "GET" or path in ("/v1/keys", "/v1/audit"):
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_keys_of_another_tenant_are_not_listed_or_revoked(server: Served) -> None:
    with _client(server, server.new_key("other", "admin")) as client:
        mine = {row["key_id"] for row in client.get("/v1/keys").json()}
        theirs = server.key.split("_")[1]
        assert theirs not in mine
        assert client.delete(f"/v1/keys/{theirs}").status_code == 204
        assert client.post("/v1/keys", json={"name": "x", "tenant": "local"}).status_code == 422
    with _client(server, server.key) as client:
        assert client.get("/v1/keys").status_code == 200


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_without_a_key_is_not_collected_however_large(server: Served, kind: str) -> None:
    with _client(server, None) as client:
        answer = client.put("/v1/sessions", content=bytes(5 * 1024 * 1024), headers={"content-type": kind})
        assert (answer.status_code, answer.json()["code"]) == (413, "request_too_large")
    with _client(server, server.key) as client:  # what is streamed is not, whatever it is
        made = client.put("/v1/sessions", json={"user_id": "u", "thread_id": "big", "template": "open"}).json()
        file = f"/v1/sandboxes/{made['sandbox_id']}/files?path=big"
        answer = client.put(file, content=bytes(5 * 1024 * 1024), headers={"content-type": kind})
        assert answer.status_code == 200


def _websockets() -> list[str]:
    """Where there are WebSockets, whatever the description leaves out."""
    routes: list[Any] = list(create_api(cast(Engine, None), ServerOptions()).routes)
    found: list[str] = []
    while routes:
        route = routes.pop()
        routes += getattr(getattr(route, "original_router", None), "routes", [])
        if isinstance(route, WebSocketRoute):
            found.append(route.path)
    return sorted(found)


@pytest.mark.parametrize("path", _websockets())
def test_websockets_want_a_key_and_keep_to_their_tenant(server: Served, sandbox: str, path: str) -> None:
    address = server.url.replace("http", "ws", 1) + path.format(sandbox_id=sandbox, port=80)
    for key, status in ((None, 401), ("hutch_x", 401), (server.new_key(scope="read"), 403)):
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        with pytest.raises(InvalidStatus) as caught, connect(address, additional_headers=headers, proxy=None):
            pass
        assert caught.value.response.status_code == status
    if path.endswith("/exec"):
        return  # the command comes after the handshake, and with it the answer
    headers = {"authorization": f"Bearer {server.new_key('other')}"}
    with pytest.raises(InvalidStatus) as caught, connect(address, additional_headers=headers, proxy=None):
        pass
    assert caught.value.response.status_code == 404


def test_the_list_of_websockets_is_not_empty() -> None:
    assert len(_websockets()) >= 3


def test_pages_of_other_origins_and_names_pointed_at_us_are_refused(server: Served) -> None:
    with _client(server, server.key) as client:
        for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {"host": "evil.example"}, {"host": ""}):
            answer = client.get("/v1/sessions", headers=headers)
            assert answer.status_code in (400, 403), headers
        assert "access-control-allow-origin" not in client.options("/v1/sessions").headers
        assert client.get("/v1/sessions", headers={"host": "localhost:1"}).status_code == 200
