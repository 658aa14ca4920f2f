"""A user's drive as a backend of deepagents: files that outlive every sandbox and every conversation."""

from __future__ import annotations

import posixpath

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    GlobResult,
    GrepMatch,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)

from hutch.client.async_drive import AsyncDrive
from hutch.client.portal import closing_items
from hutch.model.drive import MATCHES_AT_MOST, DriveEntry
from hutch.model.errors import FileConflict, HutchError, InvalidRequest, LimitExceeded, PathRejected
from hutch.tools.deepagents.both_ways import BothWays
from hutch.tools.deepagents.edits import EMPTY_OLD_STRING, EditRefused, matching
from hutch.tools.deepagents.found import Fits, capped, fitting, relative
from hutch.tools.deepagents.owner import AnyClient, Owner
from hutch.tools.deepagents.page import read_page
from hutch.tools.deepagents.words import NotUtf8, error_word, storable, told, utf8

EDITED_BYTES = 16 * 1024 * 1024
# What the caller can mend. A drive file that is not there is a FileNotFoundError.
TOLD = (FileConflict, InvalidRequest, LimitExceeded, PathRejected)


class HutchDrive(BothWays):
    """Files of the user's drive, to route in a `CompositeBackend`; each user has a drive of their own.

    One object serves any number of users: a call is for the user that was given here (or that the client is a handle
    of), else for `user_id` of the context of the LangGraph run it is made in.

    Args:
        client: where the drives are. Without one, where the settings say.
        user_id: whose drive.
        root: the folder of the drive that is shown as `/`. A `CompositeBackend` cuts its route off each path: with the
            same folder here, `/memories/notes.md` is that file for the agent, the bash tool and `client.drive` alike.
    """

    def __init__(self, client: AnyClient | None = None, *, user_id: str | None = None, root: str = "/") -> None:
        """Raises: InvalidRequest, SettingsInvalid."""
        if not root.startswith("/") or ".." in root.split("/"):
            raise InvalidRequest(f"root must be the full path of a folder of the drive, not {root!r:.200}.")
        self._owner = Owner(client, user_id, None)
        self._loop_thread = self._owner.client.loop_thread
        self._root = _normal(root)

    def _drive(self) -> AsyncDrive:
        """Raises: NoActiveSession (whose drive?)."""
        return self._owner.client.drive_of(self._owner.user_id())

    def _at(self, path: str | None) -> str:
        """Raises: PathRejected."""
        if path is not None and (not isinstance(path, str) or ".." in path.split("/")):
            raise PathRejected(f"{path!r:.200} is not a full path.")
        return _normal(f"{self._root}/{path or ''}")

    def _shown(self, path: str) -> str:
        return path if self._root == "/" else path.removeprefix(self._root) or "/"

    def _info(self, entry: DriveEntry) -> FileInfo:
        return FileInfo(
            path=self._shown(entry["path"]),
            is_dir=entry["kind"] == "directory",
            size=entry["size_bytes"],
            modified_at=entry["modified"],
        )

    @storable
    async def als(self, path: str) -> LsResult:
        try:
            entries = await self._entries(self._at(path), recursive=False)
        except FileNotFoundError:
            return LsResult(error=f"Path '{path}': path_not_found")
        except TOLD as error:
            return LsResult(error=f"Path '{path}': {told(error)}")
        return LsResult(entries=[self._info(entry) for entry in entries])

    async def _entries(self, place: str, *, recursive: bool) -> list[DriveEntry]:
        """Folders are made by their files: that nothing was put below the root yet is no error."""
        try:
            return await self._there(self._drive().ls, place, recursive=recursive)
        except FileNotFoundError:
            if place != self._root:
                raise
            return []

    @storable
    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        async def page(drive: AsyncDrive, place: str) -> ReadResult:
            async with closing_items(drive.stream(place)) as pieces:
                return await read_page(pieces, file_path, offset, limit)

        try:
            return await self._there(page, self._drive(), self._at(file_path))
        except FileNotFoundError:
            return ReadResult(error=f"File '{file_path}' not found")
        except TOLD as error:
            return ReadResult(error=f"File '{file_path}': {told(error)}")

    @storable
    async def awrite(self, file_path: str, content: str) -> WriteResult:
        try:
            await self._there(self._drive().write_file, self._at(file_path), utf8(content))
        except (NotUtf8, *TOLD) as error:
            return WriteResult(error=f"Failed to write file '{file_path}': {told(error)}")
        return WriteResult(path=file_path)

    @storable
    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        if not old_string:
            return EditResult(error=EMPTY_OLD_STRING)
        try:
            utf8(new_string)
            drive, place = self._drive(), self._at(file_path)
            raw = await self._there(drive.read_file, place, length=EDITED_BYTES)
            old, new, _ = matching(raw, old_string, new_string, replace_all=replace_all)
            # In one step, whoever else edits.
            done = await self._there(drive.edit_file, place, old, new, replace_all=replace_all)
        except EditRefused as refused:
            return refused.result(file_path, old_string)
        except FileNotFoundError:
            return EditRefused("file_not_found").result(file_path, old_string)
        except (NotUtf8, *TOLD) as error:
            return EditResult(error=f"Error editing file '{file_path}': {told(error)}")
        return EditResult(path=file_path, occurrences=done["replacements"])

    @storable
    async def adelete(self, file_path: str) -> DeleteResult:
        try:
            await self._there(self._drive().delete, self._at(file_path), recursive=True)
        except FileNotFoundError:
            return DeleteResult(error=f"Error: '{file_path}' not found")
        except TOLD as error:
            return DeleteResult(error=f"Error deleting file '{file_path}': {told(error)}")
        return DeleteResult(path=file_path)

    @storable
    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        try:
            place, fits = self._at(path), fitting(pattern)
            entries = await self._entries(place, recursive=True)
        except FileNotFoundError:
            return GlobResult(error=f"Path '{path}': path_not_found")
        except TOLD as error:
            return GlobResult(error=f"Path '{path or '/'}': {told(error)}")
        files = (entry for entry in entries if entry["kind"] == "file")
        return capped([self._info(entry) for entry in files if fits(relative(entry["path"], place))])

    @storable
    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        try:
            place = self._at(path)
            fits: Fits = fitting(glob) if glob else lambda _: True
            most = MATCHES_AT_MOST if max_count is None else min(max_count + 1, MATCHES_AT_MOST)
            found = await self._there(self._drive().grep, pattern, place, glob=_plain(glob), max_matches=max(most, 1))
        except FileNotFoundError:
            return GrepResult(matches=[]) if self._at(path) == self._root else _no_path(path)
        except TOLD as error:
            return GrepResult(error=f"Path '{path or '/'}': {told(error)}")
        matches = [
            GrepMatch(path=self._shown(match["path"]), line=match["line"], text=match["text"])
            for match in found["matches"]
            if fits(relative(match["path"], place))
        ]
        more = max_count is not None and len(matches) > max_count
        return GrepResult(matches=matches[:max_count], truncated=more or found["truncated"])

    @storable
    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=await self._upload(path, data)) for path, data in files]

    async def _upload(self, path: str, data: bytes) -> str | None:
        if not _absolute(path):
            return "invalid_path"
        try:
            await self._there(self._drive().write_file, self._at(path), data)
        except (HutchError, OSError) as error:
            return error_word(error)
        return None

    @storable
    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [await self._download(path) for path in paths]

    async def _download(self, path: str) -> FileDownloadResponse:
        if not _absolute(path):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            return FileDownloadResponse(path=path, content=await self._there(self._drive().read_file, self._at(path)))
        except (HutchError, OSError) as error:
            return FileDownloadResponse(path=path, error=error_word(error))


def _normal(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")


def _absolute(path: object) -> bool:
    return isinstance(path, str) and path.startswith("/")


def _no_path(path: str | None) -> GrepResult:
    return GrepResult(error=f"Path '{path}': path_not_found")


def _plain(glob: str | None) -> str | None:
    """The pattern, if the drive understands at least as much by it; what it finds is judged again here."""
    return None if glob is None or glob.startswith("/") or any(letter in glob for letter in "{[\\") else glob
