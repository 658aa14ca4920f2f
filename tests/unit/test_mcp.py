"""What MCP tools make of results, and the ways between them and an app of the same process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpcore
import pytest

from hutch.client.in_app import AppConnections
from hutch.model.errors import InvalidRequest, LimitExceeded, PoolExhausted
from hutch.model.process import ExecResult, LogChunk
from hutch.tools.mcp import content, specs, texts
from hutch.tools.mcp.calls import to_its_end
from hutch.tools.mcp.files import edited
from hutch.tools.mcp.progress import Progress
from hutch.tools.mcp.server import HutchMcp
from hutch.tools.mcp.sessions import Sessions

pytestmark = pytest.mark.once


def _result(**fields: Any) -> ExecResult:
    found: ExecResult = {
        "exit_code": 0,
        "stdout": "",
        "stderr": "",
        "execution_time_ms": 1,
        "timed_out": False,
        "limit": None,
        "truncated": False,
        "stdout_bytes": len(fields.get("stdout", "").encode()),
        "stderr_bytes": len(fields.get("stderr", "").encode()),
        "spooled_bytes": 0,
        "killed_processes": [],
        "session_recreated": False,
        "files_kept": True,
        "process_id": "p1",
    }
    return {**found, **fields}  # type: ignore[typeddict-item]  # of the same names


def test_output_that_fits_is_whole() -> None:
    assert texts.outcome(_result(stdout="a\n", stderr="b\n", exit_code=2)) == "a\n[stderr]\nb\n[exit code 2, 1 ms]"


@pytest.mark.parametrize("letter", ["x", "ä", "€", "𝄞"])
@pytest.mark.parametrize(("out", "err"), [(400_000, 0), (0, 400_000), (400_000, 400_000), (90_000, 30_000)])
def test_output_is_cut_to_what_a_model_may_have(letter: str, out: int, err: int) -> None:
    shown = texts.outcome(_result(stdout=letter * out, stderr=letter * err))
    assert len(shown.encode()) < texts.SHOWN_BYTES + 1_000
    assert "\ufffd" not in shown
    assert "process_output(" in shown


def test_output_whose_end_was_not_kept_shows_its_beginning() -> None:
    shown = texts.outcome(_result(stdout="x" * 200_000, stdout_bytes=10**9))
    assert f"{10**9} bytes in all" in shown
    assert "offset=100000" in shown


def test_what_ended_a_command_is_told() -> None:
    assert "timed out" in texts.outcome(_result(timed_out=True))
    assert "limit hit: memory" in texts.outcome(_result(limit="memory"))
    assert "sleep" in texts.outcome(_result(killed_processes=[{"pid": 1, "name": "sleep"}]))
    assert "without the old files" in texts.outcome(_result(session_recreated=True))


def test_a_page_of_output_says_how_to_go_on() -> None:
    chunk: LogChunk = {
        "data": b"ab",
        "text": "ab",
        "offset": 0,
        "next_offset": 2,
        "first_offset": 0,
        "total_bytes": 9,
        "complete": False,
    }
    assert texts.chunk(chunk) == "ab\n[7 more bytes: offset=2 reads on]"
    assert "the process has ended" in texts.chunk({**chunk, "complete": True})
    assert "no longer kept" in texts.chunk({**chunk, "first_offset": 5})
    assert "reads what comes" in texts.chunk({**chunk, "next_offset": 9})


def test_errors_name_code_and_remedy() -> None:
    assert texts.failure(LimitExceeded("Too much.", maximum=1)) == "ERROR: limit_exceeded: Too much."
    assert texts.failure(InvalidRequest("No.", hint="Say yes.")) == "ERROR: invalid_request: No. Say yes."
    assert texts.failure(PoolExhausted("Full.")).endswith("tried again.")


@pytest.mark.parametrize("cut", range(1, 12))
def test_files_are_paged_without_cutting_a_character(cut: int) -> None:
    data = "aä€𝄞b".encode()
    shown, offset = "", 0
    while offset < len(data):
        page = content.page(data[offset : offset + max(cut, 4)], "f", offset, len(data))
        text, _, rest = page.partition("\n[bytes")
        shown += text
        offset = int(rest.split("offset=")[1].split()[0]) if rest else len(data)
    assert shown == "aä€𝄞b"


def test_what_is_no_text_is_refused() -> None:
    for data in (b"\0", b"\xff\xfe", b"\xf0\x9d", b"abc\xffabc"):
        with pytest.raises(InvalidRequest, match="no UTF-8"):
            content.page(data, "f", 0, len(data))


def test_an_edit_is_of_one_place_or_of_all() -> None:
    assert edited(b"a b a", "f", "b", "c", everywhere=False) == (b"a c a", 1)
    assert edited(b"a b a", "f", "a", "c", everywhere=True) == (b"c b c", 2)
    for old in ("a", "z"):
        with pytest.raises(InvalidRequest):
            edited(b"a b a", "f", old, "c", everywhere=False)
    with pytest.raises(InvalidRequest, match="UTF-8"):
        edited(b"\xff", "f", "a", "b", everywhere=False)


def test_the_longest_unused_session_of_a_key_makes_room() -> None:
    sessions = Sessions(2)
    assert [sessions.used("k", one) for one in "abac"] == [[], [], [], ["b"]]
    assert sessions.used("other", "x") == []
    sessions.ended("k", "a")
    assert sessions.used("k", "d") == []
    sessions.ended("k", "never there")


def test_tools_are_described_and_strict() -> None:
    tools = asyncio.run(_tools())
    assert len(tools) == len(specs.ALL)
    for tool in tools:
        assert tool.description, tool.name
        assert tool.input_schema["additionalProperties"] is False
        assert tool.annotations is not None
        assert tool.annotations.open_world_hint is False
        assert not (tool.annotations.read_only_hint and tool.annotations.destructive_hint)


async def _tools() -> list[Any]:
    class Reach:
        def may_use(self, request: object) -> bool:
            return True

    from hutch.tools.mcp.server import _REQUEST

    _REQUEST.set(None)  # type: ignore[arg-type]  # nothing is asked of it
    return list(await HutchMcp(Reach()).list_tools())  # type: ignore[arg-type]  # neither of the rest


def test_a_flood_is_told_in_pieces() -> None:
    told: list[str | None] = []

    async def report(amount: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async def work() -> None:
        progress = Progress(report)
        async with progress.telling(None):
            for number in range(100_000):
                progress.feed(f"line {number}\n")
            await asyncio.sleep(0.5)
            progress.feed("half a line")

    asyncio.run(work())
    assert told[-1] == "half a line"
    assert told[0] is not None
    assert "left out" in told[0]
    assert told[0].endswith("line 99999\n")
    assert sum(len(one or "") for one in told) < 20_000


def test_who_cancels_waits_for_the_end() -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0.05)
            ended.append("slow")

    async def work() -> None:
        task = asyncio.create_task(to_its_end(slow(), None))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert ended == ["slow"]
        gone = asyncio.Event()
        task = asyncio.create_task(to_its_end(slow(), gone))
        await asyncio.sleep(0.01)
        gone.set()
        [error] = await asyncio.gather(task, return_exceptions=True)
        assert getattr(error, "code", None) == "client_closed"
        assert ended == ["slow", "slow"]

    asyncio.run(work())


# --- an app of the same process


def _request(content: Any = b"", target: str = "/a%20b?q=1") -> httpcore.Request:
    return httpcore.Request("POST", f"http://localhost{target}", headers=[("X-Y", "z")], content=content)


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    await send({"type": "http.response.start", "status": 201, "headers": [(b"path", scope["path"].encode())]})
    for at in range(0, len(body), 4):
        await send({"type": "http.response.body", "body": body[at : at + 4], "more_body": True})
    await send({"type": "http.response.body", "body": b"."})


async def _pieces() -> AsyncIterator[bytes]:
    yield b"one"
    yield b"two"


def test_a_request_reaches_the_app_and_its_answer_comes_back() -> None:
    async def work() -> None:
        connections = AppConnections(_echo)
        for content_, wanted in ((b"", b"."), (b"abcdefgh", b"abcdefgh."), (_pieces(), b"onetwo.")):
            answer = await connections.send(_request(content_))
            assert (answer.status, dict(answer.headers)) == (201, {b"path": b"/a b"})
            assert await answer.aread() == wanted
            await answer.aclose()

    asyncio.run(work())


def test_an_answer_that_breaks_off_is_told() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ConnectionAbortedError

    async def silent(scope: Any, receive: Any, send: Any) -> None: ...

    async def work() -> None:
        answer = await AppConnections(broken).send(_request())
        with pytest.raises(httpcore.RemoteProtocolError):
            await answer.aread()
        await answer.aclose()
        with pytest.raises(httpcore.RemoteProtocolError):
            await AppConnections(silent).send(_request())

    asyncio.run(work())


def test_who_leaves_is_told_to_the_app() -> None:
    left: list[str] = []

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await receive()
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.body", "body": b"to nobody", "more_body": True})
        left.append(scope["path"])

    async def work() -> None:
        connections = AppConnections(waits)
        task = asyncio.create_task(connections.send(_request(target="/before")))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        answer = await connections.send(_request(target="/begun"))
        await answer.aclose()
        assert left == ["/before", "/begun"]

    asyncio.run(work())
