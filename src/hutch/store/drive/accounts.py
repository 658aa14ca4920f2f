"""What a user has in all: bytes, files, and how much history there is room for."""

from __future__ import annotations

from hutch.model.errors import LimitExceeded
from hutch.store.database import Connection
from hutch.store.drive import contents, reading

_HISTORY_STEP = 50


def ensure_owner(connection: Connection, tenant: str, user_id: str) -> int:
    connection.execute(
        "INSERT INTO drive_owners (tenant, user_id) VALUES (?, ?) ON CONFLICT (tenant, user_id) DO NOTHING",
        (tenant, user_id),
    )
    found = reading.owner(connection, tenant, user_id)
    assert found is not None, "it was made just now"
    return found


def book(connection: Connection, owner_id: int, *, live: int = 0, kept: int = 0, files: int = 0) -> None:
    connection.execute(
        "UPDATE drive_owners SET bytes = bytes + ?, kept_bytes = kept_bytes + ?, files = files + ? WHERE owner_id = ?",
        (live, kept, files, owner_id),
    )


def check_quota(connection: Connection, owner_id: int, quota: int | None) -> None:
    """Earlier versions have what room the files leave: the oldest go first. Raises: LimitExceeded."""
    if quota is None:
        return
    used = reading.usage(connection, owner_id)
    if used.bytes > quota:
        raise over_quota(quota, used.bytes)
    over = used.bytes + used.kept_bytes - quota
    while over > 0 and (freed := _drop_oldest(connection, owner_id, over)):
        over -= freed


def over_quota(quota: int, needed: int) -> LimitExceeded:
    return LimitExceeded(
        f"This user's drive may hold {quota} bytes; with this file it would hold {needed}. Delete files, or raise "
        "HUTCH_DRIVE_QUOTA.",
        limit="drive_quota",
        maximum=quota,
        actual=needed,
    )


def _drop_oldest(connection: Connection, owner_id: int, wanted: int) -> int:
    """How many bytes of versions that are not a file's current one went."""
    rows = connection.execute(
        "SELECT v.file_id, v.version, v.content_id, v.size_bytes FROM drive_versions v"
        " JOIN drive_files f ON f.file_id = v.file_id"
        " WHERE v.owner_id = ? AND v.size_bytes > 0 AND v.version <> f.version ORDER BY v.created_at LIMIT ?",
        (owner_id, _HISTORY_STEP),
    ).fetchall()
    if not rows:
        return _drop_deleted(connection, owner_id)
    freed = 0
    for file_id, version, content_id, size in rows:
        if freed >= wanted:
            break
        drop_version(connection, file_id, version, content_id)
        freed += size
    book(connection, owner_id, kept=-freed)
    return freed


def _drop_deleted(connection: Connection, owner_id: int) -> int:
    """The same of the file that was deleted first: its last version keeps its row alive."""
    row = connection.execute(
        "SELECT file_id, size_bytes FROM drive_files WHERE owner_id = ? AND deleted_at IS NOT NULL AND size_bytes > 0"
        " ORDER BY deleted_at LIMIT 1",
        (owner_id,),
    ).fetchone()
    return purge(connection, owner_id, [row[0]]) if row is not None else 0


def drop_version(connection: Connection, file_id: int, version: int, content_id: int) -> None:
    connection.execute("DELETE FROM drive_versions WHERE file_id = ? AND version = ?", (file_id, version))
    contents.free(connection, [content_id])


def purge(connection: Connection, owner_id: int, file_ids: list[int]) -> int:
    """Forget deleted files for good. How many bytes of theirs were kept."""
    freed = 0
    for file_id in file_ids:
        rows = reading.versions(connection, file_id)
        connection.execute("DELETE FROM drive_versions WHERE file_id = ?", (file_id,))
        connection.execute("DELETE FROM drive_files WHERE file_id = ?", (file_id,))
        connection.execute("DELETE FROM drive_words WHERE rowid = ?", (file_id,))
        connection.execute("DELETE FROM drive_passages WHERE owner_id = ? AND file_id = ?", (owner_id, file_id))
        contents.free(connection, [row.content_id for row in rows])
        freed += sum(row.size_bytes for row in rows)
    book(connection, owner_id, kept=-freed)
    return freed
