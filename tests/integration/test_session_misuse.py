"""Sessions and their tools under bad input, bad luck and bad company."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import HutchError, ServerUnreachable
from hutch.tools import SandboxNotRunningError, SandboxSession, create_sandbox_tools
from hutch.tools.answers import MODEL_BYTES
from tests.client_rig import settings_of
from tests.tools_rig import Stage, stage_of

pytestmark = [pytest.mark.once, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_of(tmp_path_factory.mktemp("tools"), session_id="misuse") as made:
        yield made


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../../x", "/workspace/../etc/passwd", "/workspace10/x", "", "a\0b"]
)
def test_no_path_leaves_the_workspace(path: str, stage: Stage) -> None:
    with pytest.raises(ValueError):
        stage.session.resolve_path(path)
    for tool, more in (
        ("file_read", {}),
        ("file_write", {"content": ""}),
        ("file_delete", {}),
        ("file_search", {"regex": "x"}),
    ):
        assert stage.call(tool, file=path, **more).startswith("ERROR: path_rejected"), tool
    for tool, more in (("file_list", {}), ("grep", {"pattern": "x"}), ("git_status", {})):
        if path:
            assert stage.call(tool, path=path, **more).startswith("ERROR: path_rejected"), tool


def test_links_do_not_lead_out(stage: Stage) -> None:
    stage.call("shell_exec", command="ln -s /etc/passwd link; ln -s / root")
    for file in ("link", "root/etc/passwd"):
        assert stage.call("file_read", file=file).startswith("ERROR: path_rejected"), file
    assert "root/etc" not in stage.call("file_list", recursive=True)


def test_paths_within_are_taken_as_they_are_meant(stage: Stage) -> None:
    for path in ("a/b.txt", "./a/b.txt", "/workspace/a/b.txt", "a/./c/../b.txt"):
        assert stage.session.resolve_path(path) == "/workspace/a/b.txt"


def test_what_is_no_text_is_said_to_be_none(stage: Stage) -> None:
    stage.call(
        "shell_exec", command=r"printf '\xff\xfe\x00' > binary; printf 'gr\xfcn' > latin; printf 'a\r\nb\r\n' > crlf"
    )
    for file in ("binary", "latin"):
        assert stage.call("file_read", file=file).startswith("ERROR: invalid_request: /workspace/"), file
        assert stage.call("file_edit", file=file, old_str="a", new_str="b").startswith("ERROR"), file
    assert "Replaced 1" in stage.call("file_edit", file="crlf", old_str="b", new_str="c")
    assert stage.call("shell_exec", command="xxd -p crlf") == "[SUCCESS]\n610d0a630d0a"
    assert "�" in stage.call("shell_exec", command="cat latin")


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("file_write", {"file": "x", "content": "?", "encoding": "base64"}, "invalid_request: content is no base64"),
        ("file_write", {"file": "x", "content": 5}, "ERROR: invalid_request: file_write was called wrongly: content"),
        ("file_write", {"name": "x", "content": ""}, "file: Field required; name: Extra inputs are not permitted"),
        ("file_read", {"file": "gone"}, "ERROR: file_not_found"),
        ("file_read", {"file": "."}, "is a folder"),
        ("file_edit", {"file": "twice", "old_str": "x", "new_str": ""}, "is in 'twice' 2 times"),
        ("file_edit", {"file": "twice", "old_str": "y", "new_str": ""}, "is not in 'twice'"),
        ("file_read", {"file": "twice", "start_line": 9}, "has 1 lines"),
        ("file_search", {"file": "twice", "regex": "("}, "ERROR: invalid_request: The search failed"),
        ("grep", {"pattern": "("}, "ERROR: invalid_request: The search failed"),
        ("glob", {"pattern": "../*"}, "ERROR: invalid_request"),
        ("shell_view", {"session": "nothing"}, "ERROR: process_not_found"),
        ("shell_exec", {"command": "true", "timeout": -1}, "ERROR: invalid_request"),
        ("shell_wait", {"seconds": 1e9}, "ERROR: invalid_request"),
        ("env_set", {"name": "A=B", "value": ""}, "ERROR: invalid_request"),
        ("env_get", {"name": "NOT_SET"}, "NOT_SET is not set"),
        ("pip_install", {"packages": ["--target=/", "x"]}, "is no package"),
        ("pip_install", {"packages": []}, "ERROR: invalid_request"),
        ("pip_install", {"packages": ["no-such-package"]}, "ERROR: not_supported: The sandbox may reach no host"),
        ("http_request", {"method": "GET", "url": "file:///etc/passwd"}, "is no address"),
        ("http_request", {"method": "GET", "url": "https://example.com"}, "SandboxSession.create(egress="),
        ("http_request", {"method": "GET", "url": "http://localhost:1"}, "ERROR: port_unreachable"),
        ("git_clone", {"url": "https://example.com/a.git"}, "session.client.egress.allow"),
        ("git_status", {"path": "nowhere"}, "ERROR: file_not_found"),
        ("mcp_list_tools", {"server_name": "x"}, "mcp_servers"),
        ("python_exec", {"code": "raise SystemExit(3)"}, "[FAILED (exit 3)]"),
        ("python_exec", {"code": "x" * 140_000}, "ERROR: invalid_request: The code is longer than 128 KB"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_so_that_it_can_be_mended(tool: str, arguments: Any, says: str, stage: Stage) -> None:
    stage.call("file_write", file="twice", content="x x")
    assert says in stage.call(tool, **arguments)


def test_ten_megabytes_of_output_are_cut_and_can_be_paged(stage: Stage) -> None:
    answer = stage.call("shell_exec", command="seq 1 1500000; echo ü; echo the end")
    assert len(answer.encode()) < MODEL_BYTES + 1000
    assert answer.startswith("[SUCCESS]\n1\n2\n")
    assert answer.endswith("ü\nthe end")
    note = next(line for line in answer.splitlines() if line.startswith("[…"))
    session, offset = note.partition('session="')[2].partition('"')[0], note.partition("offset=")[2].partition(")")[0]
    page = stage.call("shell_view", session=session, offset=int(offset))
    assert len(page.encode()) < MODEL_BYTES + 1000
    joined = answer.partition("\n[…")[0] + page.partition("]\n")[2].partition("]\n")[2]
    assert "\n13517\n13518\n13519\n" in joined
    assert "more bytes: shell_view(" in page
    assert "bytes are left out" in stage.call("python_exec", code="print('x' * 200_000)")
    stage.call("shell_exec", command="seq 1 200000 > long.txt")
    assert "Read on with start_line" in stage.call("file_read", file="long.txt")
    assert stage.call("file_read", file="long.txt", start_line=150_000, end_line=150_001) == "150001\n"


def test_two_calls_at_once(stage: Stage) -> None:
    tools = {tool.name: tool for tool in stage.session.get_tools()}
    stage.call("file_write", file="both", content="one two")

    async def both() -> list[str]:
        edits = (("one", "1"), ("two", "2"))
        calls = [tools["file_edit"].ainvoke({"file": "both", "old_str": old, "new_str": new}) for old, new in edits]
        calls += [tools["shell_exec"].ainvoke({"command": f"sleep 0.2; echo {word}"}) for word in "ab"]
        calls += [tools["env_set"].ainvoke({"name": name, "value": "set"}) for name in ("FIRST", "SECOND")]
        return list(await asyncio.gather(*calls))

    answers = stage.run(both())
    assert answers[2:4] == ["[SUCCESS]\na", "[SUCCESS]\nb"]
    assert stage.call("file_read", file="both") == "1 2"  # neither edit is lost
    assert (stage.call("env_get", name="FIRST"), stage.call("env_get", name="SECOND")) == ("set", "set")


def test_a_cancelled_call_ends_its_command(stage: Stage) -> None:
    tools = {tool.name: tool for tool in stage.session.get_tools()}

    async def cancelled() -> None:
        call = asyncio.create_task(tools["shell_exec"].ainvoke({"command": "touch started; sleep 77.5"}))
        while "started" not in await tools["file_list"].ainvoke({}):
            await asyncio.sleep(0.02)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    stage.run(cancelled())
    assert "sleep 77.5" not in stage.call("process_list")


def test_a_command_that_takes_too_long_is_ended(stage: Stage) -> None:
    answer = stage.call("shell_exec", command="echo before; sleep 60", timeout=0.3)
    assert answer.startswith("[FAILED (exit 124)")
    assert answer.endswith("\nbefore")


def test_a_session_that_expired_says_so_and_goes_on(tmp_path: Path) -> None:
    with stage_of(tmp_path / "data", session_id="expires") as stage:
        stage.call("file_write", file="kept", content="x")
        stage.call("env_set", name="A", value="1")
        stage.call("shell_interactive", input="true")
        stage.run(stage.session.client.for_thread("sandbox-session", "expires").close_session())
        assert stage.call("file_read", file="kept").startswith("ERROR: session_expired")
        assert stage.call("file_read", file="kept").startswith("ERROR: file_not_found")
        assert "not set" in stage.call("env_get", name="A")
        assert "bash" in stage.call("shell_interactive", input="echo $0")


class TestSessions:
    def test_both_forms_and_the_end(self, tmp_path: Path) -> None:
        async def play() -> None:
            async with SandboxSession.create(session_id="chat_1") as session:
                tools = {tool.name: tool for tool in session.get_tools()}
                await tools["file_write"].ainvoke({"file": "stays.txt", "content": "x"})
                await tools["shell_exec"].ainvoke({"command": "sleep 91", "background": True})
                info = session.get_info()
            assert (info["session_id"], info["workspace_path"], info["initialized"]) == ("chat_1", "/workspace", True)
            for use in (session.get_tools, lambda: session.resolve_path("a"), lambda: session.workspace_path):
                with pytest.raises(RuntimeError):
                    use()
            assert not await session.health_check()
            async with await SandboxSession.create(session_id="chat_1") as again:
                tools = {tool.name: tool for tool in again.get_tools()}
                assert await tools["file_read"].ainvoke({"file": "stays.txt"}) == "x"
                assert "sleep 91" not in await tools["process_list"].ainvoke({})
                assert await again.health_check()
                async with SandboxSession.create(session_id="chat_10") as other:
                    tools = {tool.name: tool for tool in other.get_tools()}
                    assert "stays.txt" not in await tools["file_list"].ainvoke({})
                    await other.delete()
                await again.delete()

        with settings_of(tmp_path):
            asyncio.run(play())

    def test_another_user_does_not_get_in(self, tmp_path: Path) -> None:
        async def play() -> None:
            async with SandboxSession.create(session_id="s", user_id="one"):
                with pytest.raises(HutchError, match="belongs to another user"):
                    await SandboxSession.create(session_id="s", user_id="two")

        with settings_of(tmp_path):
            asyncio.run(play())

    def test_a_server_that_is_not_there(self) -> None:
        assert SandboxNotRunningError is ServerUnreachable
        with pytest.raises(SandboxNotRunningError):
            asyncio.run(_open("http://127.0.0.1:1"))

    def test_names_of_their_own(self, tmp_path: Path) -> None:
        async def play() -> None:
            async with SandboxSession.create() as one, SandboxSession.create() as other:
                assert one.session_id.startswith("session_")
                assert one.session_id != other.session_id

        with settings_of(tmp_path):
            asyncio.run(play())


async def _open(url: str) -> None:
    await SandboxSession.create(base_url=url, api_key="none")


def test_the_direct_toolkit(tmp_path: Path) -> None:
    async def play() -> None:
        made = create_sandbox_tools(client=AsyncSandboxClient(template="open"))
        tools = {tool.name: tool for tool in made}

        async def call(name: str, **arguments: Any) -> str:
            return str(await tools[name].ainvoke(arguments))

        assert "Wrote 4 bytes to /tmp/x/a.py" in await call("file_write", file="/tmp/x/a.py", content="a\nb\n")
        assert await call("file_read", file="/tmp/x/a.py", start_line=1) == "b\n"
        assert "Replaced 1" in await call("file_edit", file="/tmp/x/a.py", old_str="a", new_str="c")
        assert "a.py  4 bytes" in await call("file_list", path="/tmp/x", sort_by="size")
        assert "/tmp/x/a.py" in await call("file_find", glob="*.py", path="/tmp")
        assert "L1: c" in await call("file_search", file="/tmp/x/a.py", regex="c")
        assert await call("file_download", path="/tmp/x/a.py") == "c\nb\n"
        assert "[BASE64]" in await call("file_download", path="/usr/bin/true")
        assert "privileges" in await call("file_read", file="/etc/passwd", sudo=True)
        assert "ERROR" in await call("file_read", file="/etc/none")
        assert "/tmp/x" in await call("shell_exec", command="pwd", exec_dir="/tmp/x", session_id="one")
        assert "STARTED" in await call("shell_exec", command="cat", async_mode=True, session_id="two")
        assert "Sent" in await call("shell_write", session_id="two", input="hi")
        assert "one  [ENDED" in await call("shell_sessions")
        assert "hi" in await call("shell_wait", session_id="two", seconds=0.2)
        assert "Ended" in await call("shell_kill", session_id="two")
        assert await call("code_execute", language="bash", code="echo $((6*7))") == "42\n"
        assert "ERROR: not_supported" in await call("jupyter_execute", code="1", kernel_name="python3.12")
        assert await call("nodejs_execute", code="require('./b.js')", files={"b.js": "console.log(1)"}) == "1\n"
        assert "a.py:1:c" in await call("grep", pattern="c", path="/tmp/x")
        assert await call("grep", pattern="c", path="/tmp/x", output_mode="count") == "/tmp/x/a.py:1\n"
        assert "home_dir: /workspace" in await call("sandbox_context")
        assert "ERROR" not in await call("sandbox_packages", language="python")
        assert await call("sandbox_health") == "healthy"

    with settings_of(tmp_path):
        asyncio.run(play())
