"""`hutch mcp` as a client's configuration starts it: a program that speaks the protocol on its standard streams."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.hostile.bad_luck_stage import descendants
from tests.integration.cli_stage import HANG, Hutch
from tests.mcp_rig import ERAS, mcp_served, running, said

pytestmark = pytest.mark.once


@asynccontextmanager
async def speaking(hutch: Hutch, era: str, *words: str) -> AsyncIterator[Client]:
    command, *arguments = hutch.argv("mcp", *words)
    server = StdioServerParameters(command=command, args=arguments, env=hutch.env)
    async with Client(stdio_client(server), mode=era) as client:
        yield client


@pytest.fixture
def hutch(tmp_path: Path) -> Hutch:
    return Hutch(tmp_path)


def test_a_conversation_goes_with_its_client_unless_it_has_a_name(hutch: Hutch) -> None:
    async def work() -> None:
        for era in ERAS:
            async with speaking(hutch, era) as client:
                assert await said(client, "files_write", path="f", content="x")
                assert (await said(client, "execute", command="cat f")).startswith("x")
        async with speaking(hutch, ERAS[0], "--thread", "kept") as client:
            await said(client, "files_write", path="f", content="kept")
        async with speaking(hutch, ERAS[1], "--thread", "kept") as client:
            assert await said(client, "files_read", path="f") == "kept"

    running(work)
    assert hutch.threads() == ["kept"]


def test_a_server_elsewhere(hutch: Hutch, tmp_path: Path) -> None:
    async def work(url: str, key: str) -> None:
        async with speaking(hutch, ERAS[1], "--url", url, "--api-key", key, "-t", "far") as client:
            await said(client, "files_write", path="f", content="far")
            assert "far" in await said(client, "execute", command="cat f")

    with mcp_served(tmp_path / "server") as server:
        running(lambda: work(server.url, server.key))
        assert server.run(server.engine.sessions.find_info("local", "far", None)) is not None


class Raw:
    """A client that looks at every byte."""

    def __init__(self, hutch: Hutch, *words: str) -> None:
        self.process = hutch.start("mcp", *words, stdin=subprocess.PIPE)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def say(self, method: str, number: int | None = 1, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.write(json.dumps(message if number is None else {**message, "id": number}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None

    def hello(self) -> dict[str, Any]:
        self.say(
            "initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "t", "version": "1"}
        )
        answer = self.read()
        self.say("notifications/initialized", None)
        return answer

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def call(self, number: int, command: str) -> None:
        self.say("tools/call", number, name="execute", arguments={"command": command, "timeout": 600})

    def wait_for(self, name: str) -> None:
        deadline = time.monotonic() + HANG
        while not any(name in one for one in _below(self.process.pid)):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def _below(pid: int) -> list[str]:
    found = []
    for one in descendants(pid):
        try:
            found.append(Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            pass
    return found


@pytest.mark.parametrize("how", ["input ends", "SIGTERM", "SIGINT"])
def test_at_its_end_nothing_is_left_running(hutch: Hutch, how: str) -> None:
    with Raw(hutch) as raw:
        raw.hello()
        raw.call(1, "sleep 8642")
        raw.wait_for("sleep 8642")
        below = descendants(raw.process.pid)
        if how == "input ends":
            raw.close_input()
        else:
            raw.process.send_signal(getattr(signal, how))
        assert raw.process.wait(HANG) == (0 if how == "input ends" else 128 + getattr(signal, how))
    deadline = time.monotonic() + HANG
    while any(os.path.exists(f"/proc/{one}") for one in below):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert hutch.threads() == []


def test_nothing_but_the_protocol_is_on_standard_output(hutch: Hutch) -> None:
    with Raw(hutch) as raw:
        assert raw.hello()["result"]["serverInfo"]["name"] == "hutch"
        raw.write(b"this is no JSON\n\xff\xfe\n[]\n")
        raw.call(1, "echo out; echo err >&2; exit 7")
        raw.say("tools/call", 2, name="nope", arguments={})
        raw.say("no/such/method", 3)
        answers: dict[Any, dict[str, Any]] = {}
        while not {1, 2, 3} <= set(answers):
            answer = raw.read()  # every line is a message
            answers[answer.get("id")] = answer
        assert "[exit code 7" in answers[1]["result"]["content"][0]["text"]
        assert answers[3]["error"]["code"] == -32601
        raw.close_input()
        assert raw.process.wait(HANG) == 0
        assert raw.process.stdout is not None
        assert raw.process.stdout.read() == b""


def test_a_cancelled_call_ends_its_command(hutch: Hutch) -> None:
    async def work() -> None:
        for era in ERAS:
            async with speaking(hutch, era) as client:
                call = asyncio.create_task(client.call_tool("execute", {"command": "sleep 5432", "timeout": 600}))
                while "sleep 5432" not in await said(client, "process_list"):
                    await asyncio.sleep(0.05)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                while " running " in await said(client, "process_list"):
                    await asyncio.sleep(0.05)

    running(work)


def test_without_the_library_the_rest_works_and_says_so(hutch: Hutch) -> None:
    def without(*words: str) -> subprocess.Popen[str]:
        program = f"import sys; sys.modules['mcp'] = None; from hutch.cli.main import main; sys.exit(main({words!r}))"
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", program], env=hutch.env, stdout=pipe, stderr=pipe, text=True)

    how = "pip install 'hutch[mcp]'"
    with without("mcp") as failed:
        said, why = failed.communicate(timeout=HANG)
        assert (failed.returncode, said) == (3, "")
        assert how in why
    with without("doctor", "--json") as doctor:
        assert how in json.loads(doctor.communicate(timeout=HANG)[0])["absent"][0]
    with without("serve", "--port", str(free_port()), "--preview-port", "0") as server:
        assert server.stderr is not None
        assert how in server.stderr.readline()
        url = next(line for line in server.stderr if "serving on" in line).split()[3]
        key = (hutch.data / "api-key").read_text().strip()
        answer = httpx.post(f"{url}/mcp", headers={"authorization": f"Bearer {key}"}, trust_env=False)
        assert (answer.status_code, answer.json()["code"]) == (404, "route_not_found")
        server.terminate()
        server.communicate(timeout=HANG)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
