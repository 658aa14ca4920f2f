"""MCP over HTTP against callers that mean no good, or are plainly broken."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from hutch.server.services import ServerOptions
from hutch.tools.mcp.http import McpHttp
from tests.mcp_rig import ERAS, connected, failure, mcp_served, running, said
from tests.server_rig import Served

pytestmark = pytest.mark.once
OLD = "2025-06-18"
SESSIONS_EACH = 20
MADE: list[McpHttp] = []


def _mcp() -> McpHttp:
    MADE.append(McpHttp(sessions_each=SESSIONS_EACH))
    return MADE[-1]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with mcp_served(tmp_path_factory.mktemp("mcp"), _mcp) as found:
        yield found


class Caller(httpx.Client):
    """Speaks the protocol by hand."""

    def __init__(self, server: Served, key: str | None, **headers: str) -> None:
        given = {"accept": "application/json, text/event-stream", "mcp-protocol-version": OLD, **headers}
        if key is not None:
            given["authorization"] = f"Bearer {key}"
        super().__init__(base_url=server.url, headers=given, trust_env=False, timeout=30)

    def say(self, method: str, number: int | None = 1, **params: Any) -> httpx.Response:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        return self.post("/mcp", json=message if number is None else {**message, "id": number})

    def hello(self) -> httpx.Response:
        answer = self.say("initialize", protocolVersion=OLD, capabilities={}, clientInfo={"name": "t", "version": "1"})
        if answer.status_code == 200:
            self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
            self.say("notifications/initialized", None)
        return answer


def test_without_a_key_nothing_is_said(server: Served) -> None:
    revoked = server.new_key()
    server.run(server.engine.keys.revoke(revoked.split("_")[1]))
    for key in (None, "hutch_", revoked, server.key[:-1] + "_"):
        with Caller(server, key) as caller:
            for answer in (caller.hello(), caller.get("/mcp"), caller.delete("/mcp"), caller.post("/mcp/", json={})):
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
                assert answer.json()["code"] == "unauthorized"


def test_a_key_that_is_revoked_ends_its_session(server: Served) -> None:
    key = server.new_key()
    with Caller(server, key) as caller:
        caller.hello()
        assert caller.say("tools/list").status_code == 200
        server.run(server.engine.keys.revoke(key.split("_")[1]))
        assert caller.say("tools/list").status_code == 401


@pytest.mark.parametrize("tenant", ["local", "other"])
def test_the_session_of_another_key_is_not_there(server: Served, tenant: str) -> None:
    with Caller(server, server.new_key()) as owner, Caller(server, server.new_key(tenant)) as thief:
        owner.hello()
        thief.headers["mcp-session-id"] = owner.headers["mcp-session-id"]
        stolen, thief_end = thief.say("tools/list"), thief.delete("/mcp")
        thief.headers["mcp-session-id"] = "0" * 32
        missing = thief.say("tools/list")
        assert (stolen.status_code, stolen.text) == (missing.status_code, missing.text) == (404, missing.text)
        assert thief_end.status_code == 404
        assert owner.say("tools/list").status_code == 200


def test_a_thread_of_another_tenant_is_another_thread(server: Served) -> None:
    async def work() -> None:
        for era in ERAS:
            async with connected(server, era, thread="same") as mine:
                await said(mine, "files_write", path="secret", content="x")
            async with connected(server, era, thread="same", key=server.new_key("other")) as theirs:
                assert await failure(theirs, "files_read", path="secret") == "file_not_found"

    running(work)


def test_a_key_that_may_only_read_reads(server: Served) -> None:
    async def work() -> None:
        key = server.new_key(scope="read")
        for era in ERAS:
            async with connected(server, era, thread="read") as mine:
                await said(mine, "files_write", path="f", content="x")
            async with connected(server, era, thread="read", key=key) as reader:
                names = {tool.name for tool in (await reader.list_tools()).tools}
                assert {"files_read", "process_output"} <= names
                assert not names & {"execute", "files_write", "files_edit", "process_start", "process_kill"}
                assert await said(reader, "files_read", path="f") == "x"
                assert [one.name for one in (await reader.list_resources()).resources] == ["f"]
                for tool, arguments in (
                    ("execute", {"command": "true"}),
                    ("files_write", {"path": "f", "content": ""}),
                ):
                    assert await failure(reader, tool, **arguments) == "forbidden"
            async with connected(server, era, thread="none-yet", key=key) as reader:
                assert await failure(reader, "files_read", path="f") == "forbidden"  # it would make a sandbox

    running(work)


def test_names_that_point_here_and_pages_elsewhere_are_refused(server: Served) -> None:
    port = urlsplit(server.url).port
    for headers in (
        {"host": "evil.example"},
        {"host": f"evil.example:{port}"},
        {"host": f"127.0.0.1.evil.example:{port}"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"http://localhost.evil.example:{port}"},
    ):
        with Caller(server, server.key, **headers) as caller:
            answer = caller.hello()
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), headers
    with Caller(server, server.key, host=f"localhost:{port}", origin=f"http://localhost:{port}") as caller:
        assert caller.hello().status_code == 200


def test_messages_that_are_none(server: Served) -> None:
    bodies = [
        b"",
        b"{",
        b"[" * 100_000,
        b"[]",
        b"null",
        b"1" * 5_000,
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}",
        b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 1_000_000 + b'"}',
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute","arguments":[1]}}',
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "\ud800"}}).encode(),
    ]
    with Caller(server, server.key) as caller:
        caller.hello()
        for version in (OLD, ERAS[1]):
            for body in bodies:
                headers = {"content-type": "application/json", "mcp-protocol-version": version}
                answer = caller.post("/mcp", content=body, headers=headers)
                assert answer.status_code in (200, 202, 400, 404), (body[:60], answer.status_code)
                assert len(answer.content) < 3_000_000
        large = caller.post("/mcp", content=b" " * 5_000_000, headers={"content-type": "application/json"})
        assert (large.status_code, large.json()["code"]) == (413, "request_too_large")
        assert caller.say("tools/list").status_code == 200


def test_a_thousand_sessions_that_are_never_ended(server: Served) -> None:
    """Only the newest of each key stay, and other keys have theirs."""
    manager = MADE[-1]._manager
    with Caller(server, server.new_key("crowd")) as owner, Caller(server, server.new_key("crowd")) as crowd:
        owner.hello()
        before = len(manager._server_instances)
        tasks = server.run(_tasks())
        for _ in range(1_000):
            crowd.headers.pop("mcp-session-id", None)
            assert crowd.hello().status_code == 200
        deadline = time.monotonic() + 20  # what was pushed out ends beside the calls
        while len(manager._server_instances) > before + SESSIONS_EACH and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(manager._server_instances) <= before + SESSIONS_EACH
        assert server.run(_tasks()) <= tasks + SESSIONS_EACH * 6
        assert owner.say("tools/list").status_code == 200
        assert crowd.say("tools/list").status_code == 200


async def _tasks() -> int:
    return len(asyncio.all_tasks())


def test_a_storm_of_calls_and_cancellations_leaves_nothing(server: Served) -> None:
    async def one(client: Any, number: int) -> None:
        call = asyncio.create_task(client.call_tool("execute", {"command": "sleep 999", "timeout": 999}))
        await asyncio.sleep(number % 7 * 0.01)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    async def work() -> None:
        for era in ERAS:
            async with connected(server, era, thread="storm") as client:
                await said(client, "execute", command="true")
                await asyncio.gather(*(one(client, number) for number in range(60)))
                while " running " in await said(client, "process_list"):
                    await asyncio.sleep(0.1)
                assert "[exit code 0" in await said(client, "execute", command="true")

    running(work)


def test_who_does_not_read_holds_up_nobody_else(server: Served) -> None:
    call = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {
            "name": "execute",
            "arguments": {"command": "yes", "timeout": 600},
            "_meta": {"progressToken": 1},
        },
    }
    with Caller(server, server.key, **{"hutch-thread": "slow"}) as caller:
        caller.hello()
        body = json.dumps(call).encode()
        head = [
            "POST /mcp HTTP/1.1",
            f"host: {urlsplit(server.url).netloc}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            *(f"{name}: {value}" for name, value in caller.headers.items() if name not in ("host", "connection")),
        ]
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", urlsplit(server.url).port))
            deaf.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)

            async def others() -> None:
                async with connected(server, ERAS[0], thread="quick") as client:
                    for _ in range(20):
                        await said(client, "execute", command="true")

            running(others)
            assert _busy(caller)
        for _ in range(300):
            if not _busy(caller):
                return
    pytest.fail("the command outlived who asked for it")


def _busy(caller: httpx.Client) -> bool:
    [found] = caller.get("/v1/sessions", params={"thread_id": "slow"}).json()
    rows = caller.get(f"/v1/sandboxes/{found['sandbox_id']}/processes").json()
    return any(row["status"] == "running" for row in rows)


def test_a_rate_counts_calls_and_not_what_they_do(tmp_path_factory: pytest.TempPathFactory) -> None:
    with mcp_served(tmp_path_factory.mktemp("rate"), options=ServerOptions(rate="12/minute")) as server:
        with Caller(server, server.new_key(), **{"hutch-thread": "rate"}) as caller:
            caller.hello()  # two messages
            call = {"name": "execute", "arguments": {"command": "true"}}
            found = [caller.say("tools/call", number, **call).status_code for number in range(12)]
    assert found == [200] * 10 + [429] * 2
