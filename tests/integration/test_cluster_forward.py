"""A coordinator's side of a connection, against workers that break off, lie, or send what nobody takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Message, Scope
from websockets.asyncio.server import ServerConnection, serve

from hutch.cluster.workers import WorkerInfo
from hutch.model.errors import WorkerLost
from hutch.model.wire import PROTOCOL
from hutch.server.calls import passing_on
from hutch.server.forward import Forward

pytestmark = pytest.mark.once

HANG = 20.0
PATH = "/v1/sandboxes/sb/x;y=1/z;w"


def scope_of(kind: str = "http", path: str = PATH, **more: Any) -> Scope:
    raw = path.encode("latin-1")
    return {"type": kind, "method": "GET", "raw_path": raw, "path": path, "query_string": b"q=1", "headers": [], **more}


def worker_at(port: int) -> WorkerInfo:
    return WorkerInfo("w1", f"http://127.0.0.1:{port}", PROTOCOL, "1", capacity=1)


class Caller:
    """What the one who asked gets to see; `says` is what it sends, then it is silent."""

    def __init__(self, *says: Message) -> None:
        self._says = list(says)
        self.got: list[Message] = []

    async def receive(self) -> Message:
        if self._says:
            return self._says.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def send(self, message: Message) -> None:
        self.got.append(message)


@asynccontextmanager
async def lying(answer: bytes, *, endless: bytes = b"") -> AsyncIterator[tuple[WorkerInfo, list[bytes]]]:
    """A worker that answers every connection with these bytes, and the first lines that it was sent."""
    heads: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
        try:
            writer.write(answer)
            while endless:
                writer.write(endless)
                await writer.drain()
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield worker_at(server.sockets[0].getsockname()[1]), heads


def play(body: Callable[[Forward], Awaitable[None]]) -> None:
    async def run() -> None:
        forward = Forward(lambda worker: True)
        try:
            async with asyncio.timeout(HANG):
                await body(forward)
        finally:
            await forward.aclose()

    asyncio.run(run())


def test_a_path_is_passed_on_to_the_letter() -> None:
    async def body(forward: Forward) -> None:
        async with lying(b"HTTP/1.1 204 No Content\r\n\r\n") as (worker, heads):
            await (await forward.ask(worker, scope_of(), b"")).aclose()
            assert heads == [f"GET {PATH}?q=1 HTTP/1.1".encode()]

    play(body)


@pytest.mark.parametrize(
    ("answer", "endless"),
    [
        (b"", b""),
        (b"nonsense\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: x\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65536),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000),
    ],
)
def test_an_answer_that_is_none_is_a_lost_worker(answer: bytes, endless: bytes) -> None:
    async def body(forward: Forward) -> None:
        async with lying(answer, endless=endless) as (worker, _):
            with pytest.raises(WorkerLost) as caught:
                await forward.ask(worker, scope_of(), b"")
            assert caught.value.details["sent"]

    play(body)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\npart\r\n",
    ],
)
def test_a_part_is_never_passed_on_as_the_whole(answer: bytes) -> None:
    async def body(forward: Forward) -> None:
        caller = Caller()
        async with lying(answer) as (worker, _):
            begun = await forward.ask(worker, scope_of(), b"")
            with pytest.raises(ConnectionAbortedError):
                await forward.relay(worker, begun, caller.send)
        assert all(message.get("more_body", True) for message in caller.got)

    play(body)


def test_a_worker_that_only_ever_says_wait_is_waited_for_as_long_as_its_caller_is_there() -> None:
    async def body(forward: Forward) -> None:
        gone = asyncio.Event()

        async def receive() -> Message:
            await gone.wait()
            return {"type": "http.disconnect"}

        async with lying(b"", endless=b"HTTP/1.1 102 Processing\r\n\r\n") as (worker, heads):

            async def work(receive: Any, send: Any) -> None:
                await forward.ask(worker, scope_of(), b"")

            asked = asyncio.create_task(passing_on(work, receive, Caller().send, body=False))
            while not heads:
                await asyncio.sleep(0.01)
            gone.set()
            await asyncio.wait({asked})
            assert type(asked.exception()).__name__ == "ClientDisconnect"

    play(body)


@pytest.mark.parametrize("there", ["http://127.0.0.1:{port}/secret", "/elsewhere", "//127.0.0.1:1/x", "ftp://x"])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_redirect_is_the_callers_to_follow(kind: str, there: str) -> None:
    """It may be the answer of what runs in a sandbox."""

    async def body(forward: Forward) -> None:
        async with lying(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret") as (other, asked):
            where = there.format(port=other.url.rpartition(":")[2])
            answer = f"HTTP/1.1 302 Found\r\nLocation: {where}\r\nX-Odd: \u00e4\r\nContent-Length: 0\r\n\r\n"
            async with lying(answer.encode("latin-1")) as (worker, heads):
                caller = Caller({"type": "websocket.connect"})
                if kind == "websocket":
                    await forward.websocket(worker, scope_of("websocket"), caller.receive, caller.send)
                else:
                    await forward.relay(worker, await forward.ask(worker, scope_of(), b""), caller.send)
                assert caller.got[0]["status"] == 302
                assert (b"location", where.encode()) in caller.got[0]["headers"]
                assert (b"x-odd", b"\xe4") in caller.got[0]["headers"]
                assert (len(heads), asked) == (1, [])

    play(body)


@pytest.mark.parametrize(("code", "told"), [(4001, 4001), (1000, 1000), (1005, 1000), (1006, 1000), (None, 1000)])
def test_the_code_by_which_a_caller_closes_reaches_the_worker(code: int | None, told: int) -> None:
    async def body(forward: Forward) -> None:
        seen: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

        async def talk(connection: ServerConnection) -> None:
            await connection.wait_closed()
            seen.set_result(connection.close_code)

        async with serve(talk, "127.0.0.1", 0) as server:
            worker = worker_at(next(iter(server.sockets)).getsockname()[1])
            caller = Caller({"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": code})
            await forward.websocket(worker, scope_of("websocket"), caller.receive, caller.send)
            assert await seen == told

    play(body)


def test_messages_that_nobody_takes_stay_with_the_worker() -> None:
    message, sent = b"x" * 4_000_000, 0

    async def body(forward: Forward) -> None:
        nonlocal sent
        taken = asyncio.Event()

        async def talk(connection: ServerConnection) -> None:
            nonlocal sent
            for _ in range(20):
                await connection.send(message)
                sent += 1

        async def send(message: Message) -> None:
            if message["type"] == "websocket.send":
                taken.set()
                await asyncio.Event().wait()

        async with serve(talk, "127.0.0.1", 0, compression=None, close_timeout=0.1) as server:
            worker = worker_at(next(iter(server.sockets)).getsockname()[1])
            caller = Caller({"type": "websocket.connect"})
            held = asyncio.create_task(forward.websocket(worker, scope_of("websocket"), caller.receive, send))
            await taken.wait()
            last = -1
            while last != sent:
                last = sent
                await asyncio.sleep(0.3)
            held.cancel()
            await asyncio.gather(held, return_exceptions=True)

    play(body)
    assert sent < 8
