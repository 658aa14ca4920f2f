"""Requests that lie, are too large, or take for ever: each is refused, and the next caller notices nothing."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from hutch.server import guard
from hutch.server.connection import HEAD_BYTES, HEAD_FIELDS, REST_BYTES, UNSENT_BYTES, HttpConnection
from hutch.server.listen import bind, make_server, serving
from hutch.settings import Settings
from hutch.testing.fake_provider import FakeProvider
from tests.hostile.server.wire_stage import Wire, framed, resident_bytes, until_true
from tests.server_rig import Served, served

pytestmark = pytest.mark.once

MB = 1024 * 1024
ENOUGH = 64 * MB  # what a flood sends at most


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(Settings(data_dir=tmp_path_factory.mktemp("data")), FakeProvider()) as made:
        yield made


@pytest.fixture(scope="module")
def sandbox(server: Served) -> str:
    body = {"user_id": "u", "thread_id": "t", "template": "open"}
    made = _call(server, "PUT", "/v1/sessions", json=body).json()
    return f"/v1/sandboxes/{made['sandbox_id']}"


@pytest.fixture(autouse=True)
def _others_are_served(server: Served, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """After each attack: the server answers, and wrote no traceback for it."""
    with caplog.at_level(logging.WARNING):
        yield
    assert _call(server, "GET", "/v1/sessions").status_code == 200
    assert not [record for record in caplog.records if record.exc_info]


def _call(server: Served, method: str, path: str, **rest: object) -> httpx.Response:
    headers = {"authorization": f"Bearer {server.key}", **(rest.pop("headers", None) or {})}  # type: ignore[dict-item]
    return httpx.request(method, server.url + path, headers=headers, trust_env=False, timeout=20, **rest)  # type: ignore[arg-type]


# --- heads -----------------------------------------------------------------------------------------------------------


def test_a_hundred_thousand_headers(server: Served) -> None:
    with Wire(server.url) as wire:
        wire.head("GET", "/v1/sessions", {f"a{number}": "" for number in range(HEAD_FIELDS + 1)})
        assert wire.status() == 400
    with Wire(server.url) as wire:
        assert _flood(wire, b"GET / HTTP/1.1\r\n", lambda number: b"a%d: b\r\n" % number * 1000) < 4 * MB
    with Wire(server.url) as wire:
        wire.head("GET", "/health", {f"a{number}": "" for number in range(100)})
        assert wire.status() == 200


@pytest.mark.parametrize("beginning", [b"GET /", b"GET / HTTP/1.1\r\na: ", b"GET / HTTP/1.1\r\n", b""])
def test_a_head_without_end(server: Served, beginning: bytes) -> None:
    with Wire(server.url) as wire:
        assert _flood(wire, beginning, lambda _: b"x" * HEAD_BYTES) < 4 * MB


def test_a_head_without_end_behind_a_call_under_way(server: Served, sandbox: str) -> None:
    with Wire(server.url) as wire:
        wire.ask("POST", f"{sandbox}/exec", server.key, {"command": "sleep 20"})
        assert _flood(wire, b"GET / HTTP/1.1\r\na: ", lambda _: b"x" * HEAD_BYTES) < 4 * MB
    assert until_true(lambda: not _running(server, sandbox))


def test_requests_before_the_answer_to_the_last_one_get_none(server: Served) -> None:
    with Wire(server.url) as wire:
        wire.ask("GET", "/v1/version", server.key)
        wire.until(b"}")
        wire.send(b"GET /v1/version HTTP/1.1\r\nHost: %b\r\n\r\n" % wire.host.encode() * 3)
        assert wire.rest().count(b"200 OK") == 1


def test_a_body_that_goes_on_after_its_answer_is_no_head(server: Served) -> None:
    with Wire(server.url) as wire:
        half = HEAD_BYTES * 2
        wire.head("POST", "/v1/nothing", {"Content-Length": str(2 * half)})
        wire.until(b"}")
        for _ in range(2):
            wire.send(b"x" * half)
            time.sleep(0.05)
        wire.ask("GET", "/v1/version", server.key)
        assert wire.status() == 200


def test_a_body_that_goes_on_for_ever_after_its_answer(server: Served) -> None:
    with Wire(server.url) as wire:
        wire.head("POST", "/v1/nothing", {"Content-Length": str(100 * ENOUGH)})
        wire.until(b"}")
        assert _flood(wire, b"", lambda _: b"x" * HEAD_BYTES) < REST_BYTES + 16 * MB


@pytest.mark.parametrize(("method", "status"), [("POST", 204), ("GET", 304), ("HEAD", 200)])
def test_a_request_may_follow_the_head_of_an_answer_without_a_body(method: str, status: int) -> None:
    """Its peer has all of that answer before the app has said that it was all."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"5")] if method == "HEAD" else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await asyncio.sleep(0.05)
        await send({"type": "http.response.body", "body": b""})

    async def ask_twice() -> None:
        listener = bind("127.0.0.1", 0)
        async with serving(make_server(app, drain_seconds=1), listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            for _ in range(2):
                writer.write(b"%s / HTTP/1.1\r\nHost: x\r\n\r\n" % method.encode())
                assert b" %d " % status in await reader.readuntil(b"\r\n\r\n")
            writer.close()

    asyncio.run(ask_twice())


def test_the_first_of_several_requests_hears_that_its_caller_left(server: Served, sandbox: str) -> None:
    wire = Wire(server.url)
    wire.ask("POST", f"{sandbox}/exec", server.key, {"command": "sleep 1000"})
    assert until_true(lambda: len(_running(server, sandbox)) == 1)
    wire.ask("GET", "/v1/version", server.key)
    wire.ask("GET", "/v1/version", server.key)
    time.sleep(0.1)
    wire.reset()
    assert until_true(lambda: not _running(server, sandbox))


def test_heads_and_bodies_that_trickle_in_end_by_a_time_out(
    server: Served, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpConnection, "head_seconds", 0.3)
    for beginning in (b"", b"\r\n", b"GET", b"GET / HTTP/1.1\r\nHost: loc"):
        with Wire(server.url) as wire:
            wire.send(beginning)
            assert wire.rest() == b""
    with Wire(server.url) as wire:  # the second request of a connection
        wire.ask("GET", "/health", server.key)
        wire.until(b"}")
        wire.send(b"GET / HT")
        assert wire.rest() == b""
    with _impatient(server) as patience, Wire(server.url) as wire:
        wire.head("PUT", f"{sandbox}/files?path=slow", {"Authorization": f"Bearer {server.key}", "Content-Length": "9"})
        wire.send(b"abc")
        assert wire.status() == 422
        assert patience == 0.3
    assert _call(server, "GET", f"{sandbox}/files/stat?path=slow").status_code == 404


@contextmanager
def _impatient(server: Served) -> Iterator[float]:
    """Its guard waits a moment only."""
    found = [one for one in _guards() if one._seconds == guard.PIECE_SECONDS]
    assert found
    for one in found:
        one._seconds = 0.3
    try:
        yield 0.3
    finally:
        for one in found:
            one._seconds = guard.PIECE_SECONDS


def _guards() -> list[guard.Guard]:
    import gc

    return [one for one in gc.get_objects() if type(one) is guard.Guard]


def test_a_peer_that_lives_and_takes_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel, on every connection: also when the server has done its part and only wants to close."""
    monkeypatch.setattr("hutch.server.listen.PIECE_SECONDS", 0.5)
    with bind("127.0.0.1", 0) as listener:
        listener.listen()
        with Wire(f"http://127.0.0.1:{listener.getsockname()[1]}", receive_buffer=4096):
            accepted, _ = listener.accept()
            with accepted, pytest.raises(TimeoutError, match="timed out") as caught:
                accepted.settimeout(30)
                while True:
                    accepted.sendall(bytes(MB))
    assert caught.value.errno == errno.ETIMEDOUT  # the kernel's word, not this test's patience


# --- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lie",
    [
        {"Content-Length": "-1"},
        {"Content-Length": "1e9"},
        {"Content-Length": "99999999999999999999999999"},
        {"Content-Length": "5", "content-length": "6"},
        {"Content-Length": "5", "Transfer-Encoding": "chunked"},
        {"Transfer-Encoding": "chunked, identity"},
    ],
)
def test_lengths_that_cannot_be(server: Served, sandbox: str, lie: dict[str, str]) -> None:
    with Wire(server.url) as wire:
        wire.head("PUT", f"{sandbox}/files?path=lie", {"Authorization": f"Bearer {server.key}", **lie})
        wire.send(b"hello")
        assert wire.status() in (0, 400, 413, 422)
    assert _call(server, "GET", f"{sandbox}/files/stat?path=lie").status_code == 404


def test_more_is_announced_than_a_sandbox_takes(server: Served, sandbox: str) -> None:
    with Wire(server.url) as wire:
        headers = {"Authorization": f"Bearer {server.key}", "Content-Length": str(10**15)}
        wire.head("PUT", f"{sandbox}/files?path=huge", headers)
        wire.socket.settimeout(10)
        assert wire.status() == 413


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/json; charset=utf-8"])
def test_json_without_end(server: Served, sandbox: str, kind: str) -> None:
    """In chunks, so that no length tells beforehand."""
    before = resident_bytes()
    headers = {"Authorization": f"Bearer {server.key}", "Transfer-Encoding": "chunked", "Content-Type": kind}
    with Wire(server.url) as wire:
        wire.head("POST", f"{sandbox}/exec", headers)
        chunk = b"10000\r\n" + b"[" * 65536 + b"\r\n"
        assert _flood(wire, b"", lambda _: chunk) < 16 * MB
    assert resident_bytes() - before < 64 * MB


@pytest.mark.parametrize(
    "body", [b"[" * 200_000, b'{"command":' * 100_000, b'{"command": "x", "env": {"a": ' + b"1" * 10_000]
)
def test_deep_and_endless_json(server: Served, sandbox: str, body: bytes) -> None:
    with Wire(server.url) as wire:
        wire.ask("POST", f"{sandbox}/exec", server.key, body, Content_Type="application/json")
        assert wire.status() == 422


def test_chunks_of_one_byte(server: Served, sandbox: str) -> None:
    headers = {"Authorization": f"Bearer {server.key}", "Transfer-Encoding": "chunked"}
    with Wire(server.url) as wire:
        wire.head("PUT", f"{sandbox}/files?path=crumbs", headers)
        wire.send(b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n")
        assert wire.status() == 200
    assert _call(server, "GET", f"{sandbox}/files/stat?path=crumbs").json()["size_bytes"] == 20_000


# --- names -----------------------------------------------------------------------------------------------------------

ODD = [
    "%2e%2e",
    "..%2f..%2fetc",
    "%00",
    "a%00b",
    "%ed%a0%80",
    "%ff%fe",
    "%",
    "%zz",
    "x" * 5000,
    "%0d%0aset-cookie:a",
    "'--",
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd[:20])
def test_odd_ids_are_not_there(server: Served, sandbox: str, odd: str) -> None:
    for target in (f"/v1/sandboxes/{odd}", f"{sandbox}/processes/{odd}/logs", f"/v1/sandboxes/{odd}/files?path=a"):
        with Wire(server.url) as wire:
            wire.ask("GET", target, server.key)
            answer = wire.until(b"\r\n\r\n")
        assert answer.split()[1] in (b"400", b"404", b"422"), answer
        assert b"\r\nset-cookie" not in answer


@pytest.mark.parametrize(
    "path", ["%2e%2e", "..%2f..%2fetc%2fpasswd", "a/../../etc", "%00", "a%00b", "/etc/passwd", "%2fproc%2fself%2froot"]
)
def test_paths_that_lead_out_are_refused(server: Served, sandbox: str, path: str) -> None:
    for method, target in (("GET", "files"), ("PUT", "files"), ("GET", "files/stat"), ("DELETE", "files")):
        with Wire(server.url) as wire:
            wire.ask(method, f"{sandbox}/{target}?path={path}", server.key)
            assert wire.status() in (400, 422), (method, target)


def test_surrogates_and_odd_bytes_name_files(server: Served, sandbox: str) -> None:
    for name in ("%ff%fe", "%ed%a0%80", "%c3%a4", "a%0ab"):
        assert _call(server, "PUT", f"{sandbox}/files?path={name}", content=name.encode()).status_code == 200
        assert _call(server, "GET", f"{sandbox}/files?path={name}").content == name.encode()
    body = b'{"command": "echo \\ud800", "tag": "\\udfff"}'
    answer = _call(server, "POST", f"{sandbox}/exec", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 422)


def test_a_page_may_not_ask_beforehand_whether_it_may(server: Served) -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "PUT"}
    for path in ("/v1/sessions", "/health", "/v1/sandboxes/x/exec"):
        answer = _call(server, "OPTIONS", path, headers=asked)
        assert answer.status_code == 403
        assert _call(server, "OPTIONS", path, headers={**asked, "origin": "http://["}).status_code == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]


# --- WebSockets ------------------------------------------------------------------------------------------------------


def test_pings_whose_answers_nobody_reads(server: Served, sandbox: str) -> None:
    before = resident_bytes()
    with Wire(server.url, receive_buffer=4096) as wire:
        wire.upgrade(f"{sandbox}/exec", server.key)
        assert _flood(wire, b"", lambda _: framed(b"x" * 125, 9) * 500) < ENOUGH
    assert resident_bytes() - before < 16 * UNSENT_BYTES


def test_messages_without_end(server: Served, sandbox: str) -> None:
    with Wire(server.url) as wire:
        wire.upgrade(f"{sandbox}/exec", server.key)
        assert _flood(wire, framed(b"{", 1, last=False), lambda _: framed(b"x" * 60_000, 0, last=False)) < 16 * MB


@pytest.mark.parametrize("said", [b"", b"{", b"[]", b"7", b'{"input": 1}', b'{"resize": "x"}', b"[" * 100_000, b"\xff"])
def test_messages_that_make_no_sense(server: Served, sandbox: str, said: bytes) -> None:
    for first in (True, False):
        with Wire(server.url) as wire:
            wire.upgrade(f"{sandbox}/exec", server.key)
            if not first:
                wire.frame(json.dumps({"command": "cat", "stdin": "pipe"}).encode())
                wire.until(b"started")
            wire.frame(said)
            if said == b'{"input": 1}' and not first:
                continue  # a number is taken for its text
            wire.until(b"invalid_request" if said != b"\xff" else b"\x88")  # no text: the connection's end
    assert until_true(lambda: not _running(server, sandbox))


def _running(server: Served, sandbox: str) -> list[str]:
    rows = _call(server, "GET", f"{sandbox}/processes").json()
    return [row["command"] for row in rows if row["status"] == "running"]


def _flood(wire: Wire, beginning: bytes, piece: Callable[[int], bytes]) -> int:
    """Bytes that could be sent until the server had enough of it; ENOUGH: it never had."""
    sent = 0
    wire.socket.settimeout(5)
    try:
        wire.send(beginning)
        while sent < ENOUGH:
            data = piece(sent)
            wire.send(data)
            sent += len(data)
    except ConnectionError:
        pass
    except TimeoutError:  # it does not read on, which is as good
        pass
    return sent
