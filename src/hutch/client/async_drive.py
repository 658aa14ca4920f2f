"""`client.drive`: files of a user that outlive every sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

from hutch.client.transport_drive import DriveTransport, GrepOrder, Range
from hutch.engine.loop import close_items
from hutch.model.drive import (
    DriveEdit,
    DriveEntry,
    DriveFile,
    DriveHits,
    DriveMatches,
    DriveUsage,
    DriveVersion,
)
from hutch.model.errors import InvalidRequest
from hutch.model.limits import MIB

DriveData = bytes | str | AsyncIterator[bytes] | Iterator[bytes]


class AsyncDrive:
    """Paths are absolute, like /memories/notes.md. Folders are there while files are below them."""

    def __init__(self, transport: DriveTransport, user: Callable[[], str]) -> None:
        self._transport = transport
        self._user = user

    async def read_file(
        self, path: str, *, offset: int = 0, length: int | None = None, version: int | None = None
    ) -> bytes:
        """The bytes of a file, or a range of them, as it is now or as a version was.

        Raises: DriveFileNotFound, PathRejected (a folder), InvalidRequest.
        """
        pieces = [piece async for piece in self.stream(path, offset=offset, length=length, version=version)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read_text(self, path: str) -> str:
        """The text of a file. Raises: InvalidRequest when it is no UTF-8 text, DriveFileNotFound, PathRejected."""
        data = await self.read_file(path)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(
                f"{path!r} is no UTF-8 text (byte {error.start} is {data[error.start]:#04x}); read_file gives bytes.",
                path=path,
            ) from None

    async def stream(
        self, path: str, *, offset: int = 0, length: int | None = None, version: int | None = None
    ) -> AsyncIterator[bytes]:
        """The same as `read_file`, piece by piece: memory stays flat at any size."""
        items = self._transport.read(self._user(), path, Range(offset, length, version))
        try:
            async for piece in items:
                yield piece
        finally:
            await close_items(items)

    async def write_file(self, path: str, data: DriveData, *, overwrite: bool = True) -> DriveFile:
        """Store a file; it appears whole or not at all. What it replaces stays a version of it.

        Raises: LimitExceeded (quota), PathRejected, FileConflict.
        """
        return await self._transport.write(self._user(), path, _pieces(data), overwrite=overwrite)

    async def edit_file(self, path: str, old: str, new: str, *, replace_all: bool = False) -> DriveEdit:
        """Replace a text that stands in a file once, or with `replace_all` wherever it stands.

        Raises: InvalidRequest (not there, there more than once, no text), DriveFileNotFound, LimitExceeded.
        """
        return await self._transport.edit(self._user(), path, old, new, replace_all=replace_all)

    async def ls(self, path: str = "/", *, recursive: bool = False) -> list[DriveEntry]:
        """What lies in a folder; with `recursive` also below it. Raises: DriveFileNotFound, PathRejected."""
        return await self._transport.ls(self._user(), path, recursive=recursive)

    async def glob(self, pattern: str, path: str = "/") -> list[DriveEntry]:
        """Files whose path below `path` fits `*`, `?`, `[…]` and `**` (any folders). Raises: InvalidRequest."""
        return await self._transport.glob(self._user(), pattern, path)

    async def grep(
        self,
        pattern: str,
        path: str = "/",
        *,
        regex: bool = False,
        ignore_case: bool = False,
        glob: str | None = None,
        max_matches: int = 1_000,
    ) -> DriveMatches:
        """Lines of text files that hold `pattern`, or with `regex` match it (Python's regular expressions).

        Raises: InvalidRequest, LimitExceeded (an expression that takes too long), DriveFileNotFound.
        """
        order = GrepOrder(pattern, path, regex, ignore_case, glob, max_matches)
        return await self._transport.grep(self._user(), order)

    async def stat(self, path: str) -> DriveEntry:
        """Raises: DriveFileNotFound, PathRejected."""
        return await self._transport.stat(self._user(), path)

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Give a file or folder another path. Raises: DriveFileNotFound, FileConflict."""
        await self._transport.move(self._user(), source, target, overwrite=overwrite)

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file, or a folder with all in it; `undo` brings a file back, for thirty days.

        Raises: DriveFileNotFound, FileConflict (a folder, without `recursive`).
        """
        await self._transport.delete(self._user(), path, recursive=recursive)

    async def versions(self, path: str) -> list[DriveVersion]:
        """The versions that are kept, the latest first. Raises: DriveFileNotFound."""
        return await self._transport.versions(self._user(), path)

    async def undo(self, path: str) -> DriveFile:
        """Take the last change of a file back: it is as the version before, or there again when it was deleted.

        Raises: DriveFileNotFound, InvalidRequest (nothing to go back to), FileConflict.
        """
        return await self._transport.undo(self._user(), path)

    async def search(self, query: str, *, path: str = "/", limit: int = 20) -> DriveHits:
        """Files about something: by their words, and by meaning where an embedder is set; `by` says which it was.

        Raises: InvalidRequest.
        """
        return await self._transport.search(self._user(), query, path, limit)

    async def usage(self) -> DriveUsage:
        """What this user's drive holds, and may hold."""
        return await self._transport.usage(self._user())


async def _pieces(data: DriveData) -> AsyncIterator[bytes]:
    if isinstance(data, Iterator):  # what the sync client takes
        while (piece := await asyncio.to_thread(next, data, None)) is not None:
            yield piece
        return
    if isinstance(data, AsyncIterator):
        try:
            async for piece in data:
                yield piece
        finally:
            await close_items(data)
        return
    if isinstance(data, str):
        try:
            data = data.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("The text holds characters that no UTF-8 file can hold.") from None
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidRequest(f"A file is written from bytes, a text or an async iterator, not {type(data).__name__}.")
    raw = bytes(data)
    for start in range(0, len(raw), MIB):
        yield raw[start : start + MIB]
