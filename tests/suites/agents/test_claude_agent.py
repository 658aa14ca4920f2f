"""The Claude Agent SDK with the CLI it brings along: it works in our sandbox, and stays off the host."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, query

from hutch.client.async_client import AsyncSandboxClient
from hutch.tools.claude_agent import host_guard, sandbox_options
from hutch.tools.claude_agent.sandbox_tools import SandboxTools
from tests.suites.agents.killed import says_and_dies
from tests.suites.agents.messages_api import MessagesApi, messages_api, use

pytestmark = pytest.mark.once


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def environment(api: MessagesApi, home: Path) -> dict[str, str]:
    return {
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": api.url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": str(home),
        "DISABLE_AUTOUPDATER": "1",
        "HOME": str(home),
    }


def options(api: MessagesApi, home: Path, client: AsyncSandboxClient, **wanted: Any) -> ClaudeAgentOptions:
    given = ClaudeAgentOptions(cwd=home, env=environment(api, home), model="scripted", **wanted)
    return sandbox_options(client, given)


async def ask(options: ClaudeAgentOptions) -> None:
    async for _ in query(prompt="go", options=options):
        pass


def ours(tool: str, **given: Any) -> list[dict[str, Any]]:
    return [use(f"mcp__sandbox__{tool}", **given)]


# -- from end to end


async def test_the_agent_works_in_the_sandbox(client: AsyncSandboxClient, home: Path) -> None:
    steps = [
        ours("write_file", path="a.txt", content="one\ntwo\n"),
        ours("edit_file", path="a.txt", old="two", new="zwei"),
        ours("execute", command="id -un; pwd; cat a.txt; exit 3"),
        ours("execute", command="seq 1 1000000"),
        ours("read_file", path="/etc/passwd"),
    ]
    with messages_api(*steps) as api:
        await ask(options(api, home, client.for_thread("ada", "t")))
        wrote, edited, ran, long, refused = api.results()
        offered = {tool["name"] for tool in api.requests[0]["tools"]}
    assert "mcp__sandbox__execute" in offered
    assert not offered & {"Bash", "Edit", "Glob", "Grep", "Read", "WebFetch", "Write"}, offered
    assert "8 bytes" in wrote[0]
    assert edited == ("replaced 1 in a.txt", False)
    assert ran[0].endswith("sandboxuser\n/workspace\none\nzwei\n\n[exit code 3]")
    assert 50_000 < len(long[0]) < 101_000, "it is shown here, not put into a file of the host"
    assert "process_output(process_id=" in long[0]
    assert refused[1]
    assert refused[0].startswith("ERROR: path_rejected")
    assert list(home.glob("a.txt")) == []


async def test_the_clis_own_tools_are_turned_away(client: AsyncSandboxClient, home: Path) -> None:
    (home / "secret.txt").write_text("of the host")
    path = str(home / "made.txt")
    steps = [
        [use("Bash", command=f"touch {path}")],
        [use("Write", file_path=path, content="x")],
        [use("Read", file_path=str(home / "secret.txt"))],
    ]
    everything: Any = {"type": "preset", "preset": "claude_code"}
    with messages_api(*steps) as api:
        wanted = options(api, home, client.for_thread("ada", "t"), tools=everything)
        await ask(replace(wanted, allowed_tools=["Bash", "Write", "Read"]))
        results = api.results()
        assert {"Bash", "Write", "Read"} <= {tool["name"] for tool in api.requests[0]["tools"]}
    assert len(results) == 3
    for (said, error), instead in zip(results, ("execute", "write_file", "read_file"), strict=True):
        assert error
        assert f"mcp__sandbox__{instead}" in said
    assert not Path(path).exists()


async def test_nor_do_sub_agents_get_at_them(client: AsyncSandboxClient, home: Path) -> None:
    path = home / "made.txt"
    task = use("Agent", description="d", prompt="make it", subagent_type="general-purpose", run_in_background=False)
    everything: Any = {"type": "preset", "preset": "claude_code"}
    with messages_api([task], [use("Bash", command=f"touch {path}")]) as api:
        wanted = options(api, home, client.for_thread("ada", "t"), tools=everything)
        await ask(replace(wanted, allowed_tools=["Bash", "Agent"]))
        answered = [str(request["messages"]) for request in api.requests]
    assert any("Bash would act on the host" in messages for messages in answered)
    assert not path.exists()


async def test_without_the_guard_the_cli_would_act_here(client: AsyncSandboxClient, home: Path) -> None:
    """That the guard is what held in the test above."""
    path = home / "made.txt"
    with messages_api([use("Bash", command=f"touch {path}")]) as api:
        wanted = options(api, home, client.for_thread("ada", "t"), tools=["Bash"])
        await ask(replace(wanted, hooks=None, allowed_tools=["Bash"]))
    assert path.exists()


async def test_a_guard_that_fails_blocks(client: AsyncSandboxClient, home: Path) -> None:
    async def broken(*_: Any) -> dict[str, Any]:
        raise RuntimeError("broken")

    path = home / "made.txt"
    with messages_api([use("Bash", command=f"touch {path}")]) as api:
        wanted = options(api, home, client.for_thread("ada", "t"), tools=["Bash"])
        guard = HookMatcher(matcher=None, hooks=[broken], on_failure=host_guard().on_failure)
        await ask(replace(wanted, hooks={"PreToolUse": [guard]}, allowed_tools=["Bash"]))
    assert not path.exists()


async def test_an_interrupt_ends_the_command(client: AsyncSandboxClient, home: Path) -> None:
    handle = client.for_thread("ada", "t")
    with messages_api(ours("execute", command="sleep 987")) as api:
        async with ClaudeSDKClient(options(api, home, handle)) as agent:
            await agent.query("go")
            while b"987" not in await _processes(handle):
                await asyncio.sleep(0.05)
            await agent.interrupt()
            async for _ in agent.receive_response():
                pass
            while b"987" in await _processes(handle):
                await asyncio.sleep(0.05)


async def _processes(client: AsyncSandboxClient) -> bytes:
    return (await client.execute("ps ax | grep '[s]leep' || true"))["stdout"].encode()


async def test_two_users_never_meet(client: AsyncSandboxClient, home: Path) -> None:
    async def work(user: str) -> str:
        steps = [ours("write_file", path="mine", content=user), ours("execute", command="sleep 0.2; cat mine; ls -A")]
        with messages_api(*steps) as api:
            await ask(options(api, home, client.for_thread(user, f"thread-of-{user}")))
            return api.results()[-1][0]

    assert [*await asyncio.gather(work("ada"), work("bob"))] == ["adamine\n", "bobmine\n"]


async def test_after_kill_9_the_conversation_goes_on(client: AsyncSandboxClient, home: Path, data_dir: Path) -> None:
    """The transcript is the CLI's, the files are the thread's: both are found again."""
    with messages_api(ours("write_file", path="kept.txt", content="kept")) as api:
        said = says_and_dies(
            f"""
            from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query
            from hutch.client.async_client import AsyncSandboxClient
            from hutch.tools.claude_agent import sandbox_options
            box = AsyncSandboxClient(policy="open").for_thread("ada", "t")
            given = ClaudeAgentOptions(cwd={str(home)!r}, env={environment(api, home)!r}, model="scripted")
            async for message in query(prompt="go", options=sandbox_options(box, given)):
                if isinstance(message, ResultMessage):
                    session = message.session_id
            return session
            """,
            data_dir,
        )
    with messages_api(ours("execute", command="cat kept.txt")) as api:
        await ask(options(api, home, client.for_thread("ada", "t"), resume=said))
        assert api.results()[-1] == ("kept", False)
        assert len(api.results()) == 2, "the first process's call is in the transcript"


# -- the tools by themselves

Call = Callable[..., Awaitable[tuple[str, bool]]]


@pytest.fixture
def call(client: AsyncSandboxClient) -> Call:
    tools = {one.name: one for one in SandboxTools(client.for_thread("ada", "t")).table()}

    async def calls(name: str, **given: Any) -> tuple[str, bool]:
        answer = await tools[name].run(given)
        block = answer["content"][0]
        return block.get("text", block.get("mimeType", "")), bool(answer.get("is_error"))

    return calls


async def test_processes_in_the_background(call: Call) -> None:
    started, _ = await call("start_process", command="seq 1 50000; sleep 60")
    process_id = started.removeprefix("process_id: ")
    while not (page := (await call("process_output", process_id=process_id, offset=288_000))[0]).startswith("49"):
        await asyncio.sleep(0.02)
    assert "of 288894; go on at offset 288894]" in page
    assert await call("stop_process", process_id=process_id) == ("stopped", False)
    assert (await call("process_output", process_id="nothing"))[0].startswith("ERROR: process_not_found")


async def test_files_of_all_kinds(call: Call) -> None:
    long = "é" * 70_000
    await call("write_file", path="d/long.txt", content=long)
    page, _ = await call("read_file", path="d/long.txt", offset=0)
    assert page.endswith("[bytes 0-100000 of 140000; go on at offset 100000]")
    rest, _ = await call("read_file", path="d/long.txt", offset=100_000)
    assert page.split("\n")[0] + rest == long
    await call("execute", command="printf '\\377\\376\\0' > binary; echo 'echo a b a' > run.sh; chmod 755 run.sh")
    assert (await call("read_file", path="binary"))[0].startswith("ERROR: invalid_request")
    assert (await call("edit_file", path="binary", old="a", new="b"))[0].startswith("ERROR: invalid_request")
    assert (await call("edit_file", path="run.sh", old="a", new="c"))[0].startswith("ERROR: file_conflict")
    assert await call("edit_file", path="run.sh", old=" a", new=" c", replace_all=True) == (
        "replaced 2 in run.sh",
        False,
    )
    assert (await call("execute", command="./run.sh"))[0] == "c b c\n"
    assert "-rwxr-xr-x" in (await call("list_files", path="."))[0]
    assert "d/long.txt" in (await call("list_files", recursive=True))[0]
    assert (await call("read_file", path="missing"))[0].startswith("ERROR: file_not_found")
    png = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
    )
    await call("execute", command=f"echo {base64.b64encode(png).decode()} | base64 -d > dot.PNG")
    assert await call("read_file", path="dot.PNG") == ("image/png", False)


async def test_limits_and_ends_are_told(client: AsyncSandboxClient, call: Call) -> None:
    assert (await call("execute", command="echo a; sleep 60", timeout=0.3))[0].startswith("a\n\n[timed out")
    assert (await call("execute", command="true"))[0] == "(no output)"
    assert (await call("execute", command="x" * 10, timeout=1e9))[0].startswith("ERROR: invalid_request")
    await client.for_thread("ada", "t").close_session()
    assert "without the former files" in (await call("execute", command="ls"))[0]


def test_it_asks_for_a_dict_of_servers(client: AsyncSandboxClient) -> None:
    with pytest.raises(TypeError, match="mcp_servers"):
        sandbox_options(client, ClaudeAgentOptions(mcp_servers=os.devnull))
