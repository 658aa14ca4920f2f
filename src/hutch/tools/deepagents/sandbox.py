"""A sandbox as deepagents wants it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    ExecuteOffloadResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    GlobResult,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox

from hutch.client.async_client import AsyncSandboxClient
from hutch.engine.loop import close_items
from hutch.model.errors import (
    CommandRejected,
    FileConflict,
    HutchError,
    InvalidRequest,
    LimitExceeded,
    NoActiveSession,
    PathRejected,
    SandboxFileNotFound,
    SessionExpiredError,
)
from hutch.model.session import WORKSPACE_DIR
from hutch.tools.any_path import in_workspace, read_anywhere, write_anywhere
from hutch.tools.deepagents.both_ways import BothWays
from hutch.tools.deepagents.edits import EMPTY_OLD_STRING, EditRefused, edited
from hutch.tools.deepagents.found import globbed, grep_command, grepped, searched, shown
from hutch.tools.deepagents.notes import note_of
from hutch.tools.deepagents.owner import AnyClient, Owner
from hutch.tools.deepagents.page import read_page
from hutch.tools.deepagents.shell_files import ShellFiles

ARTIFACTS_ROOT = f"{WORKSPACE_DIR}/.artifacts"  # outlives a pause of the sandbox, as /tmp does not
# What deepagents writes at the root of the file system when nothing else was agreed; nobody can write there.
ARTIFACT_FOLDERS = ("/large_tool_results", "/conversation_history", "/blobs")
EDITED_HERE_BYTES = 16 * 1024 * 1024  # larger files are edited where they are
GREP_SECONDS = 30.0
MERGED = "exec 2>&1; "  # one output, in the order of printing
CAPTURED_BYTES = 4000
# What the caller can mend; the rest (no sandbox to be had, no server) ends the run with its coded error.
TOLD = (CommandRejected, FileConflict, InvalidRequest, LimitExceeded, PathRejected, SandboxFileNotFound)

T = TypeVar("T")


class Renewed(Exception):
    """The session had expired; there is a new one."""

    def __str__(self) -> str:
        return (
            "session_expired: the sandbox was unused for too long, and is gone with all its files. "
            "A new, empty one is ready: write again what you need."
        )


class HutchSandbox(BothWays, BaseSandbox):
    """Commands and files of a sandbox, for `create_deep_agent(backend=…)`.

    One object serves any number of users and threads: each call is for the thread that was given here, else for the
    one that `client` is bound to, else for that of the LangGraph run it is made in (`user_id` of the run's context,
    `thread_id` of its `configurable`).

    Args:
        client: where the sandboxes are; made with `policy="open"`. Without one, they run in this process.
        user_id: whose sandbox.
        thread_id: of which conversation.
        timeout: seconds that a command may take when the model sets no time (default: the client's, 30).
        timeout_minutes: idle minutes until a sandbox and its files go (default: the client's, 30).
    """

    enable_capture_offload = True
    grep_exclude_dirs: tuple[str, ...] = (".git", ".artifacts")

    def __init__(
        self,
        client: AnyClient | None = None,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
        timeout: float | None = None,
        timeout_minutes: float | None = None,
    ) -> None:
        """Raises: InvalidRequest, SettingsInvalid."""
        self._owner = Owner(client, user_id, thread_id, timeout_minutes)
        self._loop_thread = self._owner.client.loop_thread
        self._timeout = timeout
        self._longest: float | None = None

    @property
    def id(self) -> str:
        """The conversation that the caller is in. Raises: InvalidRequest."""
        return self._owner.thread_id()

    # -- commands

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return self._wait(self.aexecute(command, timeout=timeout))

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command; what it starts in the background lives on. `timeout=0` is the longest that is allowed.

        Raises: SandboxUnavailable, PoolExhausted, ThreadOwnedByOther, InvalidRequest (whose sandbox?).
        """
        client = self._owner.handle()
        try:
            seconds = await self._seconds(client, timeout)
            result = await client.execute(MERGED + command, seconds, leftovers="keep")
        except TOLD as error:
            return ExecuteResponse(output=_words(error), exit_code=126)
        return ExecuteResponse(
            output=result["stdout"] + result["stderr"] + note_of(result, seconds),
            exit_code=result["exit_code"],
            truncated=result["truncated"],
        )

    async def _seconds(self, client: AsyncSandboxClient, timeout: float | None) -> float | None:
        if timeout is None:
            return self._timeout
        if timeout != 0:
            return timeout
        if self._longest is None:
            try:  # the ceiling is the server's; asking beyond it tells
                await client.execute("true", 10**9)
            except InvalidRequest as error:
                self._longest = float(error.details["maximum"])
            else:
                self._longest = 10**9
        return self._longest

    def execute_with_offload(self, command: str, capture_path: str, **options: Any) -> ExecuteOffloadResult:
        return self._wait(self.aexecute_with_offload(command, capture_path, **options))

    async def aexecute_with_offload(self, command: str, capture_path: str, **options: Any) -> ExecuteOffloadResult:
        place = placed(capture_path)
        done = await super().aexecute_with_offload(command, place, **options)
        if done.response.exit_code == 124 and not done.offloaded:
            done.response.output = await self._captured(place, capture_path) + done.response.output
        return done

    async def _captured(self, place: str, capture_path: str) -> str:
        """What a command had printed when its time was up: the wrapper that would have told it ended with it."""
        try:
            raw = await read_anywhere(self._owner.handle(), place)
        except (HutchError, OSError):
            return ""
        start = raw[:CAPTURED_BYTES].decode(errors="replace")
        return start + (f"\n... [{len(raw)} bytes in all, at {capture_path}]" if len(raw) > CAPTURED_BYTES else "")

    # -- files

    async def als(self, path: str) -> LsResult:
        async def native(client: AsyncSandboxClient, place: str) -> LsResult:
            return LsResult(entries=[shown(entry) for entry in await client.files.list(place)])

        try:
            return await self._by(path, native, lambda shell, place: shell.als(place))
        except SandboxFileNotFound:
            return LsResult(error=f"Path '{path}': path_not_found")
        except (Renewed, *TOLD) as error:
            return LsResult(error=f"Path '{path}': {_words(error)}")

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        async def native(client: AsyncSandboxClient, place: str) -> ReadResult:
            pieces = client.files.read_pieces(place)
            try:
                return await read_page(pieces, file_path, offset, limit)
            finally:
                await close_items(pieces)

        try:
            return await self._by(file_path, native, lambda shell, place: shell.aread(place, offset, limit))
        except SandboxFileNotFound:
            return ReadResult(error=f"File '{file_path}': file_not_found")
        except (Renewed, *TOLD) as error:
            return ReadResult(error=f"File '{file_path}': {_words(error)}")

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        try:
            raw = content.encode()
        except UnicodeEncodeError as error:
            return WriteResult(error=f"Failed to write file '{file_path}': {error}")
        failure = (await self.aupload_files([(file_path, raw)]))[0].error
        if failure is not None:
            return WriteResult(error=f"Failed to write file '{file_path}': {failure}")
        return WriteResult(path=file_path)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        if not old_string:
            return EditResult(error=EMPTY_OLD_STRING)

        async def native(client: AsyncSandboxClient, place: str) -> EditResult:
            raw = await client.files.read(place, length=EDITED_HERE_BYTES + 1)
            if len(raw) > EDITED_HERE_BYTES:
                raise PathRejected("Too large to be edited here.")  # the sandbox does it, where the file is
            changed, count = edited(raw, old_string, new_string, replace_all=replace_all)
            await write_anywhere(client, place, changed)
            return EditResult(path=file_path, occurrences=count)

        try:
            return await self._by(
                file_path, native, lambda shell, place: shell.aedit(place, old_string, new_string, replace_all)
            )
        except EditRefused as refused:
            return refused.result(file_path, old_string)
        except SandboxFileNotFound:
            return EditRefused("file_not_found").result(file_path, old_string)
        except PermissionError:
            return EditRefused("permission_denied").result(file_path, old_string)
        except (Renewed, *TOLD) as error:
            return EditResult(error=f"Error editing file '{file_path}': {_words(error)}")

    async def adelete(self, file_path: str) -> DeleteResult:
        async def native(client: AsyncSandboxClient, place: str) -> DeleteResult:
            await client.files.remove(place, recursive=True)
            return DeleteResult(path=file_path)

        if placed(file_path).rstrip("/") == WORKSPACE_DIR:
            return DeleteResult(error=f"Error deleting file '{file_path}': it is the workspace itself")
        try:
            return await self._by(file_path, native, lambda shell, place: shell.adelete(place))
        except SandboxFileNotFound:
            return DeleteResult(error=f"Error: '{file_path}' not found")
        except (Renewed, *TOLD) as error:
            return DeleteResult(error=f"Error deleting file '{file_path}': {_words(error)}")

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        root = _root(path)

        async def native(client: AsyncSandboxClient, place: str) -> GlobResult:
            return globbed(await client.files.list(place, recursive=True), place, pattern)

        try:
            return await self._by(root, native, lambda shell, place: shell.aglob(pattern, place))
        except SandboxFileNotFound:
            return GlobResult(error=f"Path '{root}': path_not_found")
        except (Renewed, *TOLD) as error:
            return GlobResult(error=f"Path '{root}': {_words(error)}")

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        root = _root(path)

        async def native(client: AsyncSandboxClient, place: str) -> GrepResult:
            return await self._grep(client, place, pattern, glob, max_count)

        try:
            return await self._by(
                root, native, lambda shell, place: shell.agrep(pattern, place, glob, max_count=max_count)
            )
        except SandboxFileNotFound:
            return GrepResult(error=f"Path '{root}': path_not_found")
        except (Renewed, ValueError) as error:
            if isinstance(error, NoActiveSession):
                raise
            return GrepResult(error=f"Path '{root}': {_words(error)}")

    async def _grep(
        self, client: AsyncSandboxClient, root: str, pattern: str, glob: str | None, most: int | None
    ) -> GrepResult:
        excluded = tuple(name for name in self.grep_exclude_dirs if name != root.rsplit("/", 1)[-1])
        names: bytes | None = None
        if glob:
            entries = await client.files.list(root, recursive=True)
            wanted = searched(entries, root, glob, frozenset(excluded))
            names = b"\0".join(name.encode(errors="surrogateescape") for name in wanted)
        else:
            await client.files.stat(root)
        command = grep_command(pattern, root, excluded, most, names_from_input=names is not None)
        result = await client.execute(command, GREP_SECONDS, False, env={"LC_ALL": "C"}, stdin=names)
        found = grepped(result["stdout"], most, cut=result["truncated"] or result["timed_out"])
        if result["timed_out"] and not found.matches:
            return GrepResult(error=f"Error: grep timed out after {GREP_SECONDS:g}s. Try a narrower path.")
        return found

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        async def by_client(client: AsyncSandboxClient) -> list[FileUploadResponse]:
            return await ShellFiles(client).aupload_files([(placed(path), data) for path, data in files])

        try:
            found = await self._with_client(by_client)
        except Renewed as renewed:
            return [FileUploadResponse(path=path, error=str(renewed)) for path, _ in files]
        return [FileUploadResponse(path=path, error=one.error) for (path, _), one in zip(files, found, strict=True)]

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        async def by_client(client: AsyncSandboxClient) -> list[FileDownloadResponse]:
            return await ShellFiles(client).adownload_files([placed(path) for path in paths])

        try:
            found = await self._with_client(by_client)
        except Renewed as renewed:
            return [FileDownloadResponse(path=path, error=str(renewed)) for path in paths]
        return [
            FileDownloadResponse(path=path, content=one.content, error=one.error)
            for path, one in zip(paths, found, strict=True)
        ]

    # -- which way

    async def _by(
        self,
        path: str,
        native: Callable[[AsyncSandboxClient, str], Awaitable[T]],
        scripted: Callable[[ShellFiles, str], Awaitable[T]],
    ) -> T:
        """By `client.files` what lies in the workspace; by a script in the sandbox what does not, or leads out of it.

        Raises: Renewed, HutchError.
        """
        place = placed(path)

        async def act(client: AsyncSandboxClient) -> T:
            if in_workspace(place):
                try:
                    return await native(client, place)
                except PathRejected:
                    pass
            return await scripted(ShellFiles(client, self.grep_exclude_dirs), place)

        return await self._with_client(act)

    async def _with_client(self, act: Callable[[AsyncSandboxClient], Awaitable[T]]) -> T:
        """Raises: Renewed, HutchError."""
        client = self._owner.handle()
        try:
            return await act(client)
        except SessionExpiredError:
            await client.execute("true")  # makes a new session
            raise Renewed from None


def placed(path: str) -> str:
    """Where the file really is: deepagents' own ones, which it wants at the root, lie below the workspace."""
    if isinstance(path, str) and any(path == folder or path.startswith(folder + "/") for folder in ARTIFACT_FOLDERS):
        return ARTIFACTS_ROOT + path
    return path


def _root(path: str | None) -> str:
    if not path or path == ".":
        return WORKSPACE_DIR
    return path if path.startswith("/") else f"{WORKSPACE_DIR}/{path}"


def _words(error: Exception) -> str:
    return f"{error.code}: {error}" if isinstance(error, HutchError) else str(error)
