"""A sandbox as deepagents wants it."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    FileDownloadResponse,
    FileUploadResponse,
    GlobResult,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)

from hutch.client.async_client import AsyncSandboxClient
from hutch.client.portal import closing_items
from hutch.model.errors import InvalidRequest, PathRejected, SandboxFileNotFound, SessionExpiredError
from hutch.model.session import WORKSPACE_DIR
from hutch.tools.any_path import in_workspace, write_anywhere
from hutch.tools.deepagents.commands import TOLD, Commands
from hutch.tools.deepagents.edits import EMPTY_OLD_STRING, EditRefused, edited
from hutch.tools.deepagents.found import fitting, globbed, grep_command, grepped, searched, shown
from hutch.tools.deepagents.page import read_page
from hutch.tools.deepagents.shell_files import ShellFiles
from hutch.tools.deepagents.words import NotUtf8, storable, told, utf8, utf8_path

ARTIFACTS_ROOT = f"{WORKSPACE_DIR}/.artifacts"  # outlives a pause of the sandbox, as /tmp does not
# What deepagents writes at the root of the file system when nothing else was agreed; nobody can write there.
ARTIFACT_FOLDERS = ("/large_tool_results", "/conversation_history", "/blobs")
EDITED_HERE_BYTES = 16 * 1024 * 1024  # larger files are edited where they are

T = TypeVar("T")


class Renewed(Exception):
    """The session had expired; there is a new one."""

    def __str__(self) -> str:
        return (
            "session_expired: the sandbox was unused for too long, and is gone with all its files. "
            "A new, empty one is ready: write again what you need."
        )


class HutchSandbox(Commands):
    """Commands and files of a sandbox, for `create_deep_agent(backend=…)`.

    One object serves any number of users and threads: each call is for the thread that was given here (or that the
    client is a handle of), else for that of the LangGraph run it is made in: `user_id` of the run's context,
    `thread_id` of its `configurable`.

    Args:
        client: where the sandboxes are; made with `policy="open"`. Without one, where the settings say.
        user_id: whose sandbox.
        thread_id: of which conversation.
        timeout: seconds that a command may take when the model sets no time (default: the client's, 30).
        timeout_minutes: idle minutes until a sandbox and its files go (default: the client's, 30).
    """

    grep_exclude_dirs: tuple[str, ...] = (".git", ".artifacts")

    @storable
    async def als(self, path: str) -> LsResult:
        async def native(client: AsyncSandboxClient, place: str) -> LsResult:
            return LsResult(entries=[shown(entry) for entry in await client.files.list(place)])

        try:
            return await self._by(path, native, lambda shell, place: shell.als(place))
        except SandboxFileNotFound:
            return LsResult(error=f"Path '{path}': path_not_found")
        except (Renewed, *TOLD) as error:
            return LsResult(error=f"Path '{path}': {told(error)}")

    @storable
    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        async def native(client: AsyncSandboxClient, place: str) -> ReadResult:
            async with closing_items(client.files.read_pieces(place)) as pieces:
                return await read_page(pieces, file_path, offset, limit)

        try:
            return await self._by(file_path, native, lambda shell, place: shell.aread(place, offset, limit))
        except SandboxFileNotFound:
            return ReadResult(error=f"File '{file_path}': file_not_found")
        except (Renewed, *TOLD) as error:
            return ReadResult(error=f"File '{file_path}': {told(error)}")

    @storable
    async def awrite(self, file_path: str, content: str) -> WriteResult:
        try:
            failure = (await self.aupload_files([(file_path, utf8(content))]))[0].error
        except NotUtf8 as error:
            failure = str(error)
        if failure is not None:
            return WriteResult(error=f"Failed to write file '{file_path}': {failure}")
        return WriteResult(path=file_path)

    @storable
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
            utf8(new_string)
            return await self._by(
                file_path, native, lambda shell, place: shell.aedit(place, old_string, new_string, replace_all)
            )
        except EditRefused as refused:
            return refused.result(file_path, old_string)
        except SandboxFileNotFound:
            return EditRefused("file_not_found").result(file_path, old_string)
        except PermissionError:
            return EditRefused("permission_denied").result(file_path, old_string)
        except (Renewed, NotUtf8, *TOLD) as error:
            return EditResult(error=f"Error editing file '{file_path}': {told(error)}")

    @storable
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
            return DeleteResult(error=f"Error deleting file '{file_path}': {told(error)}")

    @storable
    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        root = _root(path)

        async def native(client: AsyncSandboxClient, place: str) -> GlobResult:
            entries = await client.files.list(place, recursive=True)
            return await asyncio.to_thread(globbed, entries, place, fits)  # there may be 200,000

        try:
            fits = fitting(pattern)
            return await self._by(root, native, lambda shell, place: shell.aglob(pattern, place))
        except SandboxFileNotFound:
            return GlobResult(error=f"Path '{root}': path_not_found")
        except (Renewed, *TOLD) as error:
            return GlobResult(error=f"Path '{root}': {told(error)}")

    @storable
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
        except (Renewed, *TOLD) as error:
            return GrepResult(error=f"Path '{root}': {told(error)}")

    async def _grep(
        self, client: AsyncSandboxClient, root: str, pattern: str, glob: str | None, most: int | None
    ) -> GrepResult:
        excluded = tuple(name for name in self.grep_exclude_dirs if name != root.rsplit("/", 1)[-1])
        names: bytes | None = None
        if glob:
            entries = await client.files.list(root, recursive=True)
            wanted = await asyncio.to_thread(searched, entries, root, fitting(glob), frozenset(excluded))
            names = b"\0".join(name.encode(errors="surrogateescape") for name in wanted)
        else:
            await client.files.stat(root)
        command = grep_command(pattern, root, excluded, most, names_from_input=names is not None)
        result = await client.execute(command, None, False, env={"LC_ALL": "C"}, stdin=names)
        found = await asyncio.to_thread(grepped, result["stdout"], most, cut=result["truncated"] or result["timed_out"])
        if result["timed_out"] and not found.matches:
            return GrepResult(error="Error: grep timed out. Try a narrower path.")
        return found

    @storable
    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        async def by_client(client: AsyncSandboxClient) -> list[FileUploadResponse]:
            return await ShellFiles(client).aupload_files([(placed(path), data) for path, data in files])

        try:
            found = await self._with_client(by_client)
        except Renewed as renewed:
            return [FileUploadResponse(path=path, error=str(renewed)) for path, _ in files]
        return [FileUploadResponse(path=path, error=one.error) for (path, _), one in zip(files, found, strict=True)]

    @storable
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
        if not utf8_path(path):
            raise InvalidRequest("a path is text without NUL and half characters, of at most 4,095 bytes")

        async def act(client: AsyncSandboxClient) -> T:
            if in_workspace(place):
                try:
                    return await native(client, place)
                except PathRejected:
                    pass
            return await scripted(ShellFiles(client, self.grep_exclude_dirs), place)

        return await self._with_client(act)

    async def _with_client(self, act: Callable[[AsyncSandboxClient], Coroutine[Any, Any, T]]) -> T:
        """Raises: Renewed, HutchError."""
        client = self._owner.handle()
        try:
            return await self._there(act, client)
        except SessionExpiredError:
            await self._there(client.execute, "true")  # makes a new session
            raise Renewed from None


def placed(path: str) -> str:
    """Where the file really is: deepagents' own ones, which it wants at the root, lie below the workspace."""
    if isinstance(path, str) and any(path == folder or path.startswith(folder + "/") for folder in ARTIFACT_FOLDERS):
        return ARTIFACTS_ROOT + path
    return path


def _root(path: str | None) -> str:
    return posixpath.normpath(posixpath.join(WORKSPACE_DIR, path or "."))
