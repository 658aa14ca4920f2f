"""Deleting and moving files and whole folders, each within one transaction."""

from __future__ import annotations

import time

from hutch.model.drive import below, folder_of
from hutch.model.errors import FileConflict, InvalidRequest
from hutch.store.database import Connection
from hutch.store.drive import reading
from hutch.store.drive.accounts import book, purge
from hutch.store.drive.changes import add_version, check_free, count, not_found
from hutch.store.drive.records import FileRecord

_BELOW = "owner_id = ? AND path > ? AND path < ?"


def delete(connection: Connection, owner_id: int, path: str, *, recursive: bool) -> int:
    """How many files went; each may be had back for a while. Raises: DriveFileNotFound, FileConflict."""
    now = time.time()
    row = reading.file(connection, owner_id, path)
    if row is not None and row.live:
        _mark_deleted(connection, row, now)
        return 1
    folder = reading.folder(connection, owner_id, path)
    if folder is None and path != "/":
        raise not_found(path)
    if not recursive:
        raise FileConflict(f"{path!r} is a folder; say recursive=True to delete all that is in it.", path=path)
    span = (owner_id, *below(path))
    size, files = connection.execute(
        f"SELECT coalesce(sum(size_bytes), 0), count(*) FROM drive_files WHERE {_BELOW} AND deleted_at IS NULL", span
    ).fetchone()
    connection.execute(
        f"UPDATE drive_files SET deleted_at = ?, changes = changes + 1, index_after = 0 WHERE {_BELOW}"
        " AND deleted_at IS NULL",
        (now, *span),
    )
    connection.execute(f"DELETE FROM drive_folders WHERE {_BELOW}", span)
    if path != "/":
        connection.execute("DELETE FROM drive_folders WHERE owner_id = ? AND path = ?", (owner_id, path))
        count(connection, owner_id, path, -int(files), now)
    book(connection, owner_id, live=-int(size), kept=int(size), files=-int(files))
    return int(files)


def move(connection: Connection, owner_id: int, source: str, target: str, *, overwrite: bool) -> None:
    """Raises: DriveFileNotFound, FileConflict, InvalidRequest."""
    row = reading.file(connection, owner_id, source)
    if row is not None and row.live:
        if source != target:
            _move_file(connection, row, target, overwrite=overwrite)
        return
    folder = reading.folder(connection, owner_id, source)
    if folder is None:
        raise not_found(source)
    if source == target:
        return
    if target.startswith(source + "/"):
        raise InvalidRequest(f"{source!r} cannot be moved into itself.")
    _move_folder(connection, owner_id, source, target)


def _move_file(connection: Connection, row: FileRecord, target: str, *, overwrite: bool) -> None:
    now, there = time.time(), reading.file(connection, row.owner_id, target)
    if there is not None and there.live:
        if not overwrite:
            raise FileConflict(f"{target!r} exists already and overwrite is off.", path=target)
        content = reading.version(connection, row.file_id, row.version)
        assert content is not None
        _mark_deleted(connection, row, now)
        add_version(connection, row.owner_id, target, content, quota=None)  # so that both can be had back
        return
    check_free(connection, row.owner_id, target)
    if there is not None:
        purge(connection, row.owner_id, [there.file_id])
    connection.execute(
        "UPDATE drive_files SET path = ?, folder = ?, changes = changes + 1, index_after = 0 WHERE file_id = ?",
        (target, folder_of(target), row.file_id),
    )
    count(connection, row.owner_id, row.path, -1, now)
    count(connection, row.owner_id, target, 1, now)


def _move_folder(connection: Connection, owner_id: int, source: str, target: str) -> None:
    now = time.time()
    there = reading.file(connection, owner_id, target)
    if there is not None and there.live:
        raise FileConflict(f"{target!r} is a file; a folder cannot take its place.", path=target)
    check_free(connection, owner_id, target)
    span, cut = (owner_id, *below(source)), len(source) + 1
    # Only deleted files can be below the target: what they were makes place.
    rows = connection.execute(f"SELECT file_id FROM drive_files WHERE {_BELOW}", (owner_id, *below(target)))
    purge(connection, owner_id, [row[0] for row in rows.fetchall()])
    folder = reading.folder(connection, owner_id, source)
    assert folder is not None
    count(connection, owner_id, source, -folder.files, now)
    connection.execute(
        "UPDATE drive_files SET path = ? || substr(path, ?), folder = ? || substr(folder, ?), changes = changes + 1,"
        f" index_after = 0 WHERE {_BELOW}",
        (target, cut, target, cut, *span),
    )
    connection.execute(
        f"UPDATE drive_folders SET path = ? || substr(path, ?), parent = ? || substr(parent, ?) WHERE {_BELOW}",
        (target, cut, target, cut, *span),
    )
    connection.execute(
        "UPDATE drive_folders SET path = ?, parent = ?, modified_at = ? WHERE owner_id = ? AND path = ?",
        (target, folder_of(target), now, owner_id, source),
    )
    count(connection, owner_id, target, folder.files, now)


def _mark_deleted(connection: Connection, row: FileRecord, now: float) -> None:
    connection.execute(
        "UPDATE drive_files SET deleted_at = ?, changes = changes + 1, index_after = 0 WHERE file_id = ?",
        (now, row.file_id),
    )
    book(connection, row.owner_id, live=-row.size_bytes, kept=row.size_bytes, files=-1)
    count(connection, row.owner_id, row.path, -1, now)


def forget_deleted(connection: Connection, older_than: float, at_most: int) -> int:
    """How many that were deleted so long ago went for good."""
    rows = connection.execute(
        "SELECT owner_id, file_id FROM drive_files WHERE deleted_at < ? ORDER BY deleted_at LIMIT ?",
        (older_than, at_most),
    ).fetchall()
    for owner_id, file_id in rows:
        purge(connection, owner_id, [file_id])
    return len(rows)
