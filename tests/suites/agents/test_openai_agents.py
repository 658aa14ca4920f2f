"""The OpenAI Agents SDK: a `SandboxAgent` works in our sandbox."""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from agents import RunConfig, Runner, RunState, function_tool
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Filesystem, Shell
from agents.sandbox.entries import File
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    InvalidManifestPathError,
    PtySessionNotFoundError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.testing import ScriptedModel, assistant_message, function_call

from hutch.client.async_client import AsyncSandboxClient
from hutch.tools.openai_agents import HutchSandboxClient, HutchSandboxOptions
from tests.suites.agents.openai_stage import started

pytestmark = pytest.mark.once


def outputs(model: ScriptedModel) -> list[str]:
    last = model.last_call
    assert last is not None
    return [one["output"] for one in last.input if one.get("type", "").endswith("call_output")]


async def run(agent: Any, sandbox: SandboxRunConfig | None = None) -> Any:
    return await Runner.run(agent, "go", run_config=RunConfig(sandbox=sandbox, tracing_disabled=True))


# -- an agent, from end to end


async def test_an_agent_runs_commands_patches_files_and_types(client: AsyncSandboxClient) -> None:
    def answer(call: Any) -> list[Any]:
        number = re.search(r"session ID (\d+)", str(call.input[-1]["output"]))
        assert number is not None
        return [function_call("write_stdin", {"session_id": int(number[1]), "chars": "Ada\n"}, call_id="3")]

    ask = {"cmd": "read name; echo hello $name", "tty": True, "yield_time_ms": 250}
    patch = {"type": "update_file", "path": "data.txt", "diff": "@@\n-two\n+zwei\n"}
    model = ScriptedModel(
        [
            [function_call("exec_command", {"cmd": "wc -l < data.txt; pwd"}, call_id="1")],
            [function_call("exec_command", ask, call_id="2")],
            {"responder": answer},
            [function_call("exec_command", {"cmd": "cat data.txt", "workdir": "/etc"}, call_id="4")],
            [function_call("exec_command", {"cmd": "cat data.txt; exit 3"}, call_id="5")],
            [assistant_message("done")],
        ]
    )
    agent = SandboxAgent(
        name="worker",
        model=model,
        default_manifest=Manifest(entries={"data.txt": File(content=b"one\ntwo\n")}),
        capabilities=[Shell(), Filesystem()],
    )
    maker = HutchSandboxClient(client)
    session = await maker.create(manifest=agent.default_manifest)
    async with session:
        await session.apply_patch(patch)
        result = await run(agent, SandboxRunConfig(session=session))
        assert result.final_output == "done"
        first, waits, typed, outside, last = outputs(model)
        assert "2\n/workspace" in first
        assert "running with session ID" in waits
        assert "hello Ada" in typed
        assert "exited with code 0" in typed
        assert "Invalid workdir" in outside
        assert "one\nzwei" in last
        assert "exited with code 3" in last
    await maker.delete(session)
    assert await client.sessions() == []


async def test_the_runner_makes_and_deletes_its_own_sandbox(client: AsyncSandboxClient) -> None:
    model = ScriptedModel(
        [[function_call("exec_command", {"cmd": "id -un"}, call_id="1")], [assistant_message("done")]]
    )
    agent = SandboxAgent(name="worker", model=model, capabilities=[Shell()])
    await run(agent, SandboxRunConfig(client=HutchSandboxClient(client)))
    assert "sandboxuser" in outputs(model)[0]
    assert await client.sessions() == []


async def test_a_run_waits_for_approval_and_goes_on_elsewhere(client: AsyncSandboxClient) -> None:
    """The runner ends the sandbox of a run that waits; what resumes it starts from its snapshot."""

    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    model = ScriptedModel(
        [
            [function_call("exec_command", {"cmd": "echo 42 > bill"}, call_id="1")],
            [function_call("pay", {"amount": 42}, call_id="2")],
            [function_call("exec_command", {"cmd": "cat bill"}, call_id="3")],
            [assistant_message("done")],
        ]
    )
    agent = SandboxAgent(name="worker", model=model, capabilities=[Shell()], tools=[pay])
    config = RunConfig(sandbox=SandboxRunConfig(client=HutchSandboxClient(client)), tracing_disabled=True)
    waiting = await Runner.run(agent, "go", run_config=config)
    assert await client.sessions() == []
    state = await RunState.from_string(agent, waiting.to_state().to_string())
    state.approve(state.get_interruptions()[0])
    assert (await Runner.run(agent, state, run_config=config)).final_output == "done"
    assert outputs(model)[1] == "paid 42"
    assert outputs(model)[2].endswith("42\n")


# -- commands


async def test_commands_are_exact(client: AsyncSandboxClient) -> None:
    async with started(client, manifest=Manifest(environment={"value": {"COLOUR": "blue"}})) as session:
        done = await session.exec(
            "bash", "-c", "printf '\\xff\\x00é'; echo $COLOUR \"$1\" >&2; exit 4", "x", "a 'b' $c"
        )
        assert (done.stdout, done.stderr, done.exit_code) == (b"\xff\x00\xc3\xa9", b"blue a 'b' $c\n", 4)
        assert (await session.exec("no-such-program", shell=False)).exit_code == 127
        assert (await session.exec("kill -9 $$")).exit_code == 137
        big = await session.exec("head -c 3000000 /dev/urandom | tee big", shell=["bash", "-c"])
        assert (await session.exec("sha256sum big")).stdout.split()[0].decode() == hashlib.sha256(
            big.stdout
        ).hexdigest()
        nul = await session.exec("echo a\0b")
        assert nul.exit_code == 126
        assert b"NUL byte" in nul.stderr
        typed = await session.pty_exec_start("echo a\0b")
        assert (typed.process_id, typed.exit_code) == (None, 126)


async def test_time_is_up_for_the_whole_tree(client: AsyncSandboxClient) -> None:
    async with started(client) as session:
        with pytest.raises(ExecTimeoutError) as refused:
            await session.exec("echo begun; setsid sleep 987 & sleep 987", timeout=0.5)
        assert "begun" in refused.value.context["stdout"]
        assert b"987" not in (await session.exec("ps ax")).stdout


async def test_a_cancelled_run_leaves_nothing_running(client: AsyncSandboxClient) -> None:
    async with started(client) as session:
        for call in (
            session.exec("sleep 987"),
            session.pty_exec_start("sleep 987", tty=True, yield_time_s=30),
        ):
            task = asyncio.ensure_future(call)
            while b"987" not in (await session.exec("ps ax | grep '[s]leep'")).stdout:
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while b"987" in (await session.exec("ps ax | grep '[s]leep'")).stdout:
                await asyncio.sleep(0.02)


async def test_a_session_that_is_gone_is_no_empty_new_one(client: AsyncSandboxClient) -> None:
    async with started(client, options=HutchSandboxOptions(user_id="ada", thread_id="t")) as session:
        await client.for_thread("ada", "t").close_session()
        assert not await session.running()
        with pytest.raises(ExecTransportError) as refused:
            await session.exec("ls")
        assert refused.value.context["code"] == "session_expired"


# -- terminals


async def test_a_flood_costs_neither_memory_nor_the_session(client: AsyncSandboxClient) -> None:
    async with started(client) as session:
        seen = await session.pty_exec_start("yes", tty=True, yield_time_s=1)
        assert seen.process_id is not None
        assert len(seen.output) < 120_000
        whole = await session.pty_exec_start("seq 1 200000", yield_time_s=30)
        assert whole.exit_code == 0
        assert (whole.output[:4], whole.output[-7:]) == (b"1\n2\n", b"200000\n")
        assert b"characters are left out" in whole.output
        short = await session.pty_write_stdin(session_id=seen.process_id, chars="x", max_output_tokens=10)
        assert len(short.output) < 1000
        piped = await session.pty_exec_start("sleep 60", yield_time_s=0)
        with pytest.raises(RuntimeError, match="stdin is not available"):
            await session.pty_write_stdin(session_id=piped.process_id, chars="x")
        await session.pty_terminate_all()
        assert b"yes" not in (await session.exec("ps axo comm=")).stdout
        with pytest.raises(PtySessionNotFoundError):
            await session.pty_write_stdin(session_id=seen.process_id, chars="")


async def test_the_longest_unused_makes_room(client: AsyncSandboxClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hutch.tools.openai_agents.terminals.PTY_PROCESSES_MAX", 9)
    async with started(client) as session:
        opened = [await session.pty_exec_start("sleep 987", yield_time_s=0)]
        opened += await asyncio.gather(*(session.pty_exec_start("sleep 987", yield_time_s=0) for _ in range(9)))
        assert len({one.process_id for one in opened}) == 10
        assert (await session.exec("ps axo comm= | grep -c sleep")).stdout == b"9\n"
        with pytest.raises(PtySessionNotFoundError):
            await session.pty_write_stdin(session_id=opened[0].process_id, chars="")


# -- files


async def test_files_of_any_kind_and_size(client: AsyncSandboxClient) -> None:
    async with started(client) as session:
        data = bytes(range(256)) * 40_000 + b"end"
        await session.write(Path("deep/er/big.bin"), io.BytesIO(data))
        with await session.read(Path("/workspace/deep/er/big.bin")) as stream:
            assert stream.read() == data
        assert await session.read_bounded(Path("deep/er/big.bin"), max_bytes=5) == data[:5]
        await session.exec("echo 'echo ran' > run.sh; chmod 750 run.sh")
        await session.write(Path("run.sh"), io.BytesIO(b"#!/bin/sh\necho again\n"))
        assert (await session.exec("./run.sh; stat -c %a run.sh")).stdout == b"again\n750\n"


async def test_files_elsewhere_are_out_of_reach(client: AsyncSandboxClient) -> None:
    async with started(client) as session:
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("missing"))
        for path in ("../etc/passwd", "/etc/passwd"):
            with pytest.raises(InvalidManifestPathError):
                await session.read(Path(path))
        await session.exec("ln -s /etc/passwd link; mkfifo pipe; mkdir folder")
        for name in ("link", "pipe", "folder"):
            with pytest.raises((WorkspaceArchiveReadError, WorkspaceReadNotFoundError)):
                await session.read(Path(name))
        for name in ("link", "folder"):
            try:
                await session.write(Path(name), io.BytesIO(b"x"))
            except WorkspaceArchiveWriteError:
                continue
            assert (await session.exec("test -L link")).exit_code == 1, "the link was replaced, not followed"
