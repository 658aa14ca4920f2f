"""Where the files of a command come from, and where results go: the drive, or another filesystem of the agent.

A file of the drive goes into the sandbox inside the engine. What another filesystem holds is read here and handed over.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import FileConflict, InvalidRequest, PathRejected, SandboxFileNotFound
from hutch.model.session import WORKSPACE_DIR

Namespace = tuple[str, ...]
READ_LINES = 10**9  # all of them


class FileSource(Protocol):
    async def place(self, client: AsyncSandboxClient, paths: Sequence[str]) -> list[str]:
        """Put files into the sandbox; where they are, below /workspace, in the order of `paths`.

        Raises: HutchError; then nothing was sent.
        """

    async def save(self, client: AsyncSandboxClient, filename: str, path: str) -> int:
        """Take a file out of the sandbox; its size. Raises: HutchError."""


class DriveFiles:
    """The user's drive."""

    async def place(self, client: AsyncSandboxClient, paths: Sequence[str]) -> list[str]:
        return [_below(placed["path"]) for placed in await client.place(paths)]

    async def save(self, client: AsyncSandboxClient, filename: str, path: str) -> int:
        return (await client.save_to_drive(filename, path))["size_bytes"]


class _ReadHere:
    """A filesystem that this process can read."""

    async def read(self, client: AsyncSandboxClient, path: str) -> bytes:
        raise NotImplementedError

    async def write(self, client: AsyncSandboxClient, path: str, data: bytes) -> None:
        raise NotImplementedError

    async def place(self, client: AsyncSandboxClient, paths: Sequence[str]) -> list[str]:
        files = [(path, await self.read(client, path)) for path in paths]  # all are read before one is sent
        return [_below(placed["path"]) for placed in await client.place_bytes(files)]

    async def save(self, client: AsyncSandboxClient, filename: str, path: str) -> int:
        data = await client.files.read(filename)
        await self.write(client, path, data)
        return len(data)


class BackendFiles(_ReadHere):
    """A backend of deepagents (its `BackendProtocol`)."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    async def read(self, client: AsyncSandboxClient, path: str) -> bytes:
        try:
            found = (await self._backend.adownload_files([path]))[0]
        except NotImplementedError:
            return await self._read_as_text(path)
        if found.error is not None or found.content is None:
            raise _unreadable(path, found.error)
        return bytes(found.content)

    async def _read_as_text(self, path: str) -> bytes:
        result = await self._backend.aread(path, 0, READ_LINES)
        if result.error is not None or result.file_data is None:
            raise _unreadable(path, result.error)
        return _content(path, result.file_data)

    async def write(self, client: AsyncSandboxClient, path: str, data: bytes) -> None:
        try:
            error = (await self._backend.aupload_files([(path, data)]))[0].error
        except NotImplementedError:
            error = (await self._backend.awrite(path, _text(path, data))).error
        if error is not None:
            raise FileConflict(f"{path!r} could not be saved: {error}", path=path)


class StoreFiles(_ReadHere):
    """A LangGraph `BaseStore`, with one item for each file, as deepagents writes them.

    Args:
        namespace: where a user's files are, by the user's id.
    """

    def __init__(self, store: Any, namespace: Callable[[str], Namespace] | None = None) -> None:
        self._store = store
        self._namespace = namespace or (lambda user_id: (user_id, "filesystem"))

    async def read(self, client: AsyncSandboxClient, path: str) -> bytes:
        item = await self._store.aget(self._of(client), path)
        if item is None:
            raise _unreadable(path, None)
        return _content(path, item.value)

    async def write(self, client: AsyncSandboxClient, path: str, data: bytes) -> None:
        now = datetime.now(UTC).isoformat()
        try:
            content, encoding = data.decode(), "utf-8"
        except UnicodeDecodeError:
            content, encoding = base64.b64encode(data).decode(), "base64"
        item = {"content": content, "encoding": encoding, "created_at": now, "modified_at": now}
        await self._store.aput(self._of(client), path, item)

    def _of(self, client: AsyncSandboxClient) -> Namespace:
        if not client.user_id:
            raise InvalidRequest("A store is read for a user, and this call has none.")
        return self._namespace(client.user_id)


def source_of(files: Any) -> FileSource:
    """The drive (None), a deepagents backend, a LangGraph store, or a source itself. Raises: InvalidRequest."""
    if files is None:
        return DriveFiles()
    if hasattr(files, "place") and hasattr(files, "save"):
        return files  # type: ignore[no-any-return]
    if hasattr(files, "adownload_files") and hasattr(files, "aread"):
        return BackendFiles(files)
    if hasattr(files, "aget") and hasattr(files, "aput"):
        return StoreFiles(files)
    raise InvalidRequest(
        f"files must be a deepagents backend or a LangGraph store, not {type(files).__name__}; without it, the drive."
    )


def _below(path: str) -> str:
    return posixpath.relpath(path, WORKSPACE_DIR)


def _content(path: str, value: Any) -> bytes:
    """The bytes of a file as deepagents keeps it: text, base64, or (older ones) a list of lines."""
    content = value.get("content") if isinstance(value, dict) else None
    if isinstance(content, list):
        content = "\n".join(str(line) for line in content)
    if isinstance(content, bytes):
        return content
    if not isinstance(content, str):
        raise PathRejected(f"{path!r} is no file: the stored item has no content.", path=path)
    if value.get("encoding") != "base64":
        return content.encode()
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise PathRejected(f"{path!r} is stored as base64 and is none: {error}.", path=path) from error


def _text(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise PathRejected(f"{path!r} would hold bytes that are no text, and this backend keeps text.") from error


def _unreadable(path: str, error: str | None) -> SandboxFileNotFound:
    why = "" if error in (None, "file_not_found") else f" ({error})"
    return SandboxFileNotFound(f"There is no file {path!r} to send{why}; nothing was run.", path=path)
