"""Connections to a server: used again, never when they are not whole, and by the proxy that the environment names."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpcore
import pytest

from hutch.client.http_calls import Call, Caller
from hutch.engine.connections import BROKEN, Connections
from hutch.model.errors import ServerUnreachable
from tests.acceptance.proxies import API, Certificate, make_certificate

pytestmark = pytest.mark.once

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@dataclass
class Ear:
    """A server that writes down what it hears, and answers when it may."""

    url: str = ""
    heads: list[str] = field(default_factory=list[str])
    accepted: int = 0
    open: int = 0
    hangs_up: bool = False  # after an answer
    certificate: Certificate | None = None  # behind a tunnel that is asked for
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.open += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
                if head.startswith("CONNECT") and self.certificate is not None:
                    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                    context.load_cert_chain(self.certificate.cert, self.certificate.key)
                    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                    await writer.start_tls(context)
                    continue
                await self.may_answer.wait()
                writer.write(ANSWER)
                await writer.drain()
                if self.hangs_up:
                    break
        except (asyncio.IncompleteReadError, OSError):  # those of TLS are some, too
            pass
        finally:
            self.open -= 1
            writer.close()

    async def until(self, there: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not there():
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def listening(host: str = "127.0.0.1") -> AsyncIterator[Ear]:
    ear = Ear()
    ear.may_answer.set()
    server = await asyncio.start_server(ear.serve, host, 0)
    ear.url = f"http://{host}:{server.sockets[0].getsockname()[1]}"
    try:
        yield ear
    finally:
        server.close()


async def ask(connections: Connections, ear: Ear) -> None:
    answer = await connections.send(httpcore.Request("POST", ear.url, headers={"host": "x"}))
    try:
        assert await answer.aread() == b"{}"
    finally:
        await answer.aclose()


async def answered(ear: Ear) -> object:
    """What a caller gets. Raises: HutchError."""
    caller = Caller(ear.url, None)
    try:
        return await caller.json(Call("GET", "/"))
    finally:
        await caller.aclose()


def with_ear(play: Callable[[Ear, Connections], Awaitable[None]], *, kept: int = 10, seconds: float = 60.0) -> None:
    async def main() -> None:
        async with listening() as ear:
            connections = Connections(kept=kept, seconds=seconds)
            try:
                await play(ear, connections)
            finally:
                await connections.aclose()
            await ear.until(lambda: ear.open == 0)

    asyncio.run(main())


def test_one_after_the_other_take_the_same() -> None:
    async def play(ear: Ear, connections: Connections) -> None:
        for _ in range(5):
            await ask(connections, ear)
        assert (ear.accepted, len(ear.heads)) == (1, 5)

    with_ear(play)


def test_those_at_once_have_one_each_and_so_many_are_kept() -> None:
    async def play(ear: Ear, connections: Connections) -> None:
        ear.may_answer.clear()
        asking = [asyncio.create_task(ask(connections, ear)) for _ in range(20)]
        await ear.until(lambda: len(ear.heads) == 20)
        ear.may_answer.set()
        await asyncio.gather(*asking)
        assert ear.accepted == 20
        await ear.until(lambda: ear.open == 7)
        await asyncio.gather(*(ask(connections, ear) for _ in range(7)))
        assert ear.accepted == 20

    with_ear(play, kept=7)


def test_one_whose_server_hung_up_is_not_used_again() -> None:
    async def play(ear: Ear, connections: Connections) -> None:
        ear.hangs_up = True
        for number in range(1, 4):
            await ask(connections, ear)
            await ear.until(lambda: ear.open == 0)
            await asyncio.sleep(0.01)  # its end is on the way
            assert ear.accepted == number

    with_ear(play)


def test_one_that_was_kept_long_enough_is_not_used_again() -> None:
    async def play(ear: Ear, connections: Connections) -> None:
        await ask(connections, ear)
        await asyncio.sleep(0.01)
        await ask(connections, ear)
        assert ear.accepted == 2
        await ear.until(lambda: ear.open == 1)

    with_ear(play, seconds=0.001)


def test_those_that_nobody_takes_any_more_are_closed() -> None:
    async def play(ear: Ear, connections: Connections) -> None:
        await asyncio.gather(*(ask(connections, ear) for _ in range(8)))
        await asyncio.sleep(0.25)
        await ask(connections, ear)
        await ear.until(lambda: ear.open == 1)

    with_ear(play, seconds=0.2)


def test_one_whose_call_was_cancelled_is_not_used_again() -> None:
    async def play(ear: Ear, connections: Connections) -> None:
        ear.may_answer.clear()
        asking = asyncio.create_task(ask(connections, ear))
        await ear.until(lambda: len(ear.heads) == 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        ear.may_answer.set()
        await ask(connections, ear)
        assert ear.accepted == 2

    with_ear(play)


def test_one_whose_answer_was_not_read_is_not_used_again() -> None:
    async def play(ear: Ear, connections: Connections) -> None:
        answer = await connections.send(httpcore.Request("GET", ear.url, headers={"host": "x"}))
        await answer.aclose()
        await ask(connections, ear)
        assert ear.accepted == 2
        await ear.until(lambda: ear.open == 1)

    with_ear(play)


def test_closing_ends_those_under_way() -> None:
    async def play(ear: Ear, connections: Connections) -> None:
        ear.may_answer.clear()
        asking = asyncio.create_task(ask(connections, ear))
        await ear.until(lambda: len(ear.heads) == 1)
        await connections.aclose()
        (outcome,) = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(outcome, BROKEN)
        ear.may_answer.set()

    with_ear(play)


# --- proxies ---------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def call_by_proxy(
    url: str, monkeypatch: pytest.MonkeyPatch, name: str = "HTTP_PROXY", certificate: Certificate | None = None
) -> list[str]:
    """What the proxy heard of one call to `url`. Raises: HutchError."""

    async def main() -> list[str]:
        async with listening() as ear:
            ear.certificate = certificate
            monkeypatch.setenv(name, ear.url.replace("//", "//me:pass%40word@"))
            caller = Caller(url, "key")
            try:
                await caller.json(Call("GET", "/v1/sessions"))
            finally:
                await caller.aclose()
            return ear.heads

    return asyncio.run(main())


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_proxy_is_asked_and_told_who_asks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (head,) = call_by_proxy("http://hutch.test:8000/base", monkeypatch, name)
    assert head.startswith("GET http://hutch.test:8000/base/v1/sessions HTTP/1.1\r\n")
    known = base64.b64encode(b"me:pass@word").decode()
    assert f"Proxy-Authorization: Basic {known}\r\n" in head
    assert "\r\nhost: hutch.test:8000\r\n" in head
    assert "\r\nauthorization: Bearer key\r\n" in head


def test_tls_goes_through_a_proxy_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.cert))
    tunnel, call = call_by_proxy(f"https://{API}", monkeypatch, "HTTPS_PROXY", certificate)
    assert tunnel.startswith(f"CONNECT {API}:443 HTTP/1.1\r\n")
    assert "Bearer" not in tunnel
    assert call.startswith("GET /v1/sessions HTTP/1.1\r\n")


def test_a_certificate_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = make_certificate(tmp_path)
    with pytest.raises(ServerUnreachable, match="certificate"):
        call_by_proxy(f"https://{API}", monkeypatch, "HTTPS_PROXY", certificate)


@pytest.mark.parametrize("spared", ["127.0.0.2", "*", "a, 127.0.0.2"])
def test_some_are_spared_a_proxy(spared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with listening("127.0.0.2") as ear:  # for the client it is no name of this machine
            monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
            monkeypatch.setenv("NO_PROXY", spared)
            assert await answered(ear) == {}
            monkeypatch.delenv("NO_PROXY")
            with pytest.raises(ServerUnreachable, match="cannot be reached"):
                await answered(ear)

    asyncio.run(main())


def test_a_proxy_is_no_way_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with listening() as ear:
            monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
            assert await answered(ear) == {}

    asyncio.run(main())


@pytest.mark.parametrize("odd", ["socks5://127.0.0.1:1", "ftp://127.0.0.1:1"])
def test_a_proxy_that_cannot_be_used_is_told(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", odd)

    async def main() -> None:
        with pytest.raises(ServerUnreachable, match="cannot be reached"):
            await Caller("http://hutch.test", None).json(Call("GET", "/"))

    asyncio.run(main())


# --- requests --------------------------------------------------------------------------------------------------------


def test_bodies_say_how_long_they_are() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async def main() -> None:
        async with listening() as ear:
            ear.hangs_up = True
            caller = Caller(ear.url, "key\N{SNOWMAN}")
            for call in (
                Call("POST", "/", json={"a": 1}),
                Call("POST", "/"),
                Call("PUT", "/", content=pieces()),
                Call("PUT", "/", content=pieces(), headers={"content-length": "2"}),
                Call("GET", "/"),
            ):
                assert await caller.json(call) == {}
            await caller.aclose()
            sizes = [
                [line for line in head.splitlines() if line.startswith(("content-length", "transfer-encoding"))]
                for head in ear.heads
            ]
            assert [line for one in sizes for line in one] == [
                "content-length: 7", "content-length: 0", "transfer-encoding: chunked", "content-length: 2"
            ]  # fmt: skip
            assert "authorization: Bearer key\N{SNOWMAN}\r\n" in ear.heads[0]

    asyncio.run(main())


def test_names_of_servers_that_are_no_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    (head,) = call_by_proxy("http://b\u00fccher.invalid", monkeypatch)
    assert head.startswith("GET http://xn--bcher-kva.invalid/v1/sessions ")
    assert "\r\nhost: xn--bcher-kva.invalid\r\n" in head
