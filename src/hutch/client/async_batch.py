"""Commands one after the other in a session of their own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from typing import Literal

from hutch.client.async_client import AsyncSandboxClient
from hutch.engine.loop import LoopThread
from hutch.model.errors import HutchError, InvalidRequest
from hutch.model.process import ExecResult


class AsyncBatchSandboxClient:
    """Takes the arguments of `SandboxClient`."""

    def __init__(
        self,
        mode: Literal["local", "remote"] = "local",
        server_url: str | None = None,
        *,
        api_key: str | None = None,
        policy: str | os.PathLike[str] | None = None,
        template: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self._client = AsyncSandboxClient(
            mode, server_url, api_key=api_key, policy=policy, template=template, data_dir=data_dir
        )

    @property
    def loop_thread(self) -> LoopThread:
        """Where plain code runs this client."""
        return self._client.loop_thread

    async def execute_batch(
        self,
        commands: Sequence[str],
        timeout: float | None = None,
        user_id: str = "batch_user",
        thread_id: str | None = None,
    ) -> list[ExecResult]:
        """Run all commands in one session and close it; a failure does not stop the rest.

        What could not run at all (a refused command, say) has exit code -1 and the reason in `stderr`.

        Raises: InvalidRequest, and what `get_or_create_session` raises.
        """
        if isinstance(commands, str):
            raise InvalidRequest("commands must be a list of commands, not one text.")
        handle = self._client.for_thread(user_id, thread_id or f"batch_{secrets.token_hex(6)}")
        results: list[ExecResult] = []
        try:
            await handle.info()  # no session, no batch
            for command in commands:
                try:
                    results.append(await handle.execute(command, timeout))
                except HutchError as error:
                    results.append(_not_run(error))
        finally:
            await handle.close_session()
        return results

    async def aclose(self) -> None:
        await self._client.aclose()


def _not_run(error: HutchError) -> ExecResult:
    return {
        "exit_code": -1,
        "stdout": "",
        "stderr": f"{error.code}: {error}",
        "execution_time_ms": 0,
        "timed_out": False,
        "limit": None,
        "truncated": False,
        "stdout_bytes": 0,
        "stderr_bytes": 0,
        "spooled_bytes": 0,
        "killed_processes": [],
        "session_recreated": False,
        "files_kept": True,
        "process_id": "",
    }
