"""Content in chunks: written once, named by versions, cleared up when no version names it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hutch.model.errors import StoreUnavailable
from hutch.store.database import Connection
from hutch.store.drive.records import CHUNK_BYTES

_FREED = 0.0  # an old time: cleared up at the next look
CHUNKS_A_STEP = 64


def begin(connection: Connection, owner_id: int) -> int:
    """A new content that no version names yet."""
    row = connection.execute(
        "INSERT INTO drive_contents (owner_id, written_at) VALUES (?, ?) RETURNING content_id", (owner_id, time.time())
    ).fetchone()
    return int(row[0])


def add_chunks(connection: Connection, content_id: int, first: int, chunks: Sequence[bytes]) -> None:
    for number, data in enumerate(chunks, first):
        connection.execute(
            "INSERT INTO drive_chunks (content_id, number, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (content_id, number, data),
        )
    connection.execute(
        "UPDATE drive_contents SET written_at = ? WHERE content_id = ? AND written_at > 0", (time.time(), content_id)
    )


def name(connection: Connection, content_id: int) -> None:
    """A version names it from now on. Raises: StoreUnavailable when it was cleared up, as its writer slept too long."""
    changed = connection.execute(
        "UPDATE drive_contents SET written_at = NULL WHERE content_id = ? AND written_at > 0", (content_id,)
    )
    if changed.rowcount != 1:
        raise StoreUnavailable("The upload paused for so long that it was given up. Remedy: send the file again.")


def free(connection: Connection, content_ids: Sequence[int]) -> None:
    """Clear up later those that no version names (any more): chunk by chunk, as there may be many."""
    for content_id in content_ids:
        connection.execute(
            "UPDATE drive_contents SET written_at = ? WHERE content_id = ?"
            " AND NOT EXISTS (SELECT 1 FROM drive_versions WHERE content_id = ?)",
            (_FREED, content_id, content_id),
        )


def clear_some(connection: Connection, older_than: float) -> bool:
    """One step of clearing up what no version names. False: there is nothing left to clear."""
    found = connection.execute(
        "SELECT content_id FROM drive_contents WHERE written_at IS NOT NULL AND written_at < ?"
        " ORDER BY written_at LIMIT 1",
        (older_than,),
    ).fetchone()
    if found is None:
        return False
    # First of all: whoever still writes it must not name what is half gone.
    connection.execute("UPDATE drive_contents SET written_at = ? WHERE content_id = ?", (_FREED, found[0]))
    gone = connection.execute(
        "DELETE FROM drive_chunks WHERE content_id = ? AND number IN"
        " (SELECT number FROM drive_chunks WHERE content_id = ? ORDER BY number LIMIT ?)",
        (found[0], found[0], CHUNKS_A_STEP),
    ).rowcount
    if gone < CHUNKS_A_STEP:
        connection.execute("DELETE FROM drive_contents WHERE content_id = ?", (found[0],))
    return True


def chunks(connection: Connection, content_id: int, first: int, count: int) -> list[bytes]:
    rows = connection.execute(
        "SELECT data FROM drive_chunks WHERE content_id = ? AND number >= ? AND number < ? ORDER BY number",
        (content_id, first, first + count),
    )
    return [bytes(row[0]) for row in rows]


def split(data: bytes) -> tuple[bytes, ...]:
    return tuple(data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES))
