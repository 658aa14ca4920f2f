"""The client contract: mistakes of the caller, refused commands, and what an error carries."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import (
    ERRORS,
    CommandRejected,
    HutchError,
    InvalidRequest,
    ProcessNotFound,
    SandboxFileNotFound,
)
from hutch.testing.client_contract_stage import ClientContractStage, Stage, staged

MAX_COMMAND = 131_071


class ErrorContract(ClientContractStage):
    @staged
    async def test_commands_that_cannot_be_judged_are_refused(self, stage: Stage) -> None:
        for policy in ("strict", "open"):
            client = await stage.bound(policy, policy=policy)
            for command in ("", " \n", "echo a\0b", "echo 'open", "x" * (MAX_COMMAND + 1)):
                for call in (client.execute(command), client.start(command)):
                    with pytest.raises(CommandRejected):
                        await call
            for wrong in (None, 7, b"echo hi", ["echo", "hi"]):
                with pytest.raises(InvalidRequest):
                    await client.execute(wrong)  # type: ignore[arg-type]

    @staged
    async def test_a_refusal_says_which_word_why_and_what_is_allowed(self, stage: Stage) -> None:
        client = await stage.bound(policy="strict")
        with pytest.raises(ValueError, match="curl") as caught:
            await client.execute("echo hi | curl example.org")
        error = caught.value
        assert isinstance(error, CommandRejected)
        assert error.details["word"] == "curl"
        assert "jq" in error.details["allowed"]
        assert error.details["reason"]

    @staged
    async def test_a_command_that_is_too_long_has_a_hint(self, stage: Stage) -> None:
        client = await stage.bound()
        with pytest.raises(CommandRejected, match="pload"):
            await client.execute("echo " + "x" * MAX_COMMAND)

    @staged
    async def test_processes_that_nobody_knows(self, stage: Stage) -> None:
        client = await stage.bound()
        calls: list[Callable[[AsyncSandboxClient], Coroutine[Any, Any, Any]]] = [
            lambda client: client.logs("pnone"),
            lambda client: client.wait("pnone"),
            lambda client: client.send_input("pnone", b""),
            lambda client: client.close_input("pnone"),
            lambda client: client.signal("pnone", 15),
            lambda client: client.kill("pnone"),
        ]
        for call in calls:
            with pytest.raises(ProcessNotFound):
                await call(client)
        with pytest.raises(ProcessNotFound):
            async for _ in client.attach("pnone"):
                pass

    @staged
    async def test_arguments_out_of_range(self, stage: Stage) -> None:
        client = await stage.bound()
        process = (await client.start("echo hi"))["process_id"]
        await client.wait(process)
        for call in (
            client.logs(process, offset=-1),
            client.logs(process, max_bytes=0),
            client.set_env({"A=B": "x"}),
            client.set_env({"A": "x\0"}),
            client.execute("echo hi", env={"": "x"}),
            client.execute("echo hi", cwd=""),
            client.execute("echo hi", timeout=-1),
            client.start("echo hi", timeout=0),
            client.files.read("a", offset=-1),
        ):
            with pytest.raises(InvalidRequest):
                await call

    @staged
    async def test_a_folder_to_run_in_that_is_not_there(self, stage: Stage) -> None:
        client = await stage.bound()
        with pytest.raises(SandboxFileNotFound):
            await client.execute("pwd", cwd="missing")

    @staged
    async def test_every_error_has_a_code_of_the_table(self, stage: Stage) -> None:
        client = stage.client()
        with pytest.raises(HutchError) as caught:
            await client.execute("echo hi")
        assert ERRORS[caught.value.code] is type(caught.value)
        assert 400 <= caught.value.http_status < 600
