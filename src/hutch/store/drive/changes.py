"""Changes of files, each to be made within one transaction. What stands in the way is told as errors of the model."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hutch.model.drive import VERSIONS_KEPT, folder_of, folders_above
from hutch.model.errors import DriveFileNotFound, FileConflict, InvalidRequest
from hutch.store.database import Connection
from hutch.store.drive import contents, reading
from hutch.store.drive.accounts import book, check_quota, drop_version
from hutch.store.drive.records import FileRecord, NewContent, VersionChanged, VersionRecord


@dataclass(frozen=True, slots=True)
class Terms:
    """On which a file may be stored."""

    overwrite: bool = True
    expected_version: int | None = None  # None: any, or none at all
    quota: int | None = None


def store(connection: Connection, owner_id: int, path: str, content: NewContent, terms: Terms) -> FileRecord:
    """Raises: FileConflict, VersionChanged, LimitExceeded, StoreUnavailable."""
    row = reading.file(connection, owner_id, path)
    live = row is not None and row.live
    if live and not terms.overwrite:
        raise FileConflict(f"{path!r} exists already and overwrite is off.", path=path)
    if terms.expected_version is not None and not (live and row is not None and row.version == terms.expected_version):
        raise VersionChanged
    if not live:
        check_free(connection, owner_id, path)
    content_id = content.content_id
    if content_id is None:
        content_id = contents.begin(connection, owner_id)
        contents.add_chunks(connection, content_id, 0, content.inline)
    contents.name(connection, content_id)
    return add_version(connection, owner_id, path, VersionRecord(0, content_id, content.size_bytes, content.sha256, 0),
                       terms.quota)  # fmt: skip


def add_version(
    connection: Connection, owner_id: int, path: str, content: VersionRecord, quota: int | None
) -> FileRecord:
    """Give a path, whose place is free or a file's, this content. Raises: LimitExceeded."""
    now, row = time.time(), reading.file(connection, owner_id, path)
    version = 1 if row is None else row.latest + 1
    if row is None:
        connection.execute(
            "INSERT INTO drive_files (owner_id, path, folder, version, latest, size_bytes, sha256, created_at,"
            " modified_at, changes) VALUES (?, ?, ?, 1, 1, ?, ?, ?, ?, 1)",
            (owner_id, path, folder_of(path), content.size_bytes, content.sha256, now, now),
        )
    else:
        connection.execute(
            "UPDATE drive_files SET version = ?, latest = ?, size_bytes = ?, sha256 = ?, modified_at = ?,"
            " created_at = ?, deleted_at = NULL, changes = changes + 1, index_after = 0 WHERE file_id = ?",
            (
                version,
                version,
                content.size_bytes,
                content.sha256,
                now,
                row.created_at if row.live else now,
                row.file_id,
            ),
        )
    made = reading.file(connection, owner_id, path)
    assert made is not None
    connection.execute(
        "INSERT INTO drive_versions (file_id, version, owner_id, content_id, size_bytes, sha256, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (made.file_id, version, owner_id, content.content_id, content.size_bytes, content.sha256, now),
    )
    if row is not None and row.live:
        book(connection, owner_id, live=content.size_bytes - row.size_bytes, kept=row.size_bytes)
        count(connection, owner_id, path, 0, now)
    else:
        book(connection, owner_id, live=content.size_bytes, files=1)
        count(connection, owner_id, path, 1, now)
    _trim(connection, made)
    check_quota(connection, owner_id, quota)
    return made


def undo(connection: Connection, owner_id: int, path: str, quota: int | None) -> FileRecord:
    """The version before the current one; a deleted file as it was.

    Raises: DriveFileNotFound, InvalidRequest, FileConflict, LimitExceeded.
    """
    row = reading.file(connection, owner_id, path)
    if row is None:
        raise not_found(path)
    now = time.time()
    if row.live:
        _drop_current(connection, row, now)
    else:
        check_free(connection, owner_id, path)
        connection.execute(
            "UPDATE drive_files SET deleted_at = NULL, modified_at = ?, changes = changes + 1, index_after = 0"
            " WHERE file_id = ?",
            (now, row.file_id),
        )
        book(connection, owner_id, live=row.size_bytes, kept=-row.size_bytes, files=1)
    count(connection, owner_id, path, 0 if row.live else 1, now)
    check_quota(connection, owner_id, quota)
    made = reading.file(connection, owner_id, path)
    assert made is not None
    return made


def _drop_current(connection: Connection, row: FileRecord, now: float) -> None:
    current, *earlier = reading.versions(connection, row.file_id)
    if not earlier:
        raise InvalidRequest(f"{row.path!r} has no earlier version to go back to.")
    before = earlier[0]
    drop_version(connection, row.file_id, current.version, current.content_id)
    connection.execute(
        "UPDATE drive_files SET version = ?, size_bytes = ?, sha256 = ?, modified_at = ?, changes = changes + 1,"
        " index_after = 0 WHERE file_id = ?",
        (before.version, before.size_bytes, before.sha256, now, row.file_id),
    )
    book(connection, row.owner_id, live=before.size_bytes - current.size_bytes, kept=-before.size_bytes)


def _trim(connection: Connection, row: FileRecord) -> None:
    for old in reading.versions(connection, row.file_id)[VERSIONS_KEPT:]:
        drop_version(connection, row.file_id, old.version, old.content_id)
        book(connection, row.owner_id, kept=-old.size_bytes)


def check_free(connection: Connection, owner_id: int, path: str) -> None:
    """Whether a file may come to lie there. Raises: FileConflict."""
    if reading.folder(connection, owner_id, path) is not None:
        raise FileConflict(f"{path!r} is a folder already.", path=path)
    for above in folders_above(path)[:-1]:
        found = reading.file(connection, owner_id, above)
        if found is not None and found.live:
            raise FileConflict(f"{above!r} is a file, so nothing can lie below it.", path=above)


def count(connection: Connection, owner_id: int, path: str, files: int, now: float) -> None:
    """Files came (or went) at a path: the folders above it know how many are below them."""
    for folder in folders_above(path)[:-1]:
        connection.execute(
            "INSERT INTO drive_folders (owner_id, path, parent, files, created_at, modified_at)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (owner_id, path) DO UPDATE"
            " SET files = drive_folders.files + excluded.files, modified_at = excluded.modified_at",
            (owner_id, folder, folder_of(folder), files, now, now),
        )
        if files < 0:
            connection.execute(
                "DELETE FROM drive_folders WHERE owner_id = ? AND path = ? AND files <= 0", (owner_id, folder)
            )


def not_found(path: str) -> DriveFileNotFound:
    return DriveFileNotFound(f"There is no file {path!r} in this drive.", path=path)
