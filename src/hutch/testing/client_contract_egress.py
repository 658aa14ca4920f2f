"""The client contract: egress by rule. The host that is reached is this test's own, on loopback."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.egress import PROXY_PORT, HostRule
from hutch.model.errors import InvalidRequest, NoActiveSession, SessionExpiredError
from hutch.testing.client_contract_stage import ClientContractStage, Stage, staged

SECRET = "s3cret-of-the-contract"


class EgressContract(ClientContractStage):
    @staged
    async def test_rules_are_set_shown_and_taken_back(self, stage: Stage) -> None:
        client = await stage.bound()
        assert await client.egress.rules() == []
        secret = HostRule("API.example.com", headers={"Authorization": SECRET})
        shown = await client.egress.set([{"host": "example.org", "ports": [443]}, secret])
        assert shown == await client.egress.rules()
        assert shown == [
            {"host": "example.org", "ports": [443], "private": False, "tls": None, "headers": []},
            {
                "host": "api.example.com",
                "ports": [80, 443],
                "private": False,
                "tls": None,
                "headers": ["authorization"],
            },
        ]
        assert [one["host"] for one in await client.egress.allow("*.example.org", {"host": "example.org"})] == [
            "api.example.com",
            "*.example.org",
            "example.org",
        ]
        assert SECRET not in repr(secret) + str(await client.egress.rules())
        other = await stage.bound("other")
        assert await other.egress.rules() == []
        assert await client.egress.set([]) == []

    @staged
    async def test_what_is_allowed_passes_and_all_is_logged(self, stage: Stage) -> None:
        client = await stage.bound()
        with _host() as (port, heard):
            rule = {"host": "127.0.0.1", "ports": [port], "private": True, "tls": False, "headers": {"x-key": SECRET}}
            await client.egress.set([rule])
            assert b" 200 " in await _get(client, f"127.0.0.1:{port}")
            assert b" 403 " in await _get(client, "evil.example:80")
            assert f"x-key: {SECRET}".encode() in heard[0].lower()
            await client.egress.set([])
        records = await client.egress.log()
        assert [(one["method"], one["host"], one["verdict"], one["status"]) for one in records] == [
            ("GET", "127.0.0.1", "passed", 200),
            ("GET", "evil.example", "refused", 403),
        ]
        assert await client.egress.log(after=records[0]["record_id"]) == records[1:]
        assert await client.egress.log(limit=1) == records[1:]
        assert SECRET not in str(records)

    @staged
    async def test_what_cannot_be_a_rule_is_refused(self, stage: Stage) -> None:
        client = await stage.bound()
        wrong: list[Any] = ["example.org", [5], [{"host": "a b"}], [{"host": "a", "port": 1}], [{"host": "1.2.3.4"}]]
        for rules in wrong:
            with pytest.raises(InvalidRequest):
                await client.egress.set(rules)
        with pytest.raises(InvalidRequest):
            await client.egress.log(limit=0)
        assert await client.egress.rules() == []

    @staged
    async def test_egress_of_nobody(self, stage: Stage) -> None:
        with pytest.raises(NoActiveSession):
            await stage.client().egress.rules()
        client, same = await stage.bound(), await stage.bound()
        await same.close_session()
        for call in (client.egress.rules, client.egress.log, lambda: client.egress.set([{"host": "example.org"}])):
            with pytest.raises(SessionExpiredError):
                await call()


async def _get(client: AsyncSandboxClient, host: str) -> bytes:
    """What the sandbox is answered by its proxy."""
    async with await client.connect(PROXY_PORT) as connection:
        await connection.send(f"GET http://{host}/ HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        answer = b""
        while piece := await connection.receive():
            answer += piece
        return answer


@contextmanager
def _host() -> Iterator[tuple[int, list[bytes]]]:
    """A host that answers hello: its port, and what it was sent. On threads: a sync client holds up the loop."""
    heard: list[bytes] = []

    class Hello(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            head = b""
            while b"\r\n\r\n" not in head and (piece := self.request.recv(65536)):
                head += piece
            heard.append(head)
            self.request.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Hello) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1], heard
        server.shutdown()
