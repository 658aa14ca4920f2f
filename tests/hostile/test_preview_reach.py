"""What passes through a preview, and what of it reaches beyond: cookies, redirects, headers, routes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.preview_rig import PORT, Stage, echo, host_of, ok, saying, staged

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("data")) as made:
        yield made


@pytest.fixture(scope="module")
def a(stage: Stage) -> str:
    sandbox = stage.sandbox("a")
    stage.listen(sandbox, echo)
    return sandbox


@pytest.fixture(scope="module")
def b(stage: Stage) -> str:
    return stage.sandbox("b")


def test_routes_of_the_api_are_not_served_here(stage: Stage, a: str) -> None:
    mine = stage.preview(a)
    key = {"authorization": f"Bearer {stage.server.key}"}
    for host in (f"localhost:{stage.server.previews}", "127.0.0.1", "evil.example", "", host_of(mine) + "."):
        with stage.stranger(host=host, **key) as stranger:
            for path in ("/v1/sessions", "/health", "/v1/version", "/openapi.json", f"/v1/sandboxes/{a}"):
                assert stranger.get(path).status_code in (400, 404), (host, path)
    with stage.visitor(mine, **key) as visitor:
        answer = visitor.get("/v1/sessions").json()
    assert answer["line"] == "GET /v1/sessions HTTP/1.1"  # the sandbox's own, without our key
    assert stage.server.key not in json.dumps(answer)


def test_previews_are_not_served_by_the_api(stage: Stage, a: str) -> None:
    mine = stage.preview(a)
    with httpx.Client(base_url=stage.server.url, trust_env=False) as api:
        port = stage.server.url.rpartition(":")[2]
        host = f"{host_of(mine).partition(':')[0]}:{port}"
        headers = {"host": host, "hutch-preview-token": mine["token"], "authorization": f"Bearer {stage.server.key}"}
        assert api.get("/v1/sessions", headers=headers).status_code == 403


def test_names_that_were_pointed_here_show_nothing(stage: Stage, a: str) -> None:
    mine = stage.preview(a)
    label = f"{PORT}-{a}"
    for host in (
        f"{label}.evil.example",
        f"{label}.localhost.evil.example",
        f"x.{label}.localhost",
        label,
        "evil.example",
    ):
        with stage.stranger(host=host, **{"hutch-preview-token": mine["token"]}) as stranger:
            for path in ("/", f"/{label}/"):
                assert stranger.get(path).status_code == 404, (host, path)


def test_ours_never_gets_into_the_sandbox(stage: Stage, a: str) -> None:
    mine = stage.preview(a)
    sent = {
        "authorization": f"Bearer {stage.server.key}",
        "x-api-key": stage.server.key,
        "x-other": f"see {mine['token']}",
        "referer": f"{mine['url']}",
        "cookie": f"a=1; hutch_preview={mine['token']}; b={stage.server.key}; c=3",
        "x-forwarded-for": "1.2.3.4",
        "x-forwarded-host": "evil.example",
        "x_forwarded_host": "evil.example",
        "forwarded": "host=evil.example",
        "connection": "x-secret, close",
        "x-secret": "hop",
        "te": "trailers",
    }
    with stage.visitor(mine, **sent) as visitor:
        answer = visitor.get("/")
    said = "\n".join(answer.json()["headers"]).lower()
    for hidden in (stage.server.key, mine["token"], "evil.example", "1.2.3.4", "x-secret", "trailers"):
        assert hidden.lower() not in said
    assert "cookie: a=1; c=3" in said
    assert f"x-forwarded-host: {host_of(mine)}" in said
    assert f"\nhost: {host_of(mine)}" in f"\n{said}"
    with stage.visitor(mine, authorization="Basic dXNlcjpwdw==") as visitor:
        assert "authorization: Basic dXNlcjpwdw==" in visitor.get("/").json()["headers"]  # the app's own


def test_cookies_of_a_preview_stay_with_its_host(stage: Stage, a: str) -> None:
    cookies = [
        b"set-cookie: a=1; Path=/; Domain=localhost; HttpOnly",
        b"set-cookie: b=2; DOMAIN = .localhost ;secure",
        b"set-cookie: hutch_preview=stolen; Path=/",
        b"set-cookie: __HOST-hutch_preview=stolen; Path=/",
        b"clear-site-data: *",
        b"alt-svc: h3=:1",
        b"strict-transport-security: max-age=99; includeSubDomains",
    ]
    stage.listen(a, saying(ok(b"hi", *cookies)), 8081)
    with stage.visitor(stage.preview(a, 8081)) as visitor:
        answer = visitor.get("/")
    assert answer.headers.get_list("set-cookie") == ["a=1; Path=/; HttpOnly", "b=2;secure"]
    for name in ("clear-site-data", "alt-svc", "strict-transport-security"):
        assert name not in answer.headers


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("/next", "/next"),
        ("next?x=//a", "next?x=//a"),
        ("http://localhost:3000/next?a#b", "{scheme}{own}/next?a#b"),
        ("http://127.0.0.1:3000", "{scheme}{own}/"),
        ("https://[::1]:3000/x", "{scheme}{own}/x"),
        ("http://{own}/x", "http://{own}/x"),
        ("http://LOCALHOST:8000/v1/sessions", "{scheme}8000-{id}{rest}/v1/sessions"),  # the sandbox's 8000, not ours
        ("//localhost:8000/v1", "{scheme}8000-{id}{rest}/v1"),
        ("\\\\localhost:8000\\v1", "{scheme}8000-{id}{rest}/v1"),
        ("ht\ttp:localhost:8000/v1", "{scheme}8000-{id}{rest}/v1"),
        ("http://user@localhost:8000/", "{scheme}8000-{id}{rest}/"),
        ("https://example.com/login", "https://example.com/login"),
    ],
)
def test_redirects_stay_in_the_sandbox_or_leave_for_the_world(stage: Stage, a: str, said: str, seen: str) -> None:
    mine = stage.preview(a)
    words = {"own": host_of(mine), "id": a, "rest": host_of(mine).removeprefix(f"{PORT}-{a}"), "scheme": "http://"}
    target = said.format(**words).encode()
    stage.listen(a, saying(b"HTTP/1.1 302 Found\r\nlocation: " + target + b"\r\ncontent-length: 0\r\n\r\n"))
    with stage.visitor(mine) as visitor:
        answer = visitor.get("/")
    stage.listen(a, echo)
    assert answer.headers["location"] == seen.format(**words)


@pytest.mark.parametrize(
    "said", ["http://{other}/", "//{other}/", "http://x.localhost:1/", "http://2130706433:8000/", "http://0x7f.1:8000/",
             "http://%6cocalhost:8000/", "http://{other}./"]
)  # fmt: skip
def test_redirects_to_other_previews_or_to_the_server_are_refused(stage: Stage, a: str, b: str, said: str) -> None:
    target = said.format(other=host_of(stage.preview(b))).encode()
    stage.listen(a, saying(b"HTTP/1.1 302 Found\r\nlocation: " + target + b"\r\ncontent-length: 0\r\n\r\n"))
    with stage.visitor(stage.preview(a)) as visitor:
        answer = visitor.get("/")
    stage.listen(a, echo)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert "location" not in answer.headers


def test_programs_may_use_a_path_instead_of_a_host(stage: Stage, a: str, b: str) -> None:
    mine = stage.preview(a)
    path = mine["address"].partition(str(stage.server.previews))[2]
    assert path == f"/{PORT}-{a}"
    with stage.stranger(**{"hutch-preview-token": mine["token"], "cookie": "x=1"}) as program:
        answer = program.get(f"{path}/deep//er%2F?x=1")
        assert answer.json()["line"] == "GET /deep//er%2F?x=1 HTTP/1.1"
        headers = answer.json()["headers"]
        assert "host: localhost:3000" in headers
        assert f"x-forwarded-prefix: {path}" in headers
        assert not any(one.startswith("cookie") for one in headers)  # one host for all previews: no cookies
        # Pages from here get an origin that is nobody's, so that they share none with each other.
        assert answer.headers["content-security-policy"] == "sandbox"
        assert program.get(path.replace(a, b) + "/").status_code == 401
        stage.listen(a, saying(b"HTTP/1.1 302 F\r\nlocation: /x\r\nset-cookie: a=1\r\ncontent-length: 0\r\n\r\n"))
        moved = program.get(f"{path}/")
        stage.listen(a, echo)
    assert moved.headers["location"] == f"{path}/x"
    assert "set-cookie" not in moved.headers
    with stage.stranger(cookie=f"hutch_preview={mine['token']}") as browser:
        assert browser.get(f"{path}/").status_code == 401  # and none opens anything
