"""The client: one API, whatever runs the sandboxes. The sync client in `sync_client.py` is generated from this file.

Every method acts on the session of the calling task or thread (see `binding.py`), or, on a handle made by `for_thread`,
on that thread's.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from hutch.client.async_code import AsyncCode
from hutch.client.async_drive import AsyncDrive
from hutch.client.async_egress import AsyncEgress
from hutch.client.async_files import AsyncFiles, local_pieces, save_locally
from hutch.client.async_git import AsyncGit
from hutch.client.async_shell import AsyncConnection, AsyncShell
from hutch.client.binding import UNBOUND, Binding, ContextSlot, FixedSlot
from hutch.client.open_transport import resolve
from hutch.client.transport import SessionOrder, Transport, WriteOrder
from hutch.engine.loop import LoopThread, close_items
from hutch.model.drive import DriveFile, PlacedFile
from hutch.model.errors import HutchError, NoActiveSession, SessionExpiredError
from hutch.model.files import FileListing, UploadResult
from hutch.model.preview import Preview, PreviewInfo
from hutch.model.process import (
    ExecResult,
    LogChunk,
    OutputEvent,
    ProcessInfo,
    ProcessSpec,
    SignalScope,
    StreamName,
)
from hutch.model.session import SandboxInfo, SessionInfo
from hutch.model.template import TemplateInfo

OutputCallback = Callable[[str], None]


class AsyncSandboxClient:
    """Sandboxes for agents: one per conversation thread, with files that stay while the conversation lasts.

    Args:
        mode: "local" runs the sandboxes in this process; "remote" uses a server.
        server_url: the server, for "remote".
        api_key: its key, for "remote".
        policy: "strict" (26 programs, commands are judged) or "open", or the path of a profile of your own (TOML).
        template: the kind of sandbox, instead of the one that belongs to the policy.
        data_dir: where files and state live, for "local"; default is HUTCH_DATA_DIR.
        embeddings: an object with `embed_documents` and `embed_query` (LangChain's `Embeddings`), for "local": drives
            are then searched by meaning, too.
    """

    def __init__(
        self,
        mode: Literal["local", "remote"] = "local",
        server_url: str | None = None,
        *,
        api_key: str | None = None,
        policy: str | os.PathLike[str] | None = None,
        template: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        embeddings: object | None = None,
    ) -> None:
        """Raises: InvalidRequest, SettingsInvalid."""
        self._options = resolve(mode, server_url, api_key, policy, template, data_dir, embeddings)
        self._transport: Transport = self._options.transport
        self._slot: ContextSlot | FixedSlot = ContextSlot()
        self.files: AsyncFiles = AsyncFiles(self._transport, self._sandbox)
        self.egress: AsyncEgress = AsyncEgress(self._transport.egress, self._sandbox)
        self.code: AsyncCode = AsyncCode(self._transport.code, self._sandbox)
        self.git: AsyncGit = AsyncGit(self._transport.git, self._sandbox)
        self.drive: AsyncDrive = AsyncDrive(self._transport.drive, self._user)

    @property
    def loop_thread(self) -> LoopThread:
        """Where plain code runs this client."""
        return self._options.loop_thread

    # -- sessions

    @property
    def mode(self) -> str:
        return self._options.mode

    @property
    def session_id(self) -> str | None:
        """The session of the calling task or thread."""
        return self._slot.get().session_id

    @property
    def user_id(self) -> str | None:
        return self._slot.get().user_id

    @property
    def thread_id(self) -> str | None:
        return self._slot.get().thread_id

    @thread_id.setter
    def thread_id(self, thread_id: str | None) -> None:
        """Bind the calling task or thread to another conversation; its session is looked up at the next call."""
        user_id = self._slot.get().user_id
        self._slot.set(Binding(user_id=user_id, thread_id=thread_id) if thread_id is not None else UNBOUND)

    def for_thread(self, user_id: str, thread_id: str, timeout_minutes: float | None = None) -> AsyncSandboxClient:
        """A handle bound to one conversation for good, safe to pass anywhere. Its session is made at first use."""
        handle = object.__new__(type(self))
        handle._options = self._options
        handle._transport = self._transport
        handle._slot = FixedSlot(Binding(user_id=user_id, thread_id=thread_id, timeout_minutes=timeout_minutes))
        handle.files = AsyncFiles(handle._transport, handle._sandbox)
        handle.egress = AsyncEgress(handle._transport.egress, handle._sandbox)
        handle.code = AsyncCode(handle._transport.code, handle._sandbox)
        handle.git = AsyncGit(handle._transport.git, handle._sandbox)
        handle.drive = AsyncDrive(handle._transport.drive, handle._user)
        return handle

    async def get_or_create_session(
        self, user_id: str, thread_id: str, timeout_minutes: float | None = None, *, shared: bool = False
    ) -> SessionInfo:
        """The session of `thread_id`, made if there is none; later calls of this task or thread use it.

        Args:
            timeout_minutes: idle minutes until session and files go (default SESSION_TIMEOUT_MINUTES, 30).
            shared: let other users join this thread.

        Raises: InvalidRequest, ThreadOwnedByOther, PoolExhausted, WallMissing, SandboxUnavailable, StoreUnavailable.
        """
        order = SessionOrder(user_id, thread_id, timeout_minutes, self._options.template, shared)
        session, sandbox_id = await self._transport.ensure_session(order)
        self._slot.set(Binding(user_id, thread_id, session["session_id"], sandbox_id, timeout_minutes))
        return session

    def drive_of(self, user_id: str) -> AsyncDrive:
        """The drive of a user, whoever is bound here; safe to pass anywhere."""
        return AsyncDrive(self._transport.drive, lambda: user_id)

    def _user(self) -> str:
        """The user of the current binding. Raises: NoActiveSession."""
        user_id = self._slot.get().user_id
        if user_id is None:
            raise NoActiveSession(
                "No user is bound in this task or thread. Call get_or_create_session(user_id=…, thread_id=…) first, "
                "or use client.drive_of(user_id)."
            )
        return user_id

    async def _sandbox(self) -> str:
        """The sandbox of the current binding.

        Raises: NoActiveSession, ThreadOwnedByOther.
        """
        binding = self._slot.get()
        if binding.sandbox_id is not None:
            return binding.sandbox_id
        if binding.thread_id is None:
            raise NoActiveSession(
                "No active session in this task or thread. Call get_or_create_session(user_id=…, thread_id=…) first, "
                "or use client.for_thread(user_id, thread_id)."
            )
        if isinstance(self._slot, FixedSlot):
            return await self._renew(binding)
        found = await self._transport.find_session(binding.thread_id, binding.user_id)
        if found is None:
            raise NoActiveSession(
                f"No active session for thread {binding.thread_id!r}. Call get_or_create_session first."
            )
        self._slot.set(Binding(found["user_id"], binding.thread_id, found["session_id"], found["sandbox_id"]))
        return found["sandbox_id"]

    async def _renew(self, binding: Binding, *, expired: bool = False) -> str:
        assert binding.thread_id is not None
        order = SessionOrder(
            binding.user_id or "",
            binding.thread_id,
            binding.timeout_minutes,
            self._options.template,
            renews=expired,
        )
        session, sandbox_id = await self._transport.ensure_session(order)
        self._slot.set(
            Binding(binding.user_id, binding.thread_id, session["session_id"], sandbox_id, binding.timeout_minutes)
        )
        return sandbox_id

    async def close_session(self) -> None:
        """End the session and delete its files. Never raises for a session that is gone already."""
        try:
            await self._transport.close_session(await self._sandbox_to_close())
        except HutchError:
            # Closing is the end of the caller's interest; what could not be removed goes with its deadline.
            pass
        finally:
            self._slot.set(UNBOUND)

    async def _sandbox_to_close(self) -> str:
        binding = self._slot.get()
        if binding.sandbox_id is None and binding.thread_id is not None:
            found = await self._transport.find_session(binding.thread_id, binding.user_id)
            if found is not None:
                return found["sandbox_id"]
            raise NoActiveSession("Nothing to close.")
        return await self._sandbox()

    async def info(self) -> SandboxInfo:
        """The current sandbox. Raises: NoActiveSession, SessionExpiredError."""
        return await self._transport.info(await self._sandbox())

    async def sessions(self) -> list[SandboxInfo]:
        """All sessions there are."""
        return await self._transport.sessions()

    async def health(self) -> Mapping[str, Any]:
        """How the machines' walls stand, and how many sandboxes run."""
        return await self._transport.health()

    async def templates(self) -> list[TemplateInfo]:
        """The kinds of sandboxes there are: what may run in each, and its limits."""
        return await self._transport.templates()

    async def set_cwd(self, path: str) -> None:
        """Working folder of later commands: below /workspace. Raises: PathRejected, SandboxFileNotFound."""
        await self._transport.set_context(await self._sandbox(), cwd=path, env=None)

    async def set_env(self, env: Mapping[str, str]) -> None:
        """Environment of later commands, instead of what `set_env` set before. Raises: InvalidRequest."""
        await self._transport.set_context(await self._sandbox(), cwd=None, env=env)

    # -- commands

    async def execute(
        self,
        command: str,
        timeout: float | None = None,
        auto_retry: bool = True,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        leftovers: Literal["kill", "keep"] = "kill",
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
    ) -> ExecResult:
        """Run a bash command and wait for its end.

        Args:
            timeout: seconds (default DEFAULT_COMMAND_TIMEOUT, 30); then the whole process tree is killed.
            auto_retry: when the session has expired, make a new (empty) one and run the command there, once.
            cwd: folder to run in, instead of the session's.
            env: variables over the session's.
            stdin: bytes to feed; without them the command's input is empty.
            leftovers: "kill" ends what the command left running, "keep" lets it live.
            on_stdout: called with each piece of text as it is printed, here in the caller's thread.
            on_stderr: the same for errors.

        Raises: CommandRejected, InvalidRequest, NoActiveSession, SessionExpiredError, SandboxUnavailable,
            PoolExhausted.
        """
        self._options.check_command(command)
        spec = ProcessSpec(
            command=command,
            env=dict(env or {}),
            cwd=cwd,
            stdin="empty" if stdin is None else "pipe",
            timeout=self._options.default_timeout if timeout is None else timeout,
            leftovers=leftovers,
        )
        sandbox_id = await self._sandbox()
        try:
            return await self._run(sandbox_id, spec, stdin, on_stdout, on_stderr)
        except SessionExpiredError:
            binding = self._slot.get()
            if not auto_retry or binding.thread_id is None:
                raise
        result = await self._run(await self._renew(binding, expired=True), spec, stdin, on_stdout, on_stderr)
        result["session_recreated"] = True
        result["files_kept"] = False
        return result

    async def _run(
        self,
        sandbox_id: str,
        spec: ProcessSpec,
        stdin: bytes | None,
        on_stdout: OutputCallback | None,
        on_stderr: OutputCallback | None,
    ) -> ExecResult:
        if stdin is None and on_stdout is None and on_stderr is None:
            return await self._transport.execute(sandbox_id, spec)
        if stdin is not None:
            return await self._run_fed(sandbox_id, spec, stdin, on_stdout, on_stderr)
        return await _relay(self._transport.stream(sandbox_id, spec), on_stdout, on_stderr)

    async def _run_fed(
        self,
        sandbox_id: str,
        spec: ProcessSpec,
        stdin: bytes,
        on_stdout: OutputCallback | None,
        on_stderr: OutputCallback | None,
    ) -> ExecResult:
        started = await self._transport.start(sandbox_id, spec)
        process_id = started["process_id"]
        try:
            try:
                await self._transport.send_input(sandbox_id, process_id, stdin)
                await self._transport.close_input(sandbox_id, process_id)
            except HutchError:
                pass  # a command need not read its input; its result tells how it went
            return await _relay(self._transport.attach(sandbox_id, process_id, replay=True), on_stdout, on_stderr)
        except BaseException:
            await self._transport.kill(sandbox_id, process_id)
            raise

    async def stream(
        self,
        command: str,
        timeout: float | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> AsyncIterator[OutputEvent]:
        """Run a command and yield its output as it comes, then one "exit" event with the result.

        Raises: as `execute`. Leaving the loop early ends the command.
        """
        self._options.check_command(command)
        spec = ProcessSpec(
            command=command,
            env=dict(env or {}),
            cwd=cwd,
            timeout=self._options.default_timeout if timeout is None else timeout,
        )
        items = self._transport.stream(await self._sandbox(), spec)
        try:
            async for event in items:
                yield event
        finally:
            await close_items(items)

    # -- background processes

    async def start(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
        pty: tuple[int, int] | None = None,
        timeout: float | None = None,
        leftovers: Literal["kill", "keep"] = "kill",
        tag: str | None = None,
    ) -> ProcessInfo:
        """Start a command and return at once; it lives until it ends, is killed, or the sandbox goes.

        Args:
            stdin: whether it gets input by `send_input`; without, its input is empty.
            pty: rows and columns of a terminal to run it on; `send_input` types.
            leftovers: "kill" ends what the command left running when it ends, "keep" lets it live.

        Raises: CommandRejected, NoActiveSession, SessionExpiredError, SandboxUnavailable.
        """
        self._options.check_command(command)
        spec = ProcessSpec(
            command=command,
            env=dict(env or {}),
            cwd=cwd,
            stdin="pipe" if stdin else "empty",
            pty=pty,
            timeout=timeout,
            leftovers=leftovers,
            tag=tag,
        )
        return await self._transport.start(await self._sandbox(), spec)

    async def processes(self) -> list[ProcessInfo]:
        """Running processes, and the last ended ones."""
        return await self._transport.processes(await self._sandbox())

    async def attach(self, process_id: str, *, replay: bool = True) -> AsyncIterator[OutputEvent]:
        """Follow a process from its first byte (or from now); leaving does not end it. Raises: ProcessNotFound."""
        items = self._transport.attach(await self._sandbox(), process_id, replay=replay)
        try:
            async for event in items:
                yield event
        finally:
            await close_items(items)

    async def logs(
        self, process_id: str, *, stream: StreamName = "stdout", offset: int = 0, max_bytes: int = 65536
    ) -> LogChunk:
        """A piece of what a process printed, as bytes and as text. Raises: ProcessNotFound, InvalidRequest."""
        return await self._transport.logs(
            await self._sandbox(), process_id, stream=stream, offset=offset, max_bytes=max_bytes
        )

    async def wait(self, process_id: str, timeout: float | None = None) -> ExecResult | None:
        """The result of a process; None when it still runs after `timeout` seconds. Raises: ProcessNotFound."""
        return await self._transport.wait(await self._sandbox(), process_id, timeout)

    async def send_input(self, process_id: str, data: bytes | str) -> None:
        """Feed a process started with `stdin=True`. Raises: ProcessNotFound, ProcessEnded."""
        await self._transport.send_input(await self._sandbox(), process_id, _bytes(data))

    async def close_input(self, process_id: str) -> None:
        """End its input. Raises: ProcessNotFound, ProcessEnded."""
        await self._transport.close_input(await self._sandbox(), process_id)

    async def signal(self, process_id: str, signum: int, *, scope: SignalScope = "tree") -> None:
        """Send a signal to a process, its group, or all it started. Raises: ProcessNotFound, ProcessEnded."""
        await self._transport.signal(await self._sandbox(), process_id, signum, scope)

    async def kill(self, process_id: str) -> None:
        """End a process and all it started. Raises: ProcessNotFound."""
        await self._transport.kill(await self._sandbox(), process_id)

    async def open_shell(self, *, rows: int = 24, columns: int = 80, cwd: str | None = None) -> AsyncShell:
        """A living bash on a terminal. Its lines are not judged by the policy; the walls hold as ever.

        Raises: NoActiveSession, SessionExpiredError, NotSupported.
        """
        return await AsyncShell.open(self._transport, await self._sandbox(), rows, columns, cwd)

    async def connect(self, port: int) -> AsyncConnection:
        """A byte stream to what listens on a port of the sandbox. Raises: PortUnreachable, InvalidRequest."""
        return AsyncConnection(await self._transport.connect(await self._sandbox(), port))

    async def preview(self, port: int, *, expires_in: float | None = None) -> Preview:
        """An address at which browsers (`url`) and programs (`address`, `token`) reach a port of the sandbox.

        Args:
            expires_in: seconds until it opens no more (default an hour, at most a week).

        Raises: NotSupported without a server, InvalidRequest, LimitExceeded, SessionExpiredError.
        """
        return await self._transport.preview(await self._sandbox(), port, expires_in)

    async def previews(self) -> list[PreviewInfo]:
        """The previews that open, without their tokens. Raises: NotSupported without a server."""
        return await self._transport.previews(await self._sandbox())

    async def revoke_preview(self, port: int, *, token_id: str | None = None) -> None:
        """Close the previews of a port, or one of them; what uses them is cut off. Raises: NotSupported."""
        await self._transport.revoke_preview(await self._sandbox(), port, token_id)

    # -- files

    async def upload_file(self, file_path: str | os.PathLike[str], remote_name: str | None = None) -> UploadResult:
        """Copy a file of this machine into the workspace, replacing one of that name.

        Raises: SandboxFileNotFound (a FileNotFoundError), LimitExceeded, PathRejected, SessionExpiredError.
        """
        path = Path(file_path)
        pieces, size = local_pieces(path)
        return await self._transport.write_file(
            await self._sandbox(), WriteOrder(remote_name if remote_name is not None else path.name, size), pieces
        )

    async def upload_file_from_bytes(self, filename: str, file_data: bytes) -> UploadResult:
        """Store bytes as a file of the workspace. Raises: LimitExceeded, PathRejected, SessionExpiredError."""
        return await self.files.write(filename, file_data)

    async def download_file(self, remote_name: str, local_path: str | os.PathLike[str] | None = None) -> str:
        """Copy a file of the workspace to `local_path` (default: its name, here) and return that path.

        Raises: SandboxFileNotFound, PathRejected, LimitExceeded, SessionExpiredError.
        """
        target = Path(local_path) if local_path is not None else Path(Path(remote_name).name)
        items = self._transport.read_file(await self._sandbox(), remote_name, offset=0, length=None)
        try:
            await save_locally(items, target)
        finally:
            await close_items(items)
        return str(target)

    async def download_file_to_bytes(self, remote_name: str) -> bytes:
        """The bytes of a file. Raises: SandboxFileNotFound, PathRejected, LimitExceeded, SessionExpiredError."""
        return await self.files.read(remote_name)

    async def place(self, paths: Sequence[str]) -> list[PlacedFile]:
        """Copy files of the user's drive into the workspace: to their names, or where two of them share one, each to
        its folder. All are looked at before any is sent; what is still there unchanged is not sent again.

        Raises: DriveFileNotFound, LimitExceeded, PathRejected, FileConflict, InvalidRequest, NoActiveSession.
        """
        return await self._transport.drive.place(await self._sandbox(), self._user(), paths)

    async def place_bytes(self, files: Sequence[tuple[str, bytes]]) -> list[PlacedFile]:
        """The same for content that comes from elsewhere, as pairs of a path and its bytes.

        Raises: LimitExceeded, PathRejected, FileConflict, InvalidRequest, NoActiveSession.
        """
        return await self._transport.drive.place_bytes(await self._sandbox(), files)

    async def save_to_drive(self, filename: str, drive_path: str) -> DriveFile:
        """Copy a file of the workspace into the user's drive.

        Raises: SandboxFileNotFound, PathRejected, LimitExceeded, FileConflict, NoActiveSession.
        """
        return await self._transport.drive.save(await self._sandbox(), self._user(), filename, drive_path)

    async def list_files(self) -> FileListing:
        """Regular files at the top of the workspace, newest first; `files.list` walks folders."""
        return await self._transport.list_files(await self._sandbox())

    # -- the end

    async def aclose(self) -> None:
        """Let go of connections. Sessions stay until they are closed or expire."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncSandboxClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close_session()
        await self.aclose()


async def _relay(
    items: AsyncIterator[OutputEvent], on_stdout: OutputCallback | None, on_stderr: OutputCallback | None
) -> ExecResult:
    callbacks = {"stdout": on_stdout, "stderr": on_stderr}
    try:
        async for event in items:
            if event["result"] is not None:
                return event["result"]
            callback = callbacks.get(event["type"])
            if callback is not None and event["text"]:
                callback(event["text"])
    finally:
        await close_items(items)
    raise SessionExpiredError("The sandbox ended before the command did.")


def _bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data
