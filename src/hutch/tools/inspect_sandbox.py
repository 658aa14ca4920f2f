"""Sandboxes for inspect-ai: `sandbox="hutch"` in a task, found by the entry point `inspect_ai`."""

from __future__ import annotations

import posixpath
import shlex
import uuid
from pathlib import PurePosixPath
from typing import Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)

from hutch.client.async_client import AsyncSandboxClient
from hutch.client.by_settings import client_at, place_by_settings
from hutch.model.errors import (
    InvalidRequest,
    LimitExceeded,
    PathRejected,
    PoolExhausted,
    SandboxFileNotFound,
    SandboxUnavailable,
    SessionExpiredError,
)
from hutch.model.process import ExecResult as HutchResult
from hutch.model.session import WORKSPACE_DIR
from hutch.tools.any_path import read_anywhere, write_anywhere
from hutch.tools.ceiling import longest_timeout

USER = "inspect"
OWN_USERS = (None, "sandboxuser", "1000")
INLINE_BYTES = 100_000  # a longer command line goes through a file: the kernel takes 128 KiB as one argument
NOT_EXECUTABLE = 126


@sandboxenv(name="hutch")
class HutchSandboxEnvironment(SandboxEnvironment):
    """One sandbox of template `open` for each sample. `sandbox=("hutch", "http://server:8000")` has it on a server."""

    def __init__(self, client: AsyncSandboxClient) -> None:
        super().__init__()
        self._client = client
        self._ceiling: float | None = None

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Raises: InvalidRequest (a config that is no address), SandboxUnavailable, WallMissing."""
        client = _client(config)
        handle = client.for_thread(USER, f"inspect-{uuid.uuid4().hex}")
        await handle.get_or_create_session(USER, str(handle.thread_id))
        return {"default": cls(handle)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            client = environment.as_type(HutchSandboxEnvironment)._client
            await client.close_session()
            await client.aclose()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a program; nothing it started outlives it. A command is never run twice, whatever `timeout_retry` says.

        Raises: TimeoutError, PermissionError, OutputLimitExceededError, SandboxUserUnsupportedError,
            SandboxUnavailableError.
        """
        if user not in OWN_USERS:
            raise SandboxUserUnsupportedError(
                f"The only user in this sandbox is sandboxuser; {user!r} cannot run in it."
            )
        stdin = input.encode() if isinstance(input, str) else input
        script: str | None = None
        command = shlex.join(cmd)
        try:
            if len(command.encode(errors="surrogateescape")) > INLINE_BYTES:
                script = f"{WORKSPACE_DIR}/.inspect-{uuid.uuid4().hex}"
                await self._client.files.write(script, f"rm -f -- {script}\n{command}\n")
                command = f". {script}"
            seconds = timeout or await self._longest()
            result = await self._client.execute(command, seconds, False, cwd=cwd, env=env, stdin=stdin)
        except (SandboxFileNotFound, PathRejected, InvalidRequest, LimitExceeded) as error:
            return ExecResult(success=False, returncode=NOT_EXECUTABLE, stdout="", stderr=f"{error.code}: {error}\n")
        except (SandboxUnavailable, PoolExhausted, SessionExpiredError) as error:
            raise SandboxUnavailableError(f"{error.code}: {error}") from error
        return _answer(cmd, result, seconds)

    async def _longest(self) -> float:
        if self._ceiling is None:
            self._ceiling = await longest_timeout(self._client)
        return self._ceiling

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Raises: PermissionError, IsADirectoryError, OSError."""
        data = contents.encode() if isinstance(contents, str) else contents
        try:
            await write_anywhere(self._client, _absolute(file), data)
        except (PathRejected, LimitExceeded) as error:
            raise OSError(f"{file!r} cannot be written: {error}") from error

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Raises: FileNotFoundError, PermissionError, IsADirectoryError, UnicodeDecodeError, OutputLimitExceededError,
        OSError (no regular file).
        """
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await read_anywhere(self._client, _absolute(file), most)
        except LimitExceeded as error:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from error
        except PathRejected as error:
            raise OSError(f"{file!r} cannot be read: {error}") from error
        return data.decode() if text else data

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """A shell in the sandbox, for who watches an evaluation."""
        words = ["hutch", "shell", str(self._client.thread_id), "--user", USER, "--template", "open"]
        return SandboxConnection(type="hutch", command=shlex.join(words))

    def default_polling_interval(self) -> float:
        return 0.2


def _client(config: SandboxEnvironmentConfigType | None) -> AsyncSandboxClient:
    if config is None:
        return client_at(place_by_settings(), template="open")
    if isinstance(config, str) and config.startswith(("http://", "https://")):
        return AsyncSandboxClient("remote", config, policy="open")
    raise InvalidRequest(f"The sandbox config of hutch is the address of a server (http://…), not {config!r:.200}.")


def _absolute(file: str) -> str:
    return str(PurePosixPath(posixpath.join(WORKSPACE_DIR, file)))


def _answer(cmd: list[str], result: HutchResult, seconds: float) -> ExecResult[str]:
    if result["timed_out"]:
        raise TimeoutError(f"Command timed out after {seconds:g} s.")
    if result["exit_code"] == NOT_EXECUTABLE and "Permission denied" in result["stderr"]:
        raise PermissionError(f"{cmd[0]!r} may not be executed: {result['stderr'].strip()}")
    most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
    if result["truncated"] or max(result["stdout_bytes"], result["stderr_bytes"]) > most:
        kept = (result["stdout"] or result["stderr"])[:most]
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, kept)
    return ExecResult(
        success=result["exit_code"] == 0,
        returncode=result["exit_code"],
        stdout=result["stdout"],
        stderr=result["stderr"],
    )
