"""MCP over HTTP, as the protocol's own client sees it, over real sandboxes."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import BlobResourceContents, ImageContent, TextResourceContents

from tests.mcp_rig import ERAS, connected, failure, mcp_served, running, said, text
from tests.server_rig import Served
from tests.tree_rig import with_trees

pytestmark = pytest.mark.once
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with mcp_served(with_trees(tmp_path_factory.mktemp("mcp"))) as found:
        yield found


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def _thread(request: pytest.FixtureRequest) -> str:
    return f"t-{abs(hash(request.node.nodeid))}"


@pytest.fixture
def thread(request: pytest.FixtureRequest) -> str:
    return _thread(request)


def test_a_conversation_keeps_its_files_over_both_eras(server: Served) -> None:
    async def work() -> None:
        async with connected(server, ERAS[0], thread="kept") as client:
            assert "new sandbox" in await said(client, "files_write", path="a/b.txt", content="one\ntwo\n")
            assert "2 a/b.txt\n[exit code 0" in await said(client, "execute", command="wc -l a/b.txt")
        async with connected(server, ERAS[1], thread="kept") as client:
            assert await said(client, "files_read", path="/workspace/a/b.txt") == "one\ntwo\n"
            assert "new sandbox" not in await said(client, "files_edit", path="a/b.txt", old="two", new="three")
            assert "three" in await said(client, "execute", command="cat a/b.txt")

    running(work)


def test_a_failed_command_is_a_result_and_a_wrong_call_is_an_error(server: Served, era: str, thread: str) -> None:
    async def work() -> None:
        async with connected(server, era, thread=thread) as client:
            assert "[exit code 3" in await said(client, "execute", command="exit 3")
            assert "timed out" in await said(client, "execute", command="sleep 100", timeout=0.3)
            assert await failure(client, "files_read", path="nope") == "file_not_found"
            assert await failure(client, "files_read", path="../../etc/passwd") == "path_rejected"
            assert await failure(client, "files_read", pth="x") == "invalid_request"
            assert await failure(client, "execute", command="true", timeout=-1) == "invalid_request"
            assert await failure(client, "process_kill", process_id="prnone") == "process_not_found"
            assert await failure(client, "files_edit", path="nope", old="a", new="b") == "file_not_found"

    running(work)


def test_long_output_is_cut_and_read_on(server: Served, era: str, thread: str) -> None:
    async def work() -> None:
        async with connected(server, era, thread=thread) as client:
            shown = await said(client, "execute", command="seq 1 200000; echo broken >&2")
            assert len(shown.encode()) < 101_000
            assert shown.startswith("1\n2\n")
            assert "199999\n200000" in shown
            assert "[stderr]\nbroken" in shown
            offset = int(shown.split("offset=")[1].split(")")[0])
            process_id = shown.split('process_id="')[1].split('"')[0]
            whole = "".join(f"{number}\n" for number in range(1, 200_001))
            page = await said(client, "process_output", process_id=process_id, offset=offset, max_bytes=1000)
            assert page.startswith(whole[offset : offset + 1000])
            assert f"offset={offset + 1000} reads on" in page
            await said(client, "execute", command="seq 1 200000 > long.txt")
            piece = await said(client, "files_read", path="long.txt", offset=50_000, max_bytes=2_000)
            assert piece.startswith(whole[50_000:52_000])

    running(work)


def test_a_long_command_tells_its_lines_as_they_come(server: Served, era: str, thread: str) -> None:
    heard: list[tuple[float, str | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async def work() -> None:
        command = "for i in 1 2 3; do echo line $i; sleep 0.5; done; printf tail; yes | head -c 3000000"
        async with connected(server, era, thread=thread) as client:
            result = await client.call_tool("execute", {"command": command}, progress_callback=listen)
            assert text(result).startswith("line 1\nline 2\nline 3\ntail")

    running(work)
    assert len(heard) >= 3
    assert [amount for amount, _ in heard] == sorted({amount for amount, _ in heard})
    told = "".join(message or "" for _, message in heard)
    assert told.startswith("line 1\n")
    assert "left out" in told
    assert len(told) < 60_000


def test_background_processes(server: Served, era: str, thread: str) -> None:
    async def work() -> None:
        async with connected(server, era, thread=thread) as client:
            started = await said(client, "process_start", command="read x; echo got $x; sleep 1000", stdin=True)
            process_id = started.split()[0]
            await said(client, "process_input", process_id=process_id, text="word\n")
            while "got word" not in await said(client, "process_output", process_id=process_id):
                await asyncio.sleep(0.05)
            assert "running" in await said(client, "process_list")
            assert "still runs" in await said(client, "process_wait", process_id=process_id, timeout=0.1)
            await said(client, "process_kill", process_id=process_id)
            assert "exit code 137" in await said(client, "process_wait", process_id=process_id)

    running(work)


def test_files_as_resources_and_images(server: Served, era: str, thread: str) -> None:
    async def work() -> None:
        async with connected(server, era, thread=thread) as client:
            assert (await client.list_resources()).resources == []  # looking makes no sandbox
            await said(client, "files_write", path="dir/ä b.html", content="# Ä\n")
            await said(client, "execute", command=f"base64 -d > dot.png <<< {base64.b64encode(PNG).decode()}")
            found = {one.name: one for one in (await client.list_resources()).resources}
            assert set(found) == {"dir/ä b.html", "dot.png"}
            assert (found["dir/ä b.html"].mime_type, found["dot.png"].size) == ("text/html", len(PNG))
            [note] = (await client.read_resource(found["dir/ä b.html"].uri)).contents
            assert isinstance(note, TextResourceContents)
            assert note.text == "# Ä\n"
            [dot] = (await client.read_resource(found["dot.png"].uri)).contents
            assert isinstance(dot, BlobResourceContents)
            assert base64.b64decode(dot.blob) == PNG
            [image] = (await client.call_tool("files_read", {"path": "dot.png"})).content
            assert isinstance(image, ImageContent)
            assert (image.mime_type, base64.b64decode(image.data)) == ("image/png", PNG)
            assert [one.uri_template for one in (await client.list_resource_templates()).resource_templates] == [
                "workspace:///{+path}",
                "drive:///{+path}",
            ]
            for uri in ("workspace:///nope", "workspace:///../../etc/passwd", "file:///etc/passwd"):
                with pytest.raises(MCPError):
                    await client.read_resource(uri)
            await said(client, "execute", command="head -c 3000000 /dev/zero > big.bin")
            with pytest.raises(MCPError, match=r"limit_exceeded.*3000000.*2097152"):
                await client.read_resource("workspace:///big.bin")
            assert await failure(client, "files_read", path="big.bin") == "invalid_request"

    running(work)


def test_the_drive_outlives_the_sandbox(server: Served, era: str, thread: str) -> None:
    async def work() -> None:
        async with connected(server, era, thread=thread, **{"hutch-user": f"{thread}@example.org"}) as client:
            assert await said(client, "drive_list") == "Nothing."
            await said(client, "drive_write", path="/memories/a.md", content="blue whale\n")
            await said(client, "drive_edit", path="/memories/a.md", old="blue", new="grey")
            assert await said(client, "drive_read", path="/memories/a.md") == "grey whale\n"
            assert await said(client, "drive_read", path="/memories/a.md", version=1) == "blue whale\n"
            assert "a.md:1: grey" in await said(client, "drive_grep", pattern="whale")
            assert "/memories/a.md" in await said(client, "drive_search", query="grey whale")
            assert "/memories/a.md" in await said(client, "drive_glob", pattern="**/*.md")
            assert thread not in await _threads(server)  # none of this needs a sandbox
            placed = await said(client, "drive_place", paths=["/memories/a.md"])
            assert "/workspace/a.md" in placed
            await said(client, "execute", command="tr a-z A-Z < a.md > loud.md")
            await said(client, "drive_save", filename="loud.md", path="/data-exports/loud.md")
            [found] = (await client.read_resource("drive:///data-exports/loud.md")).contents
            assert isinstance(found, TextResourceContents)
            assert found.text == "GREY WHALE\n"
            await said(client, "drive_move", source="/data-exports/loud.md", target="/b.md")
            await said(client, "drive_delete", path="/b.md")
            await said(client, "drive_undo", path="/b.md")
            assert "current" in await said(client, "drive_versions", path="/b.md")
            assert await failure(client, "drive_read", path="/nope") == "drive_file_not_found"
            assert await failure(client, "drive_place", paths=["/nope", "/b.md"]) == "drive_file_not_found"
            assert await failure(client, "drive_read", path="/../../etc/passwd") == "path_rejected"
        async with connected(server, era, thread=thread + "x", **{"hutch-user": "other"}) as client:
            assert await said(client, "drive_list") == "Nothing."

    running(work)


def test_python_keeps_its_state(server: Served, thread: str) -> None:
    async def work() -> None:
        async with connected(server, ERAS[1], thread=thread) as client:
            assert "ok" in await said(client, "code_run", code="x = 20")
            assert (await said(client, "code_run", code="print('hi'); x + 22")).startswith("hi\n42\n[ok")
            failed = await said(client, "code_run", code="1/0")
            assert "ZeroDivisionError" in failed
            assert "\x1b" not in failed
            assert len((await said(client, "code_run", code="print('x' * 500000)")).encode()) < 101_000
            data = base64.b64encode(PNG).decode()
            show = f"import base64; from IPython.display import Image; Image(base64.b64decode('{data}'))"
            shown = await client.call_tool("code_run", {"code": show})
            assert [one.mime_type for one in shown.content if isinstance(one, ImageContent)] == ["image/png"]
            await said(client, "code_restart")
            assert "NameError" in await said(client, "code_run", code="x")
            call = asyncio.create_task(
                client.call_tool("code_run", {"code": "import time; time.sleep(600)", "timeout": 600})
            )
            await asyncio.sleep(0.5)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert "[ok" in await said(client, "code_run", code="1")

    running(work)


def test_what_is_cancelled_ends_with_all_it_started(server: Served, era: str, thread: str) -> None:
    async def work() -> None:
        async with connected(server, era, thread=thread) as client:
            await said(client, "execute", command="true")
            command = "(sleep 7654 &) ; sleep 7654 | sleep 7654"
            call = asyncio.create_task(client.call_tool("execute", {"command": command, "timeout": 600}))
            while "sleep 7654" not in await said(
                client, "execute", command="ps ax 2>/dev/null || cat /proc/*/cmdline | tr '\\0' ' '"
            ):
                await asyncio.sleep(0.05)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            async with asyncio.timeout(20):
                while "sleep 7654" in await said(client, "execute", command="cat /proc/*/cmdline | tr '\\0' ' '"):
                    await asyncio.sleep(0.05)
            assert "running" not in await said(client, "process_list")

    running(work)


def test_who_hangs_up_ends_the_command(server: Served) -> None:
    """Nobody could read its answer any more."""
    headers = {
        "authorization": f"Bearer {server.key}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2025-06-18",
    }
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=30) as client:
        session = client.post("/mcp", json=hello).headers["mcp-session-id"]
        client.headers["mcp-session-id"] = session
        client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        call = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "execute", "arguments": {"command": "sleep 4321", "timeout": 600}},
        }
        with client.stream("POST", "/mcp", json=call) as answer:
            assert answer.status_code == 200
            [sandbox] = _until(lambda: [one for one in _sandboxes(client) if one["thread_id"].startswith("mcp-")])
            _until(lambda: _running(client, sandbox["sandbox_id"]))
        _until(lambda: not _running(client, sandbox["sandbox_id"]))
        assert client.delete("/mcp").status_code == 200
        _until(lambda: sandbox["sandbox_id"] not in [one["sandbox_id"] for one in _sandboxes(client)])


def _sandboxes(client: httpx.Client) -> list[dict[str, str]]:
    found: list[dict[str, str]] = client.get("/v1/sessions").json()
    return found


def _running(client: httpx.Client, sandbox_id: str) -> list[str]:
    rows = client.get(f"/v1/sandboxes/{sandbox_id}/processes").json()
    return [row["command"] for row in rows if row["status"] == "running"]


def _until(look: object) -> list[dict[str, str]]:
    assert callable(look)
    deadline = time.monotonic() + 30
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found if isinstance(found, list) else []


def test_two_sessions_are_two_conversations_and_end_with_theirs(server: Served) -> None:
    async def work() -> None:
        before = len(await _threads(server))
        ann = {"hutch-user": "ann"}
        async with (
            connected(server, "legacy", thread=None) as one,
            connected(server, "legacy", thread=None, **ann) as other,
        ):
            await said(one, "files_write", path="mine", content="1")
            assert await failure(other, "files_read", path="mine") == "file_not_found"
            assert await said(one, "files_read", path="mine") == "1"
            assert len(await _threads(server)) == before + 2
        while len(await _threads(server)) > before:
            await asyncio.sleep(0.05)

    running(work)


async def _threads(server: Served) -> list[str]:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        rows = (await client.get("/v1/sessions", headers={"authorization": f"Bearer {server.key}"})).json()
    return [row["thread_id"] for row in rows]


def test_without_sessions_the_conversation_is_to_be_named(server: Served) -> None:
    async def work() -> None:
        async with connected(server, ERAS[1], thread=None) as client:
            assert await failure(client, "execute", command="true") == "no_active_session"
            meta = {"io.hutch/thread": "by-meta", "io.hutch/user": "ann"}
            assert not (await client.call_tool("execute", {"command": "echo a > f"}, meta=meta)).is_error  # type: ignore[arg-type]  # an open map
        async with connected(server, ERAS[1], thread="by-meta") as client:  # nobody named: whoever it belongs to
            assert await said(client, "files_read", path="f") == "a\n"
        async with connected(server, ERAS[1], thread="by-meta", **{"hutch-user": "bob"}) as client:
            assert await failure(client, "files_read", path="f") == "thread_owned_by_other"
            with pytest.raises(MCPError, match="thread_owned_by_other"):
                await client.read_resource("workspace:///f")

    running(work)


def test_two_calls_at_once_on_one_conversation(server: Served, era: str, thread: str) -> None:
    async def work() -> None:
        async with connected(server, era, thread=thread) as client:
            found = await asyncio.gather(*(said(client, "execute", command=f"sleep 0.2; echo {n}") for n in range(10)))
            assert [one.split("\n")[0] for one in found] == [str(n) for n in range(10)]

    running(work)


def test_what_is_done_is_in_the_audit_trail(server: Served, era: str, thread: str) -> None:
    async def work() -> None:
        async with connected(server, era, thread=thread) as client:
            await said(client, "execute", command=f"echo audited {era}")

    running(work)
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        rows = client.get("/v1/audit", headers={"authorization": f"Bearer {server.key}"}).json()
    [row] = [one for one in rows if one["detail"] == f"echo audited {era}"]
    assert (row["key_id"], row["exit_code"], row["outcome"]) == (server.key.split("_")[1], 0, "ok")


def test_the_example_runs_as_it_stands(server: Served) -> None:
    example = Path(__file__).parents[2] / "examples/mcp_client.py"
    environ = {**os.environ, "HUTCH_API_KEY": server.key}
    done = subprocess.run(
        [sys.executable, example, server.url], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("ada: 3.142\n")
    assert "bob: 6\n" in done.stdout
