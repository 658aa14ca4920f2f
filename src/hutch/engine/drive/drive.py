"""The drive of each user: files by path, with versions. Keyed by tenant and user id as whole values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from hutch.engine.drive.entries import drive_file, file_entries, file_entry, folder_entry, version_info
from hutch.engine.drive.indexer import Indexer
from hutch.engine.drive.patterns import path_matcher
from hutch.engine.drive.texts import replaced, whole_text
from hutch.engine.drive.writing import ContentWriter
from hutch.engine.loop import close_items
from hutch.model.drive import DriveEdit, DriveEntry, DriveFile, DriveUsage, DriveVersion, drive_path, drive_user
from hutch.model.errors import DriveFileNotFound, FileConflict, InvalidRequest, LimitExceeded, PathRejected
from hutch.model.limits import MIB
from hutch.store.drive.changes import Terms, not_found
from hutch.store.drive.records import CHUNK_BYTES, FileRecord, FolderRecord, NewContent, VersionChanged, VersionRecord
from hutch.store.drive.store import DriveStore

EDIT_BYTES = 16 * MIB
LISTED_AT_MOST = 200_000
_PAGE = 1_000
_TRIES = 50  # of an edit, while others change the same file
_READ_CHUNKS = 4
_OWNERS_KNOWN = 10_000


class Drive:
    def __init__(self, store: DriveStore, indexer: Indexer, quota: int | None) -> None:
        self.store = store
        self.indexer = indexer
        self._quota = quota
        self._owners: dict[tuple[str, str], int] = {}

    # Reading

    async def read(
        self,
        tenant: str,
        user_id: str,
        path: str,
        *,
        offset: int = 0,
        length: int | None = None,
        version: int | None = None,
    ) -> AsyncIterator[bytes]:
        """The bytes of a version (default: the current one), in pieces. What is written meanwhile changes nothing.

        Raises: DriveFileNotFound, PathRejected, InvalidRequest.
        """
        if offset < 0 or (length is not None and length < 0):
            raise InvalidRequest("offset and length must be 0 or more.")
        record, content = await self._content(tenant, user_id, path, version)
        end = content.size_bytes if length is None else min(content.size_bytes, offset + length)
        at = min(offset, end)
        while at < end:
            number, skip = divmod(at, CHUNK_BYTES)
            chunks = await self.store.chunks(content.content_id, number, _READ_CHUNKS)
            piece = b"".join(chunks)[skip : skip + end - at]
            if not piece:
                raise not_found(record.path)  # it was forgotten meanwhile
            at += len(piece)
            yield piece

    async def read_whole(self, tenant: str, user_id: str, path: str) -> bytes:
        return b"".join([piece async for piece in self.read(tenant, user_id, path)])

    async def read_text(self, tenant: str, user_id: str, path: str) -> str:
        """Raises: InvalidRequest when it is no text, DriveFileNotFound, PathRejected."""
        return whole_text(await self.read_whole(tenant, user_id, path), path)

    async def _content(
        self, tenant: str, user_id: str, path: str, version: int | None
    ) -> tuple[FileRecord, VersionRecord]:
        record = await self.record(tenant, user_id, path)
        number = record.version if version is None else version
        if isinstance(number, bool) or not isinstance(number, int):
            raise InvalidRequest("version must be a number.")
        content = await self.store.version(record.file_id, number)
        if content is None and version is not None:
            raise DriveFileNotFound(
                f"There is no version {version} of {record.path!r} (any more); versions tells which there are.",
                path=record.path,
            )
        if content is None:  # it was replaced between two questions
            return await self._content(tenant, user_id, path, version)
        return record, content

    async def record(self, tenant: str, user_id: str, path: str) -> FileRecord:
        """Raises: DriveFileNotFound, PathRejected (a folder)."""
        clean, owner = drive_path(path), await self.owner(tenant, user_id)
        found = None if owner is None else await self.store.file(owner, clean)
        if found is not None and found.live:
            return found
        if owner is not None and await self.store.folder(owner, clean) is not None:
            raise PathRejected(f"{clean!r} is a folder; name a file.", path=clean)
        raise not_found(clean)

    async def owner(self, tenant: str, user_id: str) -> int | None:
        """None: this user never stored anything. Raises: InvalidRequest."""
        key = (tenant, drive_user(user_id))
        known = self._owners.get(key)
        if known is None:
            known = await self.store.owner(*key)
            if known is not None:
                self._know(key, known)
        return known

    async def _made_owner(self, tenant: str, user_id: str) -> int:
        known = await self.owner(tenant, user_id)
        if known is None:
            known = await self.store.ensure_owner(tenant, user_id)
            self._know((tenant, user_id), known)
        return known

    def _know(self, key: tuple[str, str], owner: int) -> None:
        if len(self._owners) >= _OWNERS_KNOWN:
            self._owners.clear()
        self._owners[key] = owner

    # Changing

    async def write(
        self, tenant: str, user_id: str, path: str, data: AsyncIterator[bytes], *, overwrite: bool = True
    ) -> DriveFile:
        """Store a file whole: nobody sees it before all of it was written, and a write that breaks off leaves nothing.

        Raises: LimitExceeded (quota), PathRejected, FileConflict, InvalidRequest.
        """
        try:
            clean, owner = drive_path(path), await self._made_owner(tenant, user_id)
            writer = ContentWriter(self.store, owner, self._quota)
            try:
                content = await writer.take(data)
                made = await self.store.store(owner, clean, content, Terms(overwrite, quota=self._quota))
            except BaseException:
                await writer.drop()
                raise
        finally:
            await close_items(data)  # it may hold a file of the caller open
        self.indexer.kick()
        return drive_file(made)

    async def edit(
        self, tenant: str, user_id: str, path: str, old: str, new: str, *, replace_all: bool = False
    ) -> DriveEdit:
        """Replace a text that is there once (or, with `replace_all`, each time). Others' changes are never lost.

        Raises: InvalidRequest, DriveFileNotFound, PathRejected, LimitExceeded, FileConflict.
        """
        for _ in range(_TRIES):
            record, content = await self._content(tenant, user_id, path, None)
            if content.size_bytes > EDIT_BYTES:
                raise LimitExceeded(
                    f"{record.path!r} has {content.size_bytes} bytes; files up to {EDIT_BYTES} can be edited.",
                    limit="edit_size",
                    maximum=EDIT_BYTES,
                    actual=content.size_bytes,
                )
            count = -(-content.size_bytes // CHUNK_BYTES)
            data = b"".join(await self.store.chunks(content.content_id, 0, count))
            if len(data) != content.size_bytes:  # replaced, and cleared up, between two questions
                continue
            text, replacements = replaced(whole_text(data, record.path), old, new, record.path, replace_all=replace_all)
            writer = ContentWriter(self.store, record.owner_id, self._quota)
            try:
                made = await self._edited(record, content, await writer.take(_once(text)))
            except VersionChanged:
                await writer.drop()
                continue
            except BaseException:
                await writer.drop()
                raise
            self.indexer.kick()
            return {"path": made.path, "version": made.version, "replacements": replacements}
        raise FileConflict(f"{path!r} is being changed by others all the time; try again.", path=path)

    async def _edited(self, record: FileRecord, before: VersionRecord, content: NewContent) -> FileRecord:
        terms = Terms(expected_version=before.version, quota=self._quota)
        return await self.store.store(record.owner_id, record.path, content, terms)

    async def delete(self, tenant: str, user_id: str, path: str, *, recursive: bool = False) -> None:
        """A file, or with `recursive` a folder. `undo` brings a deleted file back, for thirty days.

        Raises: DriveFileNotFound, FileConflict, PathRejected.
        """
        clean, owner = drive_path(path, folder=True), await self.owner(tenant, user_id)
        if owner is None:
            raise not_found(clean)
        await self.store.delete(owner, clean, recursive=recursive)
        self.indexer.kick()

    async def move(self, tenant: str, user_id: str, source: str, target: str, *, overwrite: bool = False) -> None:
        """Raises: DriveFileNotFound, FileConflict, PathRejected, InvalidRequest."""
        clean_source, clean_target = drive_path(source.rstrip("/") or source), drive_path(target.rstrip("/") or target)
        owner = await self.owner(tenant, user_id)
        if owner is None:
            raise not_found(clean_source)
        await self.store.move(owner, clean_source, clean_target, overwrite=overwrite)
        self.indexer.kick()

    async def undo(self, tenant: str, user_id: str, path: str) -> DriveFile:
        """Raises: DriveFileNotFound, InvalidRequest (no earlier version), FileConflict, LimitExceeded, PathRejected."""
        clean, owner = drive_path(path), await self.owner(tenant, user_id)
        if owner is None:
            raise not_found(clean)
        made = await self.store.undo(owner, clean, self._quota)
        self.indexer.kick()
        return drive_file(made)

    # Looking around

    async def ls(self, tenant: str, user_id: str, path: str = "/", *, recursive: bool = False) -> list[DriveEntry]:
        """By path. A file lists itself. Raises: DriveFileNotFound, PathRejected, LimitExceeded."""
        clean, owner = drive_path(path, folder=True), await self.owner(tenant, user_id)
        if owner is None:
            if clean == "/":
                return []
            raise not_found(clean)
        if recursive:
            folders = await self.store.folders_below(owner, clean, LISTED_AT_MOST + 1)
            files = [record async for record in self.walk(owner, clean)]
        else:
            folders, files = await self.store.children(owner, clean, LISTED_AT_MOST + 1)
        if not folders and not files and clean != "/":
            return [file_entry(await self.record(tenant, user_id, clean))]
        if len(folders) + len(files) > LISTED_AT_MOST:
            raise _too_many(clean)
        return await asyncio.to_thread(file_entries, folders, files)

    async def walk(self, owner: int, folder: str) -> AsyncIterator[FileRecord]:
        """Files below a clean folder, by path. Raises: LimitExceeded."""
        after, seen = "", 0
        while page := await self.store.files_below(owner, folder, after, _PAGE):
            for record in page:
                yield record
            after, seen = page[-1].path, seen + len(page)
            if seen > LISTED_AT_MOST:
                raise _too_many(folder)
            if len(page) < _PAGE:
                return

    async def glob(self, tenant: str, user_id: str, pattern: str, path: str = "/") -> list[DriveEntry]:
        """Files whose path below `path` fits. Raises: InvalidRequest, PathRejected, LimitExceeded."""
        clean, owner = drive_path(path, folder=True), await self.owner(tenant, user_id)
        matches = path_matcher(pattern, clean)
        if owner is None:
            return []
        folder = "/" if pattern.startswith("/") else clean
        return [file_entry(record) async for record in self.walk(owner, folder) if matches(record.path)]

    async def stat(self, tenant: str, user_id: str, path: str) -> DriveEntry:
        """Raises: DriveFileNotFound, PathRejected."""
        clean, owner = drive_path(path, folder=True), await self.owner(tenant, user_id)
        if owner is not None:
            found = await self.store.file(owner, clean)
            if found is not None and found.live:
                return file_entry(found)
            folder = await self.store.folder(owner, clean)
            if folder is not None:
                return folder_entry(folder)
        if clean == "/":
            return folder_entry(FolderRecord("/", 0, 0.0, 0.0))
        raise not_found(clean)

    async def versions(self, tenant: str, user_id: str, path: str) -> list[DriveVersion]:
        """The latest first; also of a deleted file. Raises: DriveFileNotFound, PathRejected."""
        clean, owner = drive_path(path), await self.owner(tenant, user_id)
        record = None if owner is None else await self.store.file(owner, clean)
        if record is None:
            raise not_found(clean)
        return [version_info(record, one) for one in await self.store.versions(record.file_id)]

    async def usage(self, tenant: str, user_id: str) -> DriveUsage:
        owner = await self.owner(tenant, user_id)
        if owner is None:
            return {"bytes": 0, "kept_bytes": 0, "files": 0, "quota_bytes": self._quota}
        used = await self.store.usage(owner)
        return {"bytes": used.bytes, "kept_bytes": used.kept_bytes, "files": used.files, "quota_bytes": self._quota}


async def _once(text: str) -> AsyncIterator[bytes]:
    try:
        yield text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("The new text holds characters that no UTF-8 file can hold.") from None


def _too_many(folder: str) -> LimitExceeded:
    return LimitExceeded(
        f"There is more below {folder!r} than the {LISTED_AT_MOST} entries that one call lists; name a deeper folder.",
        limit="drive_listing",
        maximum=LISTED_AT_MOST,
    )
