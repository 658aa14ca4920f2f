"""Commands that are waited for, followed, fed, signalled, timed out and given up."""

from __future__ import annotations

import asyncio
import math
import signal
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from hutch.engine.gauge import WorkspaceGauge
from hutch.engine.live import FINISHED_KEPT
from hutch.model.errors import (
    CommandRejected,
    InvalidRequest,
    NotSupported,
    ProcessEnded,
    SandboxFileNotFound,
)
from hutch.model.process import ProcessExit, ProcessSpec
from hutch.testing.fake_process import Running
from tests.unit.engine_stage import TENANT, Stage, play, until


def test_a_result_has_every_promised_field(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        result = await stage.run(await stage.session(), "echo hi; cat missing")
        assert set(result) == {
            *("exit_code", "stdout", "stderr", "execution_time_ms", "timed_out", "limit", "truncated", "stdout_bytes"),
            *("stderr_bytes", "spooled_bytes", "killed_processes", "session_recreated", "files_kept", "process_id"),
        }
        assert (result["exit_code"], result["stdout"], result["stdout_bytes"]) == (1, "hi\n", 3)
        assert result["stderr"].startswith("cat: missing")

    play(tmp_path, body)


@pytest.mark.parametrize("timeout", [0, -1, 3601, math.nan, math.inf, None, "10", True])
def test_a_timeout_must_make_sense(tmp_path: Path, timeout: Any) -> None:
    async def body(stage: Stage) -> None:
        with pytest.raises(InvalidRequest, match="HUTCH_MAX_COMMAND_TIMEOUT"):
            await stage.run(await stage.session(), "echo hi", timeout)

    play(tmp_path, body)


def test_a_timeout_ends_the_tree_and_keeps_what_was_printed(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        result = await stage.run(sandbox, "echo before; sleep 20 & sleep 20", timeout=0.2)
        assert (result["exit_code"], result["timed_out"], result["stdout"]) == (124, True, "before\n")
        assert result["limit"] is None
        assert not stage.machine(sandbox).running()

    play(tmp_path, body)


def test_counting_the_workspace_takes_no_time_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()

        async def slow(*_: object) -> None:
            await asyncio.sleep(0.6)

        monkeypatch.setattr(WorkspaceGauge, "after_command", slow)
        result = await stage.run(sandbox, "echo done", timeout=0.4)
        assert (result["exit_code"], result["timed_out"], result["stdout"]) == (0, False, "done\n")
        assert result["execution_time_ms"] < 400

    play(tmp_path, body)


def test_what_cannot_be_killed_ends_with_its_machine(tmp_path: Path) -> None:
    async def stuck(me: Running) -> None:
        me.unkillable = True
        await me.forever()

    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        stage.provider.on("stuck", stuck)
        result = await stage.run(sandbox, "stuck", timeout=0.1)
        assert (result["exit_code"], result["timed_out"]) == (124, True)
        after = await stage.run(sandbox, "echo on")
        assert (after["stdout"], after["session_recreated"]) == ("on\n", True)

    play(tmp_path, body)


def test_leftovers_are_killed_and_named_or_kept(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        killed = await stage.run(sandbox, "sleep 20 & echo hi")
        assert [one["name"] for one in killed["killed_processes"]] == ["sleep"]
        kept = await stage.run(sandbox, "sleep 20 & echo hi", leftovers="keep")
        assert kept["killed_processes"] == []
        assert [one.name for one in stage.machine(sandbox).running()] == ["sleep"]

    play(tmp_path, body)


@pytest.mark.parametrize("limit", ["memory", "pids", "file_size", "cpu"])
def test_a_limit_the_provider_saw_is_named(tmp_path: Path, limit: Any) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        stage.provider.says("greedy", "so far\n", code=137, limit=limit)
        result = await stage.run(sandbox, "greedy")
        assert (result["limit"], result["stdout"], result["exit_code"]) == (limit, "so far\n", 137)
        assert (await stage.run(sandbox, "echo hi"))["limit"] is None

    play(tmp_path, body)


@pytest.mark.parametrize("cancelled", ["execute", "stream"])
def test_a_caller_that_gives_up_leaves_no_process(tmp_path: Path, cancelled: str) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        spec = ProcessSpec(command="sleep 20 & sleep 20", timeout=30)

        async def walk() -> None:
            async for _ in stage.engine.processes.stream(TENANT, sandbox, spec):
                pass

        work = stage.engine.processes.execute(TENANT, sandbox, spec) if cancelled == "execute" else walk()
        task = asyncio.create_task(work)
        await until(lambda: len(stage.machine(sandbox).running()) >= 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not stage.machine(sandbox).running())
        assert stage.live(sandbox).busy == 0

    play(tmp_path, body)


def test_a_stream_closed_early_ends_its_command(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        spec = ProcessSpec(command="echo first; sleep 20", timeout=30)
        async with aclosing(stage.engine.processes.stream(TENANT, sandbox, spec)) as events:  # type: ignore[type-var]
            async for event in events:
                assert event["text"] == "first\n"
                break
        assert not stage.machine(sandbox).running()
        assert stage.live(sandbox).busy == 0

    play(tmp_path, body)


def test_a_stream_tells_all_and_ends_with_the_result(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        async def both(me: Running) -> None:
            for byte in "ü🦊".encode():
                me.out(bytes([byte]))
                await me.sleep(0)
            me.err("oh\n")

        sandbox = await stage.session()
        stage.provider.on("both", both)
        spec = ProcessSpec(command="both", timeout=5)
        events = [event async for event in stage.engine.processes.stream(TENANT, sandbox, spec)]
        assert "".join(event["text"] for event in events if event["type"] == "stdout") == "ü🦊"
        assert "".join(event["text"] for event in events if event["type"] == "stderr") == "oh\n"
        end = events[-1]
        assert end["type"] == "exit"
        assert end["result"] is not None
        assert end["result"]["stdout"] == "ü🦊"

    play(tmp_path, body)


def test_signals_and_kill(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        call = stage.engine.processes
        process = await stage.start(sandbox, "sleep 20")
        for bad in (0, -1, 65, 10**6):
            with pytest.raises(InvalidRequest):
                await call.signal(TENANT, sandbox, process, bad, "tree")
        await call.signal(TENANT, sandbox, process, signal.SIGTERM, "tree")
        ended = await call.wait(TENANT, sandbox, process, 10)
        assert ended is not None
        assert ended["exit_code"] == 143
        with pytest.raises(ProcessEnded):
            await call.signal(TENANT, sandbox, process, signal.SIGTERM, "tree")
        await call.kill(TENANT, sandbox, process)  # ended already: fine
        second = await stage.start(sandbox, "sleep 20")
        await call.kill(TENANT, sandbox, second)
        killed = await call.wait(TENANT, sandbox, second, 10)
        assert killed is not None
        assert killed["exit_code"] == 137

    play(tmp_path, body)


def test_the_oldest_ended_processes_make_place(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        running = await stage.start(sandbox, "sleep 20")
        for _ in range(FINISHED_KEPT + 10):
            await stage.run(sandbox, "echo hi")
        infos = await stage.engine.processes.list(TENANT, sandbox)
        assert len(infos) <= FINISHED_KEPT + 1
        assert running in {info["process_id"] for info in infos}

    play(tmp_path, body)


def test_many_running_ones_take_no_place_of_an_ended_one(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        ended = (await stage.run(sandbox, "echo hi"))["process_id"]
        for _ in range(FINISHED_KEPT + 1):
            await stage.start(sandbox, "sleep 20")
        assert ended in {info["process_id"] for info in await stage.engine.processes.list(TENANT, sandbox)}

    play(tmp_path, body)


@pytest.mark.parametrize(
    "env", [{"A=B": "x"}, {"": "x"}, {"1A": "x"}, {"A": "x\0y"}, {"A": 7}, {"A": "x" * 70_000}, {"A B": "x"}]
)
def test_an_environment_must_make_sense(tmp_path: Path, env: Any) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        with pytest.raises(InvalidRequest):
            await stage.run(sandbox, "echo hi", env=env)
        with pytest.raises(InvalidRequest):
            await stage.engine.context.set(TENANT, sandbox, cwd=None, env=env)

    play(tmp_path, body)


def test_where_a_command_runs(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        await stage.engine.files.mkdir(TENANT, sandbox, "sub/deep", parents=True)
        await stage.engine.context.set(TENANT, sandbox, cwd="/workspace/sub/", env=None)
        assert (await stage.run(sandbox, "pwd"))["stdout"] == "/workspace/sub\n"
        assert (await stage.run(sandbox, "pwd", cwd="sub/deep"))["stdout"] == "/workspace/sub/deep\n"
        assert (await stage.run(sandbox, "pwd", cwd="/tmp"))["stdout"] == "/tmp\n"
        await stage.engine.context.set(TENANT, sandbox, cwd=".", env=None)
        assert (await stage.run(sandbox, "pwd"))["stdout"] == "/workspace\n"
        for bad in ("", "a\0b", 7):
            with pytest.raises(InvalidRequest):
                await stage.run(sandbox, "pwd", cwd=bad)
        with pytest.raises(SandboxFileNotFound):
            await stage.run(sandbox, "pwd", cwd="missing")

    play(tmp_path, body)


def test_env_of_a_call_lies_over_the_session(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        await stage.engine.context.set(TENANT, sandbox, cwd=None, env={"A": "1", "B": "2"})
        assert (await stage.run(sandbox, "printenv A; printenv B", env={"A": "9"}))["stdout"] == "9\n2\n"
        await stage.engine.context.set(TENANT, sandbox, cwd=None, env={"C": "3"})
        assert (await stage.run(sandbox, "printenv A; printenv C"))["stdout"] == "3\n"

    play(tmp_path, body)


def test_in_a_strict_sandbox_only_judged_text_runs(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session(template="bash")
        with pytest.raises(CommandRejected):
            await stage.run(sandbox, "curl example.org")
        with pytest.raises(NotSupported):
            await stage.engine.processes.execute(TENANT, sandbox, ProcessSpec(argv=("cat",), timeout=5))
        with pytest.raises(NotSupported, match="sandboxuser"):
            await stage.run(sandbox, "echo hi", user="root")
        assert stage.provider.spawned == []

    play(tmp_path, body)


@pytest.mark.parametrize("command", ["", "  ", "a\0b", "echo 'unfinished", "x" * 131_072])
def test_bad_commands_never_reach_a_machine(tmp_path: Path, command: Any) -> None:
    async def body(stage: Stage) -> None:
        for template in ("bash", "open"):
            sandbox = await stage.session(template, template=template)
            with pytest.raises((CommandRejected, InvalidRequest)):
                await stage.run(sandbox, command)
        assert stage.provider.spawned == []

    play(tmp_path, body)


def test_a_full_workspace_ends_the_command_and_is_named(tmp_path: Path) -> None:
    async def fill(me: Running) -> None:
        for number in range(1000):
            me.computer.tree.write(f"f{number}", b"x" * 200_000)
            await me.sleep(0.005)

    async def body(stage: Stage) -> None:
        sandbox = await stage.session(template="bash")
        stage.provider.on("echo fill", fill)
        result = await stage.run(sandbox, "echo fill")
        assert (result["limit"], result["exit_code"]) == ("workspace", 137)
        after = await stage.run(sandbox, "echo on")
        assert (after["limit"], after["stdout"]) == (None, "on\n")

    play(tmp_path, body, max_workspace_size_mb=10)


def test_a_quick_command_that_fills_the_workspace_is_named_too(tmp_path: Path) -> None:
    async def fill(me: Running) -> ProcessExit:
        for number in range(30):
            me.computer.tree.write(f"f{number}", b"")
        return ProcessExit(0)

    async def body(stage: Stage) -> None:
        sandbox = await stage.session(template="bash")
        await stage.run(sandbox, "echo hi")
        stage.provider.on("echo fill", fill)
        assert (await stage.run(sandbox, "echo fill"))["limit"] == "files"

    play(tmp_path, body, max_total_files=20)


def test_a_full_workspace_can_be_cleared_by_a_slow_command(tmp_path: Path) -> None:
    async def fill(me: Running) -> None:
        for number in range(30):
            me.computer.tree.write(f"f{number}", b"")

    async def clear(me: Running) -> None:
        for number in range(30):
            me.computer.tree.remove(f"f{number}", recursive=False)
            await me.sleep(0.02)

    async def body(stage: Stage) -> None:
        sandbox = await stage.session(template="bash")
        stage.provider.on("echo fill", fill)
        stage.provider.on("echo clear", clear)
        await stage.run(sandbox, "echo fill")
        cleared = await stage.run(sandbox, "echo clear")
        assert (cleared["limit"], cleared["exit_code"]) == (None, 0)
        assert (await stage.engine.files.list_files(TENANT, sandbox))["total_files"] == 0

    play(tmp_path, body, max_total_files=20)
