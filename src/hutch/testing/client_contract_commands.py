"""The client contract: commands, streams, background processes, batches, and the bash tool."""

from __future__ import annotations

import signal

import pytest

from hutch.client.async_bash_tool import AsyncBashTool
from hutch.client.async_batch import AsyncBatchSandboxClient
from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import InvalidRequest, ProcessEnded
from hutch.testing.client_contract_stage import ClientContractStage, Stage, staged

FIELDS = {
    *("exit_code", "stdout", "stderr", "execution_time_ms", "timed_out", "limit", "truncated", "stdout_bytes"),
    *("stderr_bytes", "spooled_bytes", "killed_processes", "session_recreated", "files_kept", "process_id"),
}


class CommandContract(ClientContractStage):
    @staged
    async def test_a_result_has_all_fields_and_can_be_changed(self, stage: Stage) -> None:
        client = await stage.bound()
        result = await client.execute("echo hi; cat missing", timeout=10)
        assert set(result) == FIELDS
        assert (result["exit_code"], result["stdout"], result["timed_out"]) == (1, "hi\n", False)
        assert "missing" in result["stderr"]
        assert result["stderr_bytes"] == len(result["stderr"].encode())
        result["stdout"] = "mine"

    @staged
    async def test_files_stay_between_commands(self, stage: Stage) -> None:
        client = await stage.bound()
        await client.execute("echo kept > a.txt")
        assert (await client.execute("cat a.txt"))["stdout"] == "kept\n"

    @staged
    async def test_exit_codes_are_the_commands(self, stage: Stage) -> None:
        client = await stage.bound()
        for code in (0, 1, 3, 42):
            assert (await client.execute(f"exit {code}"))["exit_code"] == code

    @staged
    async def test_a_timeout_is_a_result(self, stage: Stage) -> None:
        client = await stage.bound()
        result = await client.execute("echo before; sleep 20", timeout=0.4)
        assert (result["exit_code"], result["timed_out"], result["stdout"]) == (124, True, "before\n")
        for bad in (0, -1, 10**9):
            with pytest.raises(InvalidRequest):
                await client.execute("echo hi", timeout=bad)

    @staged
    async def test_what_a_command_leaves_is_killed_and_named(self, stage: Stage) -> None:
        client = await stage.bound()
        result = await client.execute("sleep 20 & echo hi")
        assert [one["name"] for one in result["killed_processes"]] == ["sleep"]
        assert (await client.execute("sleep 1 & echo hi", leftovers="keep"))["killed_processes"] == []

    @staged
    async def test_cwd_and_env_of_a_call_and_of_the_session(self, stage: Stage) -> None:
        client = await stage.bound()
        await client.files.mkdir("sub")
        assert (await client.execute("pwd", cwd="sub"))["stdout"] == "/workspace/sub\n"
        await client.set_cwd("/workspace/sub")
        await client.set_env({"COLOUR": "blue"})
        assert (await client.execute("pwd; printenv COLOUR"))["stdout"] == "/workspace/sub\nblue\n"
        assert (await client.execute("printenv COLOUR", env={"COLOUR": "red"}))["stdout"] == "red\n"
        assert (await client.info())["cwd"] == "/workspace/sub"

    @staged
    async def test_input_is_empty_or_what_was_given(self, stage: Stage) -> None:
        client = await stage.bound()
        assert (await client.execute("cat", timeout=10))["stdout"] == ""
        data = b"line\n" * 50_000
        result = await client.execute("cat", stdin=data, timeout=20)
        assert result["stdout"].encode() == data
        assert (await client.execute("echo hi", stdin=data))["stdout"] == "hi\n"  # not read: fine

    @staged
    async def test_callbacks_get_the_text_as_it_comes(self, stage: Stage) -> None:
        client = await stage.bound()
        out: list[str] = []
        err: list[str] = []
        result = await client.execute("echo hi; cat missing", on_stdout=out.append, on_stderr=err.append)
        assert "".join(out) == result["stdout"] == "hi\n"
        assert "".join(err) == result["stderr"]

    @staged
    async def test_an_error_in_a_callback_is_the_callers(self, stage: Stage) -> None:
        client = await stage.bound()

        def breaks(_: str) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await client.execute("echo hi; sleep 20", on_stdout=breaks)
        assert (await client.info())["processes"] == 0

    @staged
    async def test_a_stream_ends_with_the_result(self, stage: Stage) -> None:
        client = await stage.bound()
        events = [event async for event in client.stream("echo hi; exit 3")]
        assert b"".join(event["data"] for event in events) == b"hi\n"
        assert events[-1]["type"] == "exit"
        assert events[-1]["result"] is not None
        assert events[-1]["result"]["exit_code"] == 3

    @staged
    async def test_a_stream_that_is_left_ends_its_command(self, stage: Stage) -> None:
        client = await stage.bound()
        items = client.stream("echo hi; sleep 20")
        async for _ in items:
            break
        await items.aclose()  # type: ignore[attr-defined]
        assert (await client.info())["processes"] == 0

    @staged
    async def test_a_background_process_from_start_to_end(self, stage: Stage) -> None:
        client = await stage.bound()
        started = await client.start("cat", stdin=True, tag="mine")
        process = started["process_id"]
        assert (started["status"], started["tag"], started["command"]) == ("running", "mine", "cat")
        await client.send_input(process, "one ")
        await client.send_input(process, b"two")
        assert await client.wait(process, timeout=0.05) is None
        await client.close_input(process)
        ended = await client.wait(process)
        assert ended is not None
        assert (ended["stdout"], ended["exit_code"]) == ("one two", 0)
        (info,) = [one for one in await client.processes() if one["process_id"] == process]
        assert (info["status"], info["exit_code"], info["stdout_bytes"]) == ("exited", 0, 7)
        with pytest.raises(ProcessEnded):
            await client.send_input(process, b"late")

    @staged
    async def test_logs_and_replay_of_a_process(self, stage: Stage) -> None:
        client = await stage.bound()
        process = (await client.start("echo 0123456789"))["process_id"]
        assert await client.wait(process) is not None
        chunk = await client.logs(process, offset=4, max_bytes=3)
        assert (chunk["data"], chunk["text"], chunk["next_offset"], chunk["complete"]) == (b"456", "456", 7, False)
        assert (await client.logs(process, stream="stderr"))["complete"] is True
        events = [event async for event in client.attach(process)]
        assert (events[0]["data"], events[-1]["type"]) == (b"0123456789\n", "exit")

    @staged
    async def test_signal_and_kill(self, stage: Stage) -> None:
        client = await stage.bound()
        first = (await client.start("sleep 20"))["process_id"]
        await client.signal(first, signal.SIGTERM)
        ended = await client.wait(first, 10)
        assert ended is not None
        assert ended["exit_code"] == 143
        second = (await client.start("sleep 20", timeout=60))["process_id"]
        await client.kill(second)
        await client.kill(second)
        killed = await client.wait(second, 10)
        assert killed is not None
        assert killed["exit_code"] == 137

    @staged
    async def test_a_batch_runs_on_and_leaves_no_session(self, stage: Stage) -> None:
        batch = stage.a(AsyncBatchSandboxClient)
        results = await batch.execute_batch(["echo 1 > a", "exit 3", "curl example.org", "cat a"])
        assert [result["exit_code"] for result in results] == [0, 3, -1, 0]
        assert all(set(result) == FIELDS for result in results)
        assert "curl" in results[2]["stderr"]
        assert results[3]["stdout"] == "1\n"
        assert await stage.client().sessions() == []
        with pytest.raises(InvalidRequest):
            await batch.execute_batch("echo hi")
        assert await batch.execute_batch([]) == []

    @staged
    async def test_a_bash_tool_keeps_threads_apart(self, stage: Stage) -> None:
        tool = stage.a(AsyncBashTool)
        for thread in ("one", "two"):
            await tool.execute(f"echo {thread} > a.txt", "u", thread)
        assert (await tool.execute(command="cat a.txt", user_id="u", thread_id="one", timeout=10))["stdout"] == "one\n"
        local = stage.folder / "up.txt"
        local.write_text("up")
        uploaded = await tool.upload_file(str(local), "u", "two", "in.txt")
        assert uploaded["filename"] == "in.txt"
        target = await tool.download_file("in.txt", "u", "two", str(stage.folder / "down.txt"))
        assert (stage.folder / "down.txt").read_text() == "up"
        assert target == str(stage.folder / "down.txt")
        assert (await tool.list_files("u", "two"))["total_files"] == 2
        await tool.cleanup_session("one")
        assert [one["thread_id"] for one in await stage.a(AsyncSandboxClient).sessions()] == ["two"]
        await tool.cleanup_session("one")

    @staged
    async def test_a_bash_tool_cleans_up_what_it_used_last(self, stage: Stage) -> None:
        tool = stage.a(AsyncBashTool)
        await tool.execute("echo hi", "u", "one")
        await tool.execute("echo hi", "u", "two")
        await tool.cleanup_session()
        assert [one["thread_id"] for one in await stage.a(AsyncSandboxClient).sessions()] == ["one"]
