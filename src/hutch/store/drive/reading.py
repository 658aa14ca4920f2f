"""Questions about files and folders, for one owner each."""

from __future__ import annotations

from collections.abc import Sequence

from hutch.model.drive import below
from hutch.store.database import Connection
from hutch.store.drive.records import (
    FILE_COLUMNS,
    FileRecord,
    FolderRecord,
    UsageRecord,
    VersionRecord,
    file_record,
)

_FOLDER = "path, files, created_at, modified_at"
_VERSION = "version, content_id, size_bytes, sha256, created_at"


def owner(connection: Connection, tenant: str, user_id: str) -> int | None:
    row = connection.execute(
        "SELECT owner_id FROM drive_owners WHERE tenant = ? AND user_id = ?", (tenant, user_id)
    ).fetchone()
    return None if row is None else int(row[0])


def file(connection: Connection, owner_id: int, path: str) -> FileRecord | None:
    """Also a deleted one."""
    row = connection.execute(
        f"SELECT {FILE_COLUMNS} FROM drive_files WHERE owner_id = ? AND path = ?", (owner_id, path)
    ).fetchone()
    return None if row is None else file_record(row)


def folder(connection: Connection, owner_id: int, path: str) -> FolderRecord | None:
    row = connection.execute(
        f"SELECT {_FOLDER} FROM drive_folders WHERE owner_id = ? AND path = ?", (owner_id, path)
    ).fetchone()
    return None if row is None else FolderRecord(*row)


def children(
    connection: Connection, owner_id: int, path: str, at_most: int
) -> tuple[list[FolderRecord], list[FileRecord]]:
    """What lies in a folder itself."""
    folders = connection.execute(
        f"SELECT {_FOLDER} FROM drive_folders WHERE owner_id = ? AND parent = ? ORDER BY path LIMIT ?",
        (owner_id, path, at_most),
    )
    files = connection.execute(
        f"SELECT {FILE_COLUMNS} FROM drive_files WHERE owner_id = ? AND folder = ? AND deleted_at IS NULL"
        " ORDER BY path LIMIT ?",
        (owner_id, path, at_most),
    )
    return [FolderRecord(*row) for row in folders], [file_record(row) for row in files]


def folders_below(connection: Connection, owner_id: int, path: str, at_most: int) -> list[FolderRecord]:
    rows = connection.execute(
        f"SELECT {_FOLDER} FROM drive_folders WHERE owner_id = ? AND path > ? AND path < ? ORDER BY path LIMIT ?",
        (owner_id, *below(path), at_most),
    )
    return [FolderRecord(*row) for row in rows]


def files_below(connection: Connection, owner_id: int, path: str, after: str, at_most: int) -> list[FileRecord]:
    """By path, those behind `after` ("" for all)."""
    first, end = below(path)
    rows = connection.execute(
        f"SELECT {FILE_COLUMNS} FROM drive_files WHERE owner_id = ? AND path > ? AND path < ?"
        " AND deleted_at IS NULL ORDER BY path LIMIT ?",
        (owner_id, max(first, after), end, at_most),
    )
    return [file_record(row) for row in rows]


def versions(connection: Connection, file_id: int) -> list[VersionRecord]:
    """The latest first."""
    rows = connection.execute(
        f"SELECT {_VERSION} FROM drive_versions WHERE file_id = ? ORDER BY version DESC", (file_id,)
    )
    return [VersionRecord(*row) for row in rows]


def version(connection: Connection, file_id: int, number: int) -> VersionRecord | None:
    row = connection.execute(
        f"SELECT {_VERSION} FROM drive_versions WHERE file_id = ? AND version = ?", (file_id, number)
    ).fetchone()
    return None if row is None else VersionRecord(*row)


def heads(connection: Connection, file_ids: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """Id, content and first chunk of files as they are now."""
    if not file_ids:
        return []
    marks = ", ".join("?" * len(file_ids))
    rows = connection.execute(
        "SELECT f.file_id, v.content_id, c.data FROM drive_files f"
        " JOIN drive_versions v ON v.file_id = f.file_id AND v.version = f.version"
        " LEFT JOIN drive_chunks c ON c.content_id = v.content_id AND c.number = 0"
        f" WHERE f.file_id IN ({marks})",
        file_ids,
    )
    return [(row[0], row[1], bytes(row[2] or b"")) for row in rows]


def usage(connection: Connection, owner_id: int) -> UsageRecord:
    row = connection.execute(
        "SELECT bytes, kept_bytes, files FROM drive_owners WHERE owner_id = ?", (owner_id,)
    ).fetchone()
    return UsageRecord(*row) if row is not None else UsageRecord()
