"""The flat routes of older clients, as their programs call them: with requests, over a real server and sandboxes."""

from __future__ import annotations

import json
import socket
import threading
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import requests
from requests import Response

from hutch.server.services import ServerOptions
from hutch.settings import Settings
from tests.client_rig import memory_mib
from tests.server_rig import Served, served

MIB = 1024 * 1024
WORKSPACE = "/workspace"
ORDERS = [{"amount": 45.5}, {"amount": 67}, {"amount": 30}]
SUM = "jq '.[].amount' orders.json | awk '{sum += $1} END {print sum}'"


class Older:
    """What a client of the flat routes sends."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url
        self.http = requests.Session()
        self.http.trust_env = False
        if key is not None:
            self.http.headers["authorization"] = f"Bearer {key}"

    def post(self, route: str, **body: Any) -> Response:
        return self.http.post(f"{self.url}/{route}", json=body, timeout=60)

    def get(self, route: str, **query: str) -> Response:
        return self.http.get(f"{self.url}/{route}", params=query, timeout=60)

    def create(self, thread: str | None = None, user: str = "ada") -> dict[str, Any]:
        answer = self.post("create_session", user_id=user, thread_id=thread or uuid.uuid4().hex, timeout_minutes=30)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def run(self, session: str, command: str, **rest: Any) -> Response:
        return self.post("execute", session_id=session, command=command, **rest)

    def upload(self, session: str, name: str, data: Any, **fields: str) -> Response:
        fields = {"session_id": session, **fields}
        return self.http.post(f"{self.url}/upload_file", data=fields, files={"file": (name, data)}, timeout=60)

    def parts(self, *parts: tuple[str, Any]) -> Response:
        """A form in just this order."""
        return self.http.post(f"{self.url}/upload_file", files=list(parts), timeout=60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = Settings(
        data_dir=tmp_path_factory.mktemp("data"), max_file_size_mb=2, max_workspace_size_mb=3, max_total_files=5
    )
    with served(settings, options=ServerOptions(worker_id="worker1")) as made:
        yield made


@pytest.fixture(scope="module")
def older(server: Served) -> Older:
    return Older(server.url, server.key)


def test_the_nine_routes_from_a_session_to_its_end(older: Older) -> None:
    made = older.create("conversation")
    assert set(made) == {"session_id", "thread_id", "status", "workspace_dir", "user", "expires_at"}
    session = made["session_id"]
    assert (str(uuid.UUID(session)), made["thread_id"]) == (session, "conversation")
    assert (made["status"], made["workspace_dir"], made["user"]) == ("created", WORKSPACE, "ada")
    assert datetime.fromisoformat(made["expires_at"]) > datetime.now().astimezone()

    again = older.post("create_session", user_id="ada", thread_id="conversation")
    assert again.status_code == 409
    assert set(again.json()) == set(made) - {"expires_at"} | {"created_at", "last_activity"}
    assert (again.json()["status"], again.json()["session_id"]) == ("existing", session)

    stored = older.upload(session, "orders.json", json.dumps(ORDERS).encode())
    assert stored.json() == {
        "status": "uploaded",
        "filename": "orders.json",
        "path": f"{WORKSPACE}/orders.json",
        "size_bytes": len(json.dumps(ORDERS)),
    }
    ran = older.run(session, SUM + " > total.txt; cat total.txt nothing")
    assert set(ran.json()) == {"exit_code", "stdout", "stderr", "execution_time_ms"}
    assert (ran.status_code, ran.json()["exit_code"], ran.json()["stdout"]) == (200, 1, "142.5\n")
    assert "nothing" in ran.json()["stderr"]
    assert isinstance(ran.json()["execution_time_ms"], int)

    found = older.get("get_session", thread_id="conversation").json()
    names = {"session_id", "thread_id", "status", "created_at", "last_activity", "workspace_dir", "files_count"}
    assert set(found) == names
    assert (found["session_id"], found["status"], found["files_count"]) == (session, "active", 2)

    listed = older.get("list_files", session_id=session).json()
    assert (listed["session_id"], listed["workspace_dir"], listed["total_files"]) == (session, WORKSPACE, 2)
    assert [set(row) for row in listed["files"]] == [{"name", "size_bytes", "modified", "permissions"}] * 2
    assert [row["name"] for row in listed["files"]] == ["total.txt", "orders.json"]  # the newest first
    assert listed["total_size_bytes"] == sum(row["size_bytes"] for row in listed["files"])

    file = older.post("download_file", session_id=session, filename="total.txt")
    assert (file.content, file.headers["content-length"]) == (b"142.5\n", "6")
    assert file.headers["content-type"] == "application/octet-stream"
    assert file.headers["content-disposition"].startswith("attachment")

    status = older.get(f"status/{session}").json()
    assert set(status) == {"status", "worker", "created_at", "last_activity"}
    assert (status["status"], status["worker"]) == ("active", "worker1")
    health = older.get("health").json()
    assert health["status"] == "ok"
    assert {"worker_id", "pool_size", "pool_available", "active_sessions", "uptime_seconds", "redis_connected"} <= set(
        health
    )


def test_a_session_that_is_over_is_gone_for_every_route(older: Older) -> None:
    session = older.create("over")["session_id"]
    for _ in range(2):  # also for one that is gone
        over = older.post("cleanup", session_id=session)
        assert (over.status_code, over.json()) == (200, {"status": "cleaned_up", "session_id": session})
    gone = older.get(f"status/{session}")
    assert (gone.status_code, gone.json()["status"]) == (404, "not found")
    for answer in (
        older.run(session, "echo hi"),
        older.upload(session, "a", b"x"),
        older.post("download_file", session_id=session, filename="a"),
        older.get("list_files", session_id=session),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "session_expired")
        assert answer.json()["error"]
    missing = older.get("get_session", thread_id="over")
    assert (missing.status_code, missing.json()["thread_id"]) == (404, "over")
    assert missing.json()["error"]
    assert older.create("over")["session_id"] != session


def test_what_a_command_may_not_do(older: Older) -> None:
    session = older.create()["session_id"]
    refused = older.run(session, "cat a && rm -rf / " + "x" * 500)
    assert refused.status_code == 400
    assert refused.json()["forbidden_pattern"] == "rm"
    assert refused.json()["command"] == ("cat a && rm -rf / " + "x" * 500)[:200]
    assert refused.json()["error"]
    slow = older.run(session, "python3 -c 'import time; time.sleep(60)'", timeout=0.3)
    assert (slow.status_code, slow.json()["exit_code"]) == (200, 124)
    for timeout in (0, -1, 1e9):
        assert older.run(session, "echo hi", timeout=timeout).status_code == 400


@pytest.mark.parametrize(
    ("route", "body", "status"),
    [
        ("create_session", {"user_id": "u"}, 422),
        ("create_session", {"user_id": "u", "thread_id": ""}, 422),
        ("create_session", {"user_id": "u", "thread_id": "t", "timeout_minutes": 0}, 422),
        ("execute", {"command": "echo"}, 400),
        ("execute", {"session_id": 5, "command": "echo"}, 400),
        ("download_file", {"session_id": "x"}, 400),
        ("cleanup", {}, 400),
        ("upload_file", {"session_id": "x"}, 400),  # JSON is no form
        ("get_session", None, 400),
        ("list_files", None, 400),
    ],
)
def test_requests_with_something_missing(older: Older, route: str, body: dict[str, Any] | None, status: int) -> None:
    answer = older.get(route) if body is None else older.post(route, **body)
    assert (answer.status_code, answer.json()["code"]) == (status, "invalid_request")
    assert answer.json()["error"]


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", f"{WORKSPACE}/a", "a/../../b"])
def test_a_download_stays_in_the_workspace(older: Older, name: str) -> None:
    session = older.create()["session_id"]
    answer = older.post("download_file", session_id=session, filename=name)
    assert (answer.status_code, answer.json()["code"]) == (400, "path_rejected")


def test_a_file_that_is_not_there(older: Older) -> None:
    session = older.create()["session_id"]
    answer = older.post("download_file", session_id=session, filename="none")
    assert answer.status_code == 404
    assert (answer.json()["filename"], answer.json()["workspace_dir"]) == ("none", WORKSPACE)
    assert answer.json()["error"]


def test_each_limit_of_an_upload_has_its_answer(older: Older) -> None:
    session = older.create()["session_id"]
    for size in (2 * MIB + 1, 20 * MIB):  # seen by its announced length, in one piece and in many
        large = older.upload(session, "large", b"x" * size)
        assert large.status_code == 413
        assert large.json()["max_size_mb"] == 2
        assert large.json()["uploaded_size_mb"] >= 2
        assert large.json()["error"]
    assert older.upload(session, "a", b"x" * (2 * MIB)).status_code == 200
    full = older.upload(session, "b", b"x" * (3 * MIB // 2))
    assert full.status_code == 507
    assert (full.json()["max_workspace_mb"], full.json()["current_workspace_mb"]) == (3, 2)
    assert full.json()["file_size_mb"] == 1.5
    for name in "bcde":
        assert older.upload(session, name, b"").status_code == 200
    many = older.upload(session, "f", b"")
    assert many.status_code == 507
    assert (many.json()["max_files"], many.json()["current_files"]) == (5, 5)
    assert older.get("list_files", session_id=session).json()["total_files"] == 5


def test_a_form_may_name_its_session_and_its_file_in_any_order(older: Older) -> None:
    session = older.create()["session_id"]
    file = ("file", ("own", b"data"))
    named, other = ("session_id", (None, session)), ("filename", (None, "sub/other"))
    for parts, stored in (
        ((named, file), "own"),
        ((file, named), "own"),
        ((named, other, file), "sub/other"),
        ((file, other, named), "sub/other"),
        ((("note", (None, "x")), named, file, ("later", (None, "x"))), "own"),
    ):
        answer = older.parts(*parts)
        assert (answer.status_code, answer.json().get("path")) == (200, f"{WORKSPACE}/{stored}"), answer.text
        assert older.post("download_file", session_id=session, filename=stored).content == b"data"
    before = older.get("list_files", session_id=session).json()
    large = ("file", ("wrong", b"x" * (MIB // 2)))
    for wrong in (
        (named, large, other),  # too late: it is being stored by then
        (named, large, large),
        (named, named, large),
        (large,),
        (named,),
        (named, ("file", ("", b"nameless"))),
        (named, ("attachment", ("wrong", b"x"))),
        (("session_id", (None, "x" * 9000)), large),
        (*((f"n{at}", (None, "x")) for at in range(30)), named, large),
    ):
        answer = older.parts(*wrong)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), wrong
    assert older.get("list_files", session_id=session).json()["files"] == before["files"]
    too_large = older.parts(("file", ("wrong", b"x" * (2 * MIB + 1))), named)
    assert (too_large.status_code, too_large.json()["max_size_mb"]) == (413, 2)


@pytest.mark.parametrize("name", ["umlaut ä.txt", 'with "quotes".txt', "sub/folder/file", "semi;colon"])
def test_names_of_files_come_back_as_they_were(older: Older, name: str) -> None:
    session = older.create()["session_id"]
    answer = older.upload(session, "x", b"data", filename=name)
    assert answer.json()["filename"] == name
    file = older.post("download_file", session_id=session, filename=name)
    assert file.content == b"data"


def test_half_an_upload_is_no_file(older: Older, server: Served) -> None:
    session = older.create()["session_id"]
    for head in (f'name="session_id"\r\n\r\n{session}\r\n--b\r\nContent-Disposition: form-data; ', ""):
        start = f'--b\r\nContent-Disposition: form-data; {head}name="file"; filename="half"\r\n\r\n'.encode()
        request = (
            f"POST /upload_file HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.key}\r\n"
            f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {MIB}\r\n\r\n"
        ).encode()
        host, _, port = server.url.rpartition("/")[2].partition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(request + start + b"x" * 100_000)
        whole = start + b"x" * 10 + b"\r\n"  # all of it, but the form does not end
        answer = older.http.post(
            f"{older.url}/upload_file",
            data=whole,
            headers={"content-type": "multipart/form-data; boundary=b"},
            timeout=30,
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert older.get("list_files", session_id=session).json()["files"] == []
    spools = [path for path in server.engine.settings.data_dir.iterdir() if path.name.startswith("upload-")]
    assert spools == []


@pytest.mark.serial
@pytest.mark.parametrize("session_first", [True, False])
def test_memory_stays_flat_however_large_the_file(tmp_path: Path, *, session_first: bool) -> None:
    size = 300 * MIB
    settings = Settings(data_dir=tmp_path / "data", max_file_size_mb=400, max_workspace_size_mb=500)
    with served(settings) as server:
        older = Older(server.url, server.key)
        session = older.create()["session_id"]
        named = f'--b\r\nContent-Disposition: form-data; name="session_id"\r\n\r\n{session}\r\n'.encode()
        opened = b'--b\r\nContent-Disposition: form-data; name="file"; filename="large"\r\n\r\n'

        def form() -> Iterator[bytes]:
            if session_first:
                yield named
            yield opened
            for _ in range(size // MIB):
                yield bytes(MIB)
            yield b"\r\n"
            if not session_first:
                yield named
            yield b"--b--\r\n"

        before = memory_mib()
        most, over = [before], threading.Event()

        def look() -> None:
            while not over.wait(0.02):
                most.append(memory_mib())

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            kind = {"content-type": "multipart/form-data; boundary=b"}
            stored = older.http.post(f"{older.url}/upload_file", data=form(), headers=kind, timeout=100)
            assert stored.json()["size_bytes"] == size, stored.text
            body = {"session_id": session, "filename": "large"}
            received = 0
            with older.http.post(f"{older.url}/download_file", json=body, stream=True, timeout=100) as file:
                assert int(file.headers["content-length"]) == size
                for piece in file.iter_content(MIB):
                    received += len(piece)
        finally:
            over.set()
            watcher.join()
        assert received == size
        assert max(most) - before < 64, f"grew by {max(most) - before:.0f} MiB"


def test_another_tenants_session_is_not_there(older: Older, server: Served) -> None:
    session = older.create("private")["session_id"]
    assert older.upload(session, "a", b"secret").status_code == 200
    stranger = Older(server.url, server.new_key("other", "admin"))
    for answer in (
        stranger.run(session, "cat a"),
        stranger.upload(session, "b", b"x"),
        stranger.parts(("file", ("b", b"x")), ("session_id", (None, session))),
        stranger.post("download_file", session_id=session, filename="a"),
        stranger.get("list_files", session_id=session),
        stranger.get("get_session", thread_id="private"),
        stranger.get(f"status/{session}"),
    ):
        assert answer.status_code == 404, answer.text
        assert "secret" not in answer.text
    assert stranger.post("cleanup", session_id=session).status_code == 200  # as for one that never was
    assert stranger.create("private")["session_id"] != session
    assert older.run(session, "cat a").json()["stdout"] == "secret"
    other_user = older.post("create_session", user_id="bob", thread_id="private")
    assert (other_user.status_code, other_user.json()["code"]) == (403, "thread_owned_by_other")


def test_a_full_pool_says_so(tmp_path: Path) -> None:
    with served(Settings(data_dir=tmp_path, max_pool_size=1)) as server:
        older = Older(server.url, server.key)
        first = older.create()
        full = older.post("create_session", user_id="u", thread_id="second")
        assert (full.status_code, full.json()["code"]) == (503, "pool_exhausted")
        assert int(full.headers["retry-after"]) > 0
        assert full.json()["error"]
        older.post("cleanup", session_id=first["session_id"])
        older.create("second")


def test_without_a_key_only_where_that_was_said(older: Older, server: Served, tmp_path: Path) -> None:
    closed = Older(server.url, None)
    assert closed.post("create_session", user_id="u", thread_id="t").status_code == 401
    with served(Settings(data_dir=tmp_path), options=ServerOptions(mypa_open=True)) as open_server:
        keyless = Older(open_server.url, None)
        session = keyless.create("t", "u")["session_id"]
        assert keyless.upload(session, "a", b"mine").status_code == 200
        assert keyless.run(session, "cat a").json()["stdout"] == "mine"
        assert keyless.get("get_session", thread_id="t").json()["session_id"] == session
        # A key that is shown must be a good one, and has its own sessions.
        assert Older(open_server.url, "hutch_wrong").get(f"status/{session}").status_code == 401
        keyed = Older(open_server.url, open_server.key)
        assert keyed.get(f"status/{session}").status_code == 404
        assert keyless.get(f"status/{keyed.create('t', 'u')['session_id']}").status_code == 404
        # Nothing else opens, and nobody comes in through a proxy that stands on this machine.
        for route in ("v1/sessions", "v1/keys", "v1/audit", "openapi.json", "v1/doctor"):
            assert keyless.get(route).status_code == 401, route
        assert set(keyless.get("health").json()) == {"status"}
        for header in ("x-forwarded-for", "forwarded", "via", "x-real-ip"):
            answer = keyless.http.get(f"{open_server.url}/status/{session}", headers={header: "10.0.0.9"}, timeout=30)
            assert answer.status_code == 401
        page = {"origin": "https://evil.example"}
        assert keyless.http.get(f"{open_server.url}/status/{session}", headers=page, timeout=30).status_code == 403
