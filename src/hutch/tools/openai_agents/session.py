"""One sandbox as the Agents SDK sees it: commands, files, snapshots, terminals, ports."""

from __future__ import annotations

import asyncio
import io
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from agents.sandbox.errors import (
    ConfigurationError,
    ErrorCode,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
)
from agents.sandbox.session import SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.pty_types import PtyExecUpdate
from agents.sandbox.session.workspace_payloads import coerce_write_payload
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import CommandRejected, HutchError, InvalidRequest, NotSupported, SandboxFileNotFound
from hutch.model.template import BASH
from hutch.tools.openai_agents.archive import pack, spooled, unpack
from hutch.tools.openai_agents.commands import CANNOT_RUN, context_of, refusal, run, unreachable
from hutch.tools.openai_agents.terminals import Launch, Terminals

PLAIN_MODE = "-rw-r--r--"
GONE = ("removing", "removed")


class HutchSandboxState(SandboxSessionState):
    """What is needed to find a sandbox again, from any process with the same data folder or server."""

    type: Literal["hutch"] = "hutch"
    user_id: str
    thread_id: str
    timeout_minutes: float | None = None
    hutch_session_id: str | None = None  # of the sandbox whose files these are


@dataclass(frozen=True, slots=True)
class Reach:
    exec_seconds: float
    most_archive_bytes: int


class HutchSandboxSession(BaseSandboxSession):
    """Made by `HutchSandboxClient`."""

    state: HutchSandboxState

    def __init__(self, state: HutchSandboxState, box: AsyncSandboxClient, reach: Reach) -> None:
        self.state = state
        self._box = box
        self._reach = reach
        self._terminals = Terminals(box)
        self._attached = False

    # -- life

    async def attach(self) -> None:
        """Find the sandbox, or make it; whether it is the one of the state decides about its files.

        Raises: ConfigurationError, WorkspaceStartError.
        """
        state = self.state
        try:
            session = await self._box.get_or_create_session(state.user_id, state.thread_id, state.timeout_minutes)
        except HutchError as error:
            raise WorkspaceStartError(
                path=self._workspace_root_path(), message=str(error), context=context_of(error), cause=error
            ) from error
        if session["template"] == BASH.name:
            raise ConfigurationError(
                message='The SDK needs more than the strict template offers: AsyncSandboxClient(policy="open").',
                error_code=ErrorCode.SANDBOX_CONFIG_INVALID,
                op="start",
                context={"template": session["template"]},
            )
        kept = session["session_id"] == state.hutch_session_id
        if not kept:
            state.workspace_root_ready = False
            state.hutch_session_id = session["session_id"]
        self._set_start_state_preserved(kept)
        self._attached = True

    async def _ensure_backend_started(self) -> None:
        if not await self.running():
            await self.attach()

    async def _prepare_backend_workspace(self) -> None:
        root = self._workspace_root_path()
        result = await self._run("mkdir", "-p", "--", root.as_posix())
        if not result.ok():
            raise WorkspaceStartError(path=root, context={"stderr": result.stderr.decode(errors="replace")})

    async def running(self) -> bool:
        """Whether the sandbox is there. One that sleeps is: the next call wakes it, with its files."""
        if not self._attached:
            return False
        try:
            return (await self._box.info())["state"] not in GONE
        except HutchError:
            return False

    async def delete(self) -> None:
        await self._terminals.close()
        await self._box.close_session()
        self._attached = False

    # -- commands

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: str | User | None
    ) -> list[str]:
        _refuse_user(user)
        prepared: list[str] = super()._prepare_exec_command(*command, shell=shell, user=None)
        return prepared

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        argv = tuple(str(word) for word in command)
        return await self._run(*argv, cwd=self._workspace_root_path().as_posix(), timeout=timeout)

    async def _run(self, *argv: str, cwd: str | None = None, timeout: float | None = None) -> ExecResult:
        seconds = timeout if timeout is not None else self._reach.exec_seconds
        return await run(self._box, argv, cwd, await self.state.manifest.environment.resolve(), seconds)

    # -- files

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Raises: WorkspaceReadNotFoundError, WorkspaceArchiveReadError, InvalidManifestPathError."""
        _refuse_user(user)
        target = self.normalize_path(path)
        try:
            return await spooled(self._box.files.read_pieces(target.as_posix()))
        except SandboxFileNotFound as error:
            raise WorkspaceReadNotFoundError(path=target, cause=error) from error
        except HutchError as error:
            raise WorkspaceArchiveReadError(path=target, context=context_of(error), cause=error) from error

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        try:
            return await self._box.files.read(self.normalize_path(path).as_posix(), length=max_bytes)
        except SandboxFileNotFound as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Folders on the way are made; a file that is replaced keeps its mode.

        Raises: WorkspaceArchiveWriteError, WorkspaceWriteTypeError, InvalidManifestPathError.
        """
        _refuse_user(user)
        target = self.normalize_path(path, for_write=True)
        stream = coerce_write_payload(path=target, data=data).stream
        try:
            mode = await self._mode(target.as_posix())
            with tempfile.NamedTemporaryFile() as spool:
                await asyncio.to_thread(shutil.copyfileobj, stream, spool)
                await asyncio.to_thread(spool.flush)
                await self._box.upload_file(spool.name, target.as_posix())
            if mode != PLAIN_MODE:
                await self._run("chmod", _symbolic(mode), "--", target.as_posix())
        except HutchError as error:
            raise WorkspaceArchiveWriteError(
                path=target, message=str(error), context=context_of(error), cause=error
            ) from error

    async def _mode(self, path: str) -> str:
        try:
            return (await self._box.files.stat(path))["permissions"]
        except SandboxFileNotFound:
            return PLAIN_MODE

    # -- snapshots

    async def persist_workspace(self) -> io.IOBase:
        """Raises: WorkspaceArchiveReadError."""
        root = self._workspace_root_path()
        try:
            return await pack(
                self._box,
                root.as_posix(),
                [path.as_posix() for path in self._persist_workspace_skip_relpaths()],
                self._reach.most_archive_bytes,
            )
        except HutchError as error:
            raise WorkspaceArchiveReadError(path=root, context=context_of(error), cause=error) from error

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Raises: WorkspaceArchiveWriteError, WorkspaceWriteTypeError."""
        root = self._workspace_root_path()
        try:
            await unpack(self._box, root.as_posix(), coerce_write_payload(path=root, data=data).stream)
        except HutchError as error:
            raise WorkspaceArchiveWriteError(
                path=root, message=str(error), context=context_of(error), cause=error
            ) from error

    async def _clear_workspace_root_on_resume(self) -> None:
        # Not by names out of `ls`, as the SDK does it: a name may hold a line break.
        root = self._workspace_root_path()
        await self._exec_checked_nonzero("find", root.as_posix(), "-mindepth", "1", "-delete")

    # -- terminals

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Raises: ExecTransportError."""
        argv = self._prepare_exec_command(*command, shell=shell, user=user)
        launch = Launch(
            argv=tuple(argv),
            cwd=self._workspace_root_path().as_posix(),
            env=await self.state.manifest.environment.resolve(),
            tty=tty,
            timeout=timeout,
        )
        try:
            return await self._terminals.start(launch, yield_time_s, max_output_tokens)
        except (CommandRejected, InvalidRequest) as error:
            return PtyExecUpdate(None, refusal(error), CANNOT_RUN, None)
        except HutchError as error:
            raise unreachable(argv, error) from error

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Raises: PtySessionNotFoundError, ExecTransportError, RuntimeError without a terminal to type into."""
        try:
            return await self._terminals.write(session_id, chars, yield_time_s, max_output_tokens)
        except HutchError as error:
            raise unreachable(("write_stdin",), error) from error

    async def pty_terminate_all(self) -> None:
        await self._terminals.close()

    # -- ports

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        """A preview of the port, good for an hour. Raises: ExposedPortUnavailableError (in mode local, too)."""
        try:
            preview = await self._box.preview(port)
        except HutchError as error:
            raise ExposedPortUnavailableError(
                port=port,
                exposed_ports=self.state.exposed_ports,
                reason="backend_unavailable",
                context={**context_of(error), "detail": str(error)},
                cause=error,
                retryable=False if isinstance(error, NotSupported) else error.retryable,
            ) from error
        at = urlsplit(preview["url"])
        tls = at.scheme == "https"
        return ExposedPortEndpoint(
            host=at.hostname or "", port=at.port or (443 if tls else 80), tls=tls, query=at.query
        )


def _refuse_user(user: str | User | None) -> None:
    """Raises: ConfigurationError."""
    if user is not None:
        raise ConfigurationError(
            message="A Hutch sandbox has one user, so nothing runs as another: leave `user` and `run_as` out.",
            error_code=ErrorCode.SANDBOX_CONFIG_INVALID,
            op="exec",
            context={"user": str(user)},
        )


def _symbolic(permissions: str) -> str:
    """What `stat` shows (-rwxr-x---) as chmod reads it."""
    user, group, other = (permissions[start : start + 3].replace("-", "") for start in (1, 4, 7))
    return f"u={user},g={group},o={other}"
