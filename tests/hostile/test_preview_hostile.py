"""Previews of a server in the sandbox that lies, stalls or floods; and visitors who try to say two things at once."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from hutch.server.preview import requests, upstream
from hutch.testing.fake_ports import FakeStream
from tests.client_rig import memory_mib
from tests.preview_rig import Stage, echo, host_of, ok, read_head, saying, staged

pytestmark = pytest.mark.once

MIB = 1 << 20


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("data")) as made:
        yield made


@pytest.fixture(scope="module")
def sandbox(stage: Stage) -> str:
    return stage.sandbox("t")


@pytest.fixture
def visitor(stage: Stage, sandbox: str) -> Iterator[httpx.Client]:
    with stage.visitor(stage.preview(sandbox)) as client:
        yield client


async def _endless_headers(stream: FakeStream) -> None:
    await read_head(stream)
    with contextlib.suppress(OSError):
        await stream.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            await stream.send(b"x-more: " + b"y" * 1000 + b"\r\n")


async def _endless_hints(stream: FakeStream) -> None:
    await read_head(stream)
    with contextlib.suppress(OSError):
        while True:
            await stream.send(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")
            await asyncio.sleep(0.01)


BROKEN = {
    "headers of 10 MB": saying(b"HTTP/1.1 200 OK\r\nx-big: " + b"y" * 10 * MIB + b"\r\n\r\n"),
    "headers without end": _endless_headers,
    "a status line without end": saying(b"HTTP/1.1 200 " + b"y" * MIB, "hold"),
    "nothing": saying(b""),
    "no HTTP": saying(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "half a head": saying(b"HTTP/1.1 200 OK\r\nx-a: 1"),
    "two lengths": saying(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"),
    "a length that is none": saying(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nab"),
    "an unknown coding": saying(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\nab"),
    "a switch nobody asked for": saying(b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n"),
    "status 999": saying(b"HTTP/1.1 999 What\r\ncontent-length: 0\r\n\r\n"),
    "a name with a space": saying(b"HTTP/1.1 200 OK\r\nx a: 1\r\n\r\n"),
    "a bare line break": saying(b"HTTP/1.1 200 OK\r\nx-a: 1\rset-cookie: b=2\r\n\r\n"),
    "a NUL": saying(b"HTTP/1.1 200 OK\r\nx-a: 1\0\r\n\r\n"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_an_answer_that_is_none_is_a_clear_error(stage: Stage, sandbox: str, visitor: httpx.Client, what: str) -> None:
    stage.listen(sandbox, BROKEN[what])
    answer = visitor.get("/")
    assert (answer.status_code, answer.json()["code"]) == (502, "port_misbehaved"), answer.text[:500]
    assert len(answer.content) < 2000
    stage.listen(sandbox, echo)
    assert visitor.get("/").status_code == 200


@pytest.mark.parametrize("what", ["silence", "hints without end"])
def test_an_answer_that_never_begins_ends(
    stage: Stage, sandbox: str, visitor: httpx.Client, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(requests, "ANSWER_SECONDS", 0.3)
    stage.listen(sandbox, saying(b"", "hold") if what == "silence" else _endless_hints)
    answer = visitor.get("/")
    assert (answer.status_code, answer.json()["code"]) == (502, "port_misbehaved")
    assert ("0.3" if what == "silence" else "again and again") in answer.json()["message"]


def test_an_answer_that_stops_half_way_is_broken_off(
    stage: Stage, sandbox: str, visitor: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "QUIET_SECONDS", 0.3)
    stage.listen(sandbox, saying(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf", "hold"))
    with pytest.raises(httpx.RemoteProtocolError):
        visitor.get("/")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    ],
)
def test_less_than_was_announced_is_never_taken_for_the_whole(
    stage: Stage, sandbox: str, visitor: httpx.Client, answer: bytes
) -> None:
    stage.listen(sandbox, saying(answer))
    with pytest.raises(httpx.RemoteProtocolError):
        visitor.get("/")


def test_more_than_was_announced_is_nobodys_answer(stage: Stage, sandbox: str, visitor: httpx.Client) -> None:
    """What a sandbox says after its answer must not become the answer to the next request on that connection."""
    stolen = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nstolen"
    stage.listen(sandbox, saying(ok(b"first") + stolen))
    assert [visitor.get("/").text for _ in range(3)] == ["first"] * 3
    both = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n"
    stage.listen(sandbox, saying(both + stolen))
    assert [visitor.get("/").text for _ in range(3)] == ["whole"] * 3


@pytest.mark.parametrize(
    ("method", "answer", "status"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n", 200),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 10\r\netag: a\r\n\r\n", 304),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("GET", b"HTTP/1.0 200 OK\r\n\r\nup to the end", 200),
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200),
    ],
)
def test_answers_without_a_body_of_their_own_pass(
    stage: Stage, sandbox: str, visitor: httpx.Client, method: str, answer: bytes, status: int
) -> None:
    stage.listen(sandbox, saying(answer))
    for _ in range(2):
        assert visitor.request(method, "/").status_code == status


def test_nothing_there_is_said_clearly(stage: Stage, sandbox: str) -> None:
    with stage.visitor(stage.preview(sandbox, 9)) as visitor:
        answer = visitor.get("/")
    assert (answer.status_code, answer.json()["code"]) == (502, "port_unreachable")
    assert answer.json()["retryable"] is True
    assert "9" in answer.json()["message"]


SMUGGLED = [
    b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /stolen HTTP/1.1\r\nHost: x\r\n\r\n",
    b"Content-Length: 4\r\nContent-Length: 30\r\n\r\nbodyGET /stolen HTTP/1.1\r\n\r\n",
    b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    b"X-A: 1\rX-Evil: 2\r\n\r\n",
    b"X-A: 1\nX-Evil: 2\r\n\r\n",
    b"X-A: 1\r\n X-Evil: 2\r\n\r\n",
    b"X-A: \0\r\n\r\n",
    b"Content-Length: +4\r\n\r\nbody",
    b"Content-Length: 0x4\r\n\r\nbody",
    b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
]


@pytest.mark.parametrize("tail", SMUGGLED)
def test_a_request_with_two_meanings_gets_one_or_none(stage: Stage, sandbox: str, tail: bytes) -> None:
    """Each connection into the sandbox carries one request, framed by us: nothing else is on the wire behind it."""
    seen: list[bytes] = []

    async def watching(stream: FakeStream) -> None:
        data = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                while piece := await stream.receive():
                    data += piece
        seen.append(data)
        with contextlib.suppress(OSError):
            await stream.send(ok(b"seen"))

    stage.listen(sandbox, watching)
    mine = stage.preview(sandbox)
    head = f"POST /first HTTP/1.1\r\nHost: {host_of(mine)}\r\nHutch-Preview-Token: {mine['token']}\r\n".encode()
    with stage.raw() as connection:
        connection.sendall(head + tail)
        connection.settimeout(1.5)
        with contextlib.suppress(TimeoutError):
            while connection.recv(65536):
                pass
    stage.listen(sandbox, echo)  # from the server's loop: what was under way has been there
    assert len(seen) <= 1, seen
    for wire in filter(None, seen):
        head, _, body = wire.lower().partition(b"\r\n\r\n")
        assert head.startswith(b"post /first http/1.1\r\n")
        lines = [line.partition(b":")[0] for line in head.split(b"\r\n")[1:]]
        assert b"x-evil" not in lines
        assert b"http2-settings" not in lines
        assert b"upgrade" not in lines
        framing = [line for line in lines if line in (b"content-length", b"transfer-encoding")]
        assert len(framing) <= 1
        assert b"stolen" not in body


def test_bodies_arrive_whole_however_they_are_framed(stage: Stage, sandbox: str, visitor: httpx.Client) -> None:
    stage.listen(sandbox, echo)
    assert visitor.post("/", content=b"x" * 100_000).json()["body"] == "x" * 100_000
    chunked = visitor.post("/", content=iter([b"one", b"two"])).json()
    assert "transfer-encoding: chunked" in chunked["headers"]
    assert "one" in chunked["body"]
    assert "two" in chunked["body"]
    assert visitor.post("/", content=b"").json()["body"] == ""


@pytest.mark.serial
def test_memory_stays_flat_both_ways(stage: Stage, sandbox: str, visitor: httpx.Client) -> None:
    size = 200 * MIB

    async def flood(stream: FakeStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size // MIB):
            await stream.send(bytes(MIB))

    async def drain(stream: FakeStream) -> None:
        _, rest = await read_head(stream)
        taken = len(rest)
        while taken < size:
            piece = await stream.receive()
            assert piece
            taken += len(piece)
        await stream.send(ok(str(taken).encode()))

    stage.listen(sandbox, flood)
    before, most = memory_mib(), 0.0
    with visitor.stream("GET", "/") as answer:
        taken = 0
        for piece in answer.iter_raw():
            taken += len(piece)
            most = max(most, memory_mib())
    assert taken == size
    stage.listen(sandbox, drain)
    pieces = (bytes(MIB) for _ in range(size // MIB))
    assert visitor.post("/", content=pieces, headers={"content-length": str(size)}).text == str(size)
    assert max(most, memory_mib()) - before < 60


def test_an_early_answer_reaches_who_still_sends(stage: Stage, sandbox: str, visitor: httpx.Client) -> None:
    stage.listen(sandbox, saying(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig", "close"))
    with contextlib.suppress(httpx.WriteError):
        assert visitor.post("/", content=bytes(3 * MIB)).status_code == 413


def test_a_visitor_who_leaves_takes_the_connection_with_him(stage: Stage, sandbox: str, visitor: httpx.Client) -> None:
    left = threading.Event()

    async def silent(stream: FakeStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")
        while await stream.receive():
            pass
        left.set()

    stage.listen(sandbox, silent)
    with visitor.stream("GET", "/") as events:
        pieces = events.iter_raw()
        assert next(pieces) == b"data: 1\n\n"  # at once, though nothing follows
        assert not left.wait(0.1)
        pieces.close()  # type: ignore[attr-defined]  # it is a generator
    assert left.wait(10)


def test_events_come_through_one_by_one(stage: Stage, sandbox: str, visitor: httpx.Client) -> None:
    heard = threading.Event()

    async def events(stream: FakeStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(3):
            heard.clear()
            data = b"data: %d\n\n" % number
            await stream.send(b"%x\r\n%s\r\n" % (len(data), data))
            await asyncio.to_thread(heard.wait, 10)  # the next one only after this one was read
        await stream.send(b"0\r\n\r\n")

    stage.listen(sandbox, events)
    with visitor.stream("GET", "/") as answer:
        seen = []
        for piece in answer.iter_raw():
            seen.append(piece)
            heard.set()
    assert seen == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]


def test_one_preview_cannot_take_all_connections(
    stage: Stage, sandbox: str, visitor: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hutch.server.preview.app.OPEN_AT_MOST", 3)
    stage.listen(sandbox, saying(b"HTTP/1.1 200 OK\r\n\r\nbegun", "hold"))
    with contextlib.ExitStack() as held:
        walks = [held.enter_context(visitor.stream("GET", "/")).iter_raw() for _ in range(3)]
        assert [next(walk) for walk in walks] == [b"begun"] * 3
        refused = visitor.get("/")
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert refused.headers["retry-after"] == "1"
    stage.listen(sandbox, echo)
    for _ in range(100):
        if visitor.get("/").status_code == 200:
            return
        time.sleep(0.05)
    pytest.fail("places of visitors who left are not free again")
