"""The client contract: code that keeps its state, and git. For providers with a Python and a git in their sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from hutch.model.code import CodeEvent
from hutch.model.errors import (
    ContextNotFound,
    GitFailed,
    InvalidRequest,
    LimitExceeded,
    NoActiveSession,
    NotSupported,
    SandboxFileNotFound,
)
from hutch.testing.client_contract_stage import ClientContractStage, Stage, staged


class CodeContract(ClientContractStage):
    @staged
    async def test_code_keeps_its_state_and_tells_what_it_shows(self, stage: Stage) -> None:
        client = await stage.bound()
        assert (await client.code.run("x = 20\nprint('set')"))["stdout"] == "set\n"
        seen: list[CodeEvent] = []
        code = "import sys; print('out'); print('err', file=sys.stderr); display({'a': x}); x + 1"
        result = await client.code.run(code, on_output=seen.append)
        assert (result["stdout"], result["stderr"]) == ("out\n", "err\n")
        assert [(one["type"], one["data"]["text/plain"]) for one in result["outputs"]] == [
            ("display", "{'a': 20}"),
            ("result", "21"),
        ]
        assert result["execution_count"] == 2
        assert {one["type"] for one in seen} == {"stdout", "stderr", "display", "result"}
        failed = await client.code.run("1 / 0")
        assert failed["error"] is not None
        assert failed["error"]["name"] == "ZeroDivisionError"
        assert "1 / 0" in failed["error"]["traceback"]
        assert (await client.code.run("x"))["outputs"][0]["data"] == {"text/plain": "20"}

    @staged
    async def test_code_out_of_time_is_interrupted_and_contexts_are_apart(self, stage: Stage) -> None:
        client = await stage.bound()
        late = await client.code.run("y = 5\nwhile True: pass", timeout=1.0)
        assert late["timed_out"]
        assert not late["state_lost"]
        assert (await client.code.run("y"))["outputs"][0]["data"] == {"text/plain": "5"}
        await client.files.mkdir("below")
        made = await client.code.create_context(cwd="below")
        code = "import os; 'y' in globals(), os.path.basename(os.getcwd())"
        apart = await client.code.run(code, context=made["context_id"])
        assert apart["outputs"][0]["data"] == {"text/plain": "(False, 'below')"}
        assert [one["context_id"] for one in await client.code.contexts()] == ["default", made["context_id"]]
        assert (await client.code.restart_context("default"))["status"] == "idle"
        gone = await client.code.run("y")
        assert gone["error"] is not None
        assert gone["error"]["name"] == "NameError"
        await client.code.interrupt(made["context_id"])  # nothing runs: nothing happens
        await client.code.close_context(made["context_id"])
        with pytest.raises(ContextNotFound):
            await client.code.run("1", context=made["context_id"])

    @staged
    async def test_code_that_cannot_be_run_says_why(self, stage: Stage) -> None:
        client = await stage.bound()
        for call in (client.code.interrupt, client.code.restart_context, client.code.close_context):
            with pytest.raises(ContextNotFound):
                await call("nobody's")
        for timeout in (0.0, -1.0, 1e9):
            with pytest.raises(InvalidRequest):
                await client.code.run("1", timeout=timeout)
        with pytest.raises(InvalidRequest):
            await client.code.run(b"1")  # type: ignore[arg-type]  # what is tested
        with pytest.raises(LimitExceeded):
            await client.code.run("#" * 1_100_000)
        with pytest.raises(SandboxFileNotFound):
            await client.code.create_context(cwd="missing")
        strict = stage.client(policy="strict")
        strict.thread_id = None
        with pytest.raises(NoActiveSession):
            await strict.code.run("1")
        await strict.get_or_create_session("u", "strict")
        with pytest.raises(NotSupported, match="open"):
            await strict.code.run("1")
        with pytest.raises(NotSupported, match="open"):
            await strict.git.status()

    @staged
    async def test_a_repository_from_init_to_push(self, stage: Stage) -> None:
        client = await stage.bound()
        git = client.git
        await git.init("work")
        await client.files.write("work/a file", "one\n")
        await client.files.write("work/-n", "two\n")
        status = await git.status("work")
        assert (status["branch"], status["commit"], status["clean"]) == ("main", None, False)
        assert sorted(one["path"] for one in status["files"]) == ["-n", "a file"]
        await git.add(["a file", "./-n"], "work")
        sha = (await git.commit("first\n\nwhy", author="Ada", email="ada@example.com", path="work"))["sha"]
        entry = (await git.log("work"))[0]
        assert (entry["sha"], entry["author"], entry["message"]) == (sha, "Ada", "first\n\nwhy")
        await client.execute("git clone --quiet --bare work bare.git")
        assert await git.clone("file:///workspace/bare.git", "copy") == {"path": "/workspace/copy"}
        assert await git.clone("file:///workspace/bare.git", branch="main", depth=1) == {"path": "/workspace/bare"}
        await git.config("user.name", "Bo", path="copy")
        await git.config("user.email", "bo@example.com", path="copy")
        assert (await git.config("user.name", path="copy"))["value"] == "Bo"
        assert (await git.config("no.such", path="copy"))["value"] is None
        await git.create_branch("topic", checkout=True, path="copy")
        await client.files.write("copy/a file", "changed\n")
        assert "+changed" in (await git.diff("copy"))["text"]
        await git.commit("second", all=True, path="copy")
        await git.push(branch="topic", path="copy", set_upstream=True)
        assert [(one["name"], one["current"]) for one in await git.branches("copy")] == [
            ("main", False),
            ("topic", True),
        ]
        assert (await git.status("copy"))["upstream"] == "origin/topic"
        assert await git.remotes("copy") == [{"name": "origin", "url": "file:///workspace/bare.git"}]
        await git.add_remote("other", "https://example.com/x.git", path="copy")
        await git.checkout("main", "copy")
        with pytest.raises(GitFailed, match=r"checked out|checkout"):
            await git.delete_branch("main", path="copy")
        await git.delete_branch("topic", force=True, path="copy")
        await git.pull(branch="topic", path="copy")
        assert (await git.log("copy", limit=1))[0]["message"] == "second"
        await git.reset("hard", "origin/main", path="copy")
        assert (await git.log("copy", limit=1))[0]["message"] == "first\n\nwhy"
        await client.files.write("copy/a file", "spoilt\n")
        await git.restore("a file", path="copy")
        assert (await git.status("copy"))["clean"]

    @staged
    async def test_git_takes_no_name_for_an_option_and_says_what_failed(self, stage: Stage) -> None:
        client = await stage.bound()
        git = client.git
        await git.init()
        evil = "--upload-pack=touch /workspace/evil"
        calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
            lambda: git.clone(evil),
            lambda: git.clone("x", "--bare"),
            lambda: git.clone("x", "y", branch="--bare"),
            lambda: git.clone("ext::touch /workspace/evil"),
            lambda: git.push(evil),
            lambda: git.pull("origin", evil),
            lambda: git.checkout("--orphan"),
            lambda: git.create_branch("-D"),
            lambda: git.add(["--all"]),
            lambda: git.restore("-p"),
            lambda: git.reset("hard", "--help"),
            lambda: git.config("--global"),
            lambda: git.config("a.b", "--unset"),
            lambda: git.add_remote("o", "https://a:secret@example.com/x"),
            lambda: git.log(limit=0),
            lambda: git.commit(""),
        ]
        for call in calls:
            with pytest.raises(InvalidRequest):
                await call()
        with pytest.raises(GitFailed) as failed:
            await git.checkout("nowhere")
        assert failed.value.details["exit_code"] == 128
        assert "nowhere" in failed.value.details["stderr"]
        assert await client.files.list() == [one for one in await client.files.list() if one["name"] == ".git"]
