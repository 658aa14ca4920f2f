"""The drive's store: one method per question, each one transaction. All of them raise StoreUnavailable."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

from hutch.model.errors import HutchError
from hutch.store import sqlite_vectors
from hutch.store.database import Connection, Database, Work
from hutch.store.drive import accounts, changes, contents, indexing, passages, reading, trees, words
from hutch.store.drive.changes import Terms
from hutch.store.drive.indexing import Due, Index
from hutch.store.drive.passages import NearPassage, Passage
from hutch.store.drive.records import FileRecord, FolderRecord, NewContent, UsageRecord, VersionRecord
from hutch.store.drive.words import Found

T = TypeVar("T")
LEFT_SECONDS = 900.0  # a content that nobody added to for so long was left behind by its writer
DELETED_SECONDS = 30 * 86_400.0  # how long a deleted file can be had back
_STEP = 200


class DriveStore:
    """Owners are numbers here, of one (tenant, user) each: whose they are was asked before."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._prepared = False

    async def _read(self, work: Work[T]) -> T:
        await self._prepare()
        return await self._database.read(work)

    async def _write(self, work: Work[T]) -> T:
        await self._prepare()
        return await self._database.write(work)

    async def _prepare(self) -> None:
        if self._prepared:
            return
        dialect = self._database.dialect
        if not await self._database.read(lambda connection: words.is_prepared(connection, dialect)):
            await self._database.write(lambda connection: words.prepare(connection, dialect))
        self._prepared = True

    # Owners

    async def owner(self, tenant: str, user_id: str) -> int | None:
        return await self._read(lambda connection: reading.owner(connection, tenant, user_id))

    async def ensure_owner(self, tenant: str, user_id: str) -> int:
        return await self._write(lambda connection: accounts.ensure_owner(connection, tenant, user_id))

    async def usage(self, owner_id: int) -> UsageRecord:
        return await self._read(lambda connection: reading.usage(connection, owner_id))

    # Content

    async def begin_content(self, owner_id: int) -> int:
        return await self._write(lambda connection: contents.begin(connection, owner_id))

    async def add_chunks(self, content_id: int, first: int, chunks: Sequence[bytes]) -> None:
        """Without the lock that writers take: nobody else knows this content, and uploads must not hold them up."""
        await self._read(lambda connection: contents.add_chunks(connection, content_id, first, chunks))

    async def drop_content(self, content_id: int) -> None:
        await self._write(lambda connection: contents.free(connection, [content_id]))

    async def chunks(self, content_id: int, first: int, count: int) -> list[bytes]:
        return await self._read(lambda connection: contents.chunks(connection, content_id, first, count))

    async def heads(self, file_ids: Sequence[int]) -> list[tuple[int, int, bytes]]:
        """Id, content and first chunk of files as they are now."""
        return await self._read(lambda connection: reading.heads(connection, file_ids))

    async def clear_some(self, now: float) -> bool:
        """One step of clearing up. False: there is no more to do."""

        def work(connection: Connection) -> bool:
            gone = trees.forget_deleted(connection, now - DELETED_SECONDS, _STEP)
            return contents.clear_some(connection, now - LEFT_SECONDS) or gone == _STEP

        return await self._write(work)

    # Files

    async def file(self, owner_id: int, path: str) -> FileRecord | None:
        return await self._read(lambda connection: reading.file(connection, owner_id, path))

    async def folder(self, owner_id: int, path: str) -> FolderRecord | None:
        return await self._read(lambda connection: reading.folder(connection, owner_id, path))

    async def children(self, owner_id: int, path: str, at_most: int) -> tuple[list[FolderRecord], list[FileRecord]]:
        return await self._read(lambda connection: reading.children(connection, owner_id, path, at_most))

    async def folders_below(self, owner_id: int, path: str, at_most: int) -> list[FolderRecord]:
        return await self._read(lambda connection: reading.folders_below(connection, owner_id, path, at_most))

    async def files_below(self, owner_id: int, path: str, after: str, at_most: int) -> list[FileRecord]:
        return await self._read(lambda connection: reading.files_below(connection, owner_id, path, after, at_most))

    async def versions(self, file_id: int) -> list[VersionRecord]:
        return await self._read(lambda connection: reading.versions(connection, file_id))

    async def version(self, file_id: int, number: int) -> VersionRecord | None:
        return await self._read(lambda connection: reading.version(connection, file_id, number))

    async def store(self, owner_id: int, path: str, content: NewContent, terms: Terms) -> FileRecord:
        """Raises: FileConflict, VersionChanged, LimitExceeded."""
        return await self._write(lambda connection: changes.store(connection, owner_id, path, content, terms))

    async def undo(self, owner_id: int, path: str, quota: int | None) -> FileRecord:
        """Raises: DriveFileNotFound, InvalidRequest, FileConflict, LimitExceeded."""
        return await self._write(lambda connection: changes.undo(connection, owner_id, path, quota))

    async def delete(self, owner_id: int, path: str, *, recursive: bool) -> int:
        """Raises: DriveFileNotFound, FileConflict."""
        return await self._write(lambda connection: trees.delete(connection, owner_id, path, recursive=recursive))

    async def move(self, owner_id: int, source: str, target: str, *, overwrite: bool) -> None:
        """Raises: DriveFileNotFound, FileConflict, InvalidRequest."""
        await self._write(lambda connection: trees.move(connection, owner_id, source, target, overwrite=overwrite))

    # Indexes

    async def claim(self, index: Index, at_most: int) -> list[Due]:
        return await self._write(lambda connection: indexing.claim(connection, index, time.time(), at_most))

    async def any_due(self, index: Index) -> bool:
        return await self._read(lambda connection: indexing.any_due(connection, index, time.time()))

    async def waiting(self, index: Index, owner_id: int, at_most: int) -> int:
        return await self._read(lambda connection: indexing.waiting(connection, index, owner_id, at_most))

    async def put_words(self, texts: Sequence[tuple[Due, str | None]]) -> None:
        """The words of files, or that they have none (binary, or deleted)."""

        def work(connection: Connection) -> None:
            for due, text in texts:
                if indexing.done(connection, "words", due):
                    words.remove(connection, due.file_id)
                    if due.live:
                        words.put(connection, self._database.dialect, due.file_id, due.owner_id, due.name, text or "")

        await self._write(work)

    async def put_passages(self, due: Due, model: str, found: Sequence[Passage]) -> None:
        def work(connection: Connection) -> None:
            if indexing.done(connection, "meaning", due, model):
                passages.put(connection, self._database.dialect, due.owner_id, due.file_id, model, found)

        await self._write(work)

    async def postpone(self, due: Sequence[Due], until: float) -> None:
        await self._write(lambda connection: indexing.postpone(connection, due, until))

    async def forget_other_models(self, model: str) -> bool:
        """True: there may be more."""
        return bool(await self._write(lambda connection: indexing.forget_other_models(connection, model, 5_000)))

    async def find_words(self, owner_id: int, asked: Sequence[str], folder: str, at_most: int) -> list[Found]:
        dialect = self._database.dialect
        return await self._read(lambda connection: words.find(connection, dialect, owner_id, asked, folder, at_most))

    async def no_meaning(self) -> str | None:
        """Why passages cannot be compared in this database; None when they can."""
        if self._database.dialect == "sqlite":
            return await self._read(lambda _: sqlite_vectors.missing())
        if await self._read(passages.has_column):
            return None
        if not await self._read(passages.can_have_column):
            return "this PostgreSQL has no pgvector"
        try:
            await self._write(passages.add_column)
        except HutchError as error:
            return f"pgvector is not switched on in this database, and could not be ({error})"
        return None

    async def nearest(
        self, owner_id: int, model: str, embedding: Sequence[float], folder: str, at_most: int
    ) -> list[NearPassage]:
        dialect = self._database.dialect
        return await self._read(
            lambda connection: passages.nearest(connection, dialect, owner_id, model, embedding, folder, at_most)
        )
