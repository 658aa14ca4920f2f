"""Previews over a real server: who gets in, and what reaches beyond the one port."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hutch.settings import Settings
from hutch.testing.fake_provider import FakeProvider
from tests.preview_rig import PORT, Stage, echo, host_of, saying, staged
from tests.server_rig import served

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("data")) as made:
        yield made


@pytest.fixture(scope="module")
def a(stage: Stage) -> str:
    sandbox = stage.sandbox("a")
    stage.listen(sandbox, echo)
    stage.listen(sandbox, echo, 8080)
    return sandbox


@pytest.fixture(scope="module")
def b(stage: Stage) -> str:
    sandbox = stage.sandbox("b")
    stage.listen(sandbox, echo)
    return sandbox


def test_a_token_opens_its_port_and_no_other(stage: Stage, a: str, b: str) -> None:
    mine, sibling, other = stage.preview(a), stage.preview(a, 8080), stage.preview(b)
    with stage.visitor(mine) as visitor:
        assert visitor.get("/deep/er?x=1").json()["line"] == "GET /deep/er?x=1 HTTP/1.1"
    near = mine["token"][:-5] + mine["token"][-5:].swapcase()[::-1]
    for wrong in (
        sibling["token"],
        other["token"],
        near,
        mine["token"][:-1] + "!",
        "hutchp_x",
        "",
        stage.server.key,
        "é",
    ):
        for way in (
            {"hutch-preview-token": wrong},
            {"cookie": f"hutch_preview={wrong}"},
            {"authorization": f"Bearer {wrong or 'x'}"},
        ):
            sent = {name.encode(): value.encode() for name, value in way.items()}
            with stage.stranger(host=host_of(mine)) as stranger:
                answer = stranger.get("/", headers=sent)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), (wrong, way)
            assert mine["token"] not in answer.text


def test_without_a_token_nothing_is_said_of_what_is_there(stage: Stage, a: str) -> None:
    mine = stage.preview(a)
    missing = host_of(mine).replace(a, "sb" + "a" * 16)
    with stage.stranger() as stranger:
        there, not_there = (stranger.get("/", headers={"host": host}) for host in (host_of(mine), missing))
    assert there.status_code == not_there.status_code == 401
    assert there.text.replace(a, "") == not_there.text.replace("sb" + "a" * 16, "")


def test_the_token_becomes_a_cookie_and_leaves_the_address(stage: Stage, a: str) -> None:
    mine = stage.preview(a)
    with stage.stranger(host=host_of(mine), accept="text/html") as browser:
        answer = browser.get(f"/page?x=1&hutch_token={mine['token']}&y=2")
        assert answer.status_code == 303
        assert answer.headers["location"] == f"http://{host_of(mine)}/page?x=1&y=2"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= {part.strip() for part in cookie.split(";")}
        assert "domain" not in cookie.lower()
        pair = cookie.partition(";")[0]
        shown = browser.get("/page", headers={"cookie": f"theme=dark; {pair}"})
    assert shown.status_code == 200
    assert mine["token"] not in shown.text  # the sandbox never sees it
    assert "cookie: theme=dark" in shown.json()["headers"]


def test_programs_may_put_the_token_into_the_query(stage: Stage, a: str) -> None:
    mine = stage.preview(a)
    with stage.stranger(host=host_of(mine)) as program:
        answer = program.post(f"/x?%68utch_token={mine['token']}&keep=%2F", content=b"data")
    assert answer.json()["line"] == "POST /x?keep=%2F HTTP/1.1"
    assert answer.json()["body"] == "data"
    assert mine["token"] not in answer.text


def test_a_cookie_of_one_preview_opens_no_other_and_no_api(stage: Stage, a: str, b: str) -> None:
    cookie = {"cookie": f"hutch_preview={stage.preview(a)['token']}"}
    with stage.stranger(**cookie) as browser:
        for host in (host_of(stage.preview(b)), host_of(stage.preview(a, 8080))):
            assert browser.get("/", headers={"host": host}).status_code == 401
    with httpx.Client(base_url=stage.server.url, trust_env=False) as api:
        token = stage.preview(a)["token"]
        for headers in (cookie, {"authorization": f"Bearer {token}"}, {"x-api-key": token}):
            assert api.get("/v1/sessions", headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("headers", "method", "status"),
    [
        ({}, "GET", 200),
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, "POST", 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, "GET", 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, "POST", 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, "GET", 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, "GET", 403),
        ({"origin": "null"}, "POST", 403),
        ({"origin": "http://localhost:8000"}, "POST", 403),
        ({"origin": "http://[bad"}, "POST", 403),
    ],
)
def test_other_pages_cannot_use_the_cookie(
    stage: Stage, a: str, headers: dict[str, str], method: str, status: int
) -> None:
    mine = stage.preview(a)
    with stage.stranger(host=host_of(mine), cookie=f"hutch_preview={mine['token']}") as browser:
        assert browser.request(method, "/", headers=headers).status_code == status
        own = browser.request(method, "/", headers={"origin": f"http://{host_of(mine)}"})
    assert own.status_code == 200


def test_another_previews_page_cannot_open_a_websocket_with_the_cookie(stage: Stage, a: str, b: str) -> None:
    mine = stage.preview(a)
    headers = {"host": host_of(mine), "cookie": f"hutch_preview={mine['token']}"}
    for origin, status in ((f"http://{host_of(stage.preview(b))}", 403), (f"http://{host_of(mine)}", 200)):
        with pytest.raises(InvalidStatus) as caught:
            _websocket(stage, {**headers, "origin": origin})
        assert caught.value.response.status_code == status  # 200: what listens there knows no WebSockets


def _websocket(stage: Stage, headers: dict[str, str], path: str = "/") -> None:
    given = dict(headers)
    host = given.pop("host")
    sock = socket.create_connection(("127.0.0.1", stage.server.previews))
    with connect(f"ws://{host}{path}", sock=sock, additional_headers=given, proxy=None):
        pass


def test_no_token_is_written_to_the_log(stage: Stage, a: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    mine = stage.preview(a)
    with stage.stranger(host=host_of(mine), accept="text/html") as browser:
        for token in (mine["token"], mine["token"][:-5] + "wrong"):
            browser.get(f"/?hutch_token={token}")
            with pytest.raises(InvalidStatus):
                _websocket(stage, {"host": host_of(mine)}, f"/?x=1&hutch_token={token}")
    said = "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith("http"))
    assert "WebSocket /?x=1" in said  # the server's own line
    assert mine["token"][:-5] not in said


def test_tokens_expire(stage: Stage, a: str) -> None:
    mine = stage.preview(a, expires_in=0.3)
    with stage.visitor(mine) as visitor:
        assert visitor.get("/").status_code == 200
        time.sleep(0.4)
        assert visitor.get("/").status_code == 401
    with stage.api() as api:
        assert mine["token_id"] not in api.get(f"/v1/sandboxes/{a}/ports").text


@pytest.mark.parametrize("seconds", [0, -1, 7 * 86400 + 1, "nan", "inf", "soon"])
def test_no_token_is_made_for_no_time_or_for_ever(stage: Stage, a: str, seconds: object) -> None:
    with stage.api() as api:
        assert api.get(f"/v1/sandboxes/{a}/ports/{PORT}?expires_in={seconds}").status_code == 422


@pytest.mark.parametrize("port", [0, -1, 65536, 65536 + PORT, 4294967296 + PORT])
def test_a_port_is_never_cut_to_size(stage: Stage, a: str, port: int) -> None:
    mine = stage.preview(a)
    with stage.api() as api:
        assert api.get(f"/v1/sandboxes/{a}/ports/{port}").status_code == 422
        assert api.delete(f"/v1/sandboxes/{a}/ports/{port}").status_code == 422
    for label in (f"{port}-{a}", f"0{PORT}-{a}", f"+{PORT}-{a}", f"{PORT}-{a.upper()}x", f"{PORT}-{a}."):
        host = host_of(mine).replace(f"{PORT}-{a}", label)
        with stage.stranger(**{"hutch-preview-token": mine["token"]}) as stranger:
            assert stranger.get("/", headers={"host": host}).status_code in (400, 404), label


def test_revoked_tokens_open_nothing_and_what_they_opened_ends(stage: Stage, a: str) -> None:
    first, second = stage.preview(a, 8080), stage.preview(a, 8080)
    stage.listen(a, saying(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n", "hold"), 8080)
    with stage.visitor(second) as visitor, visitor.stream("GET", "/") as events:
        pieces = events.iter_raw()
        assert next(pieces) == b"data: 1\n\n"
        assert stage.revoke(a, 8080, token_id=first["token_id"]) == 204
        with stage.visitor(first) as late:
            assert late.get("/").status_code == 401
        assert stage.revoke(a, 8080) == 204
        with pytest.raises(httpx.RemoteProtocolError):  # broken off, not ended: it is not whole
            for _ in pieces:
                pass
    assert stage.revoke(a, 8080) == 204
    with stage.api() as api:
        left = {(row["port"]) for row in api.get(f"/v1/sandboxes/{a}/ports").json()}
    assert 8080 not in left


def test_only_who_may_use_the_sandbox_makes_or_revokes_tokens(stage: Stage, a: str) -> None:
    mine = stage.preview(a)
    for key, status in ((stage.server.new_key("other", "admin"), 404), (stage.server.new_key(scope="read"), 403)):
        with stage.api(key) as api:
            assert api.get(f"/v1/sandboxes/{a}/ports/{PORT}").status_code == status
            assert api.delete(f"/v1/sandboxes/{a}/ports/{PORT}").status_code == status
    with stage.visitor(mine) as visitor:
        assert visitor.get("/").status_code == 200
    with stage.api(stage.server.new_key("other", "admin")) as api:
        assert api.get(f"/v1/sandboxes/{a}/ports").status_code == 404
    with stage.api(stage.server.new_key(scope="read")) as api:
        listed = api.get(f"/v1/sandboxes/{a}/ports")
    assert mine["token_id"] in listed.text
    assert mine["token"].rpartition("_")[2] not in listed.text


def test_a_database_that_is_read_gives_no_token_away(stage: Stage, a: str) -> None:
    secret = stage.preview(a)["token"].rpartition("_")[2].encode()
    folder = stage.server.engine.settings.data_dir
    assert not any(secret in file.read_bytes() for file in folder.glob("hutch.db*"))


def test_the_token_of_a_sandbox_that_is_gone_opens_nothing(stage: Stage) -> None:
    sandbox = stage.sandbox("gone")
    mine = stage.preview(sandbox)
    with stage.api() as api:
        assert api.delete(f"/v1/sandboxes/{sandbox}").status_code == 204
    with stage.visitor(mine) as visitor:
        answer = visitor.get("/")
    assert (answer.status_code, answer.json()["code"]) == (404, "session_expired")


def test_tokens_hold_over_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("restart")
    provider = FakeProvider()
    with served(Settings(data_dir=folder), provider) as server:
        stage = Stage(server, provider)
        sandbox = stage.sandbox("t")
        mine = stage.preview(sandbox)
    with served(Settings(data_dir=folder), provider) as server:
        stage = Stage(server, provider)
        host = host_of(mine).partition(":")[0] + f":{server.previews}"
        with stage.visitor(mine, host=host) as visitor:
            answer = visitor.get("/")  # the machine is started again; what listened in it is not
            assert (answer.status_code, answer.json()["code"]) == (502, "port_unreachable")
            stage.listen(sandbox, echo)
            assert visitor.get("/").status_code == 200
