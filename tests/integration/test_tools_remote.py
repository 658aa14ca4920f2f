"""Tools stand on the client alone: what they do in this process they do on a server."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from hutch import AsyncSandboxClient
from hutch.settings import Settings
from hutch.tools import SandboxSession, abind, system_prompt
from tests.server_rig import served
from tests.tools_rig import MCP_PROGRAM, Stage

pytestmark = [pytest.mark.once, pytest.mark.timeout(120)]
SERVERS = {"inside": {"command": "python3", "args": ["/workspace/server.py"]}}


def test_a_session_on_a_server(tmp_path: Path) -> None:
    with served(Settings(data_dir=tmp_path)) as server, asyncio.Runner() as runner:
        stage = Stage(runner, SandboxSession("far", server.url, api_key=server.key, mcp_servers=SERVERS))
        stage.run(stage.session.initialize())
        assert stage.session.get_info()["base_url"] == server.url
        stage.call("file_write", file="server.py", content=MCP_PROGRAM)
        assert stage.call("shell_exec", command="wc -l < server.py").startswith("[SUCCESS]")
        assert "[STARTED]" in stage.call("shell_exec", command="cat", background=True)
        stage.call("shell_write", input="typed")
        assert "typed" in stage.call("shell_wait", seconds=0.3)
        assert "42" in stage.call("shell_interactive", input="echo $((6*7))")
        call = {"server_name": "inside", "tool_name": "add", "arguments": {"a": 1, "b": 2}}
        assert stage.call("mcp_execute", **call) == "3"
        assert "may reach no host" in stage.call("http_request", method="GET", url="http://example.com")
        if shutil.which("chromium"):
            assert "here" in stage.call("browser_open", url="data:text/html,here")
        stage.run(stage.session.delete())


def test_the_bash_tool_on_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(Settings(data_dir=tmp_path, memory_limit=128 * 2**20)) as server:
        monkeypatch.setenv("SANDBOX_URL", server.url)
        monkeypatch.setenv("HUTCH_API_KEY", server.key)

        async def play() -> None:
            client = AsyncSandboxClient("remote", server.url, api_key=server.key)
            tools = abind("u", "t", client)
            await tools.write_file("/a/x.txt", "over there")
            answer = await tools.execute_bash_command("cat x.txt", ["/a/x.txt"])
            assert (answer["stdout"], answer["uploaded_files"]) == ("over there", ["x.txt"])
            await tools.end_conversation()
            await client.aclose()

        asyncio.run(play())
        assert "128 MB of memory" in system_prompt()
