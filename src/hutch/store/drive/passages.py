"""Passages by their meaning: sqlite-vec in SQLite, pgvector in PostgreSQL; each of one user's is compared."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from hutch.model.drive import below
from hutch.store.database import Connection, Dialect

_OF_FILE = (
    "FROM drive_passages p JOIN drive_files f ON f.file_id = p.file_id"
    " WHERE p.owner_id = ? AND f.owner_id = p.owner_id AND f.deleted_at IS NULL AND f.path > ? AND f.path < ?"
    " AND p.model = ?"
)


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a file's text, by characters."""

    starts: int
    ends: int
    embedding: Sequence[float]


@dataclass(frozen=True, slots=True)
class NearPassage:
    file_id: int
    path: str
    starts: int
    ends: int


def has_column(connection: Connection) -> bool:
    """PostgreSQL: whether passages can be compared."""
    found = connection.execute(
        "SELECT 1 FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = 'drive_passages' AND column_name = 'place'"
    )
    return found.fetchone() is not None


def can_have_column(connection: Connection) -> bool:
    return connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone() is not None


def add_column(connection: Connection) -> None:
    """PostgreSQL: only a user who may create extensions can do it, unless an administrator did."""
    if connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone() is None:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    connection.execute("ALTER TABLE drive_passages ADD COLUMN IF NOT EXISTS place vector")


def put(
    connection: Connection, dialect: Dialect, owner_id: int, file_id: int, model: str, passages: Sequence[Passage]
) -> None:
    connection.execute("DELETE FROM drive_passages WHERE owner_id = ? AND file_id = ?", (owner_id, file_id))
    column, value = ("embedding", "?") if dialect == "sqlite" else ("place", "CAST(? AS vector)")
    for number, one in enumerate(passages):
        connection.execute(
            f"INSERT INTO drive_passages (owner_id, file_id, number, model, starts, ends, {column})"
            f" VALUES (?, ?, ?, ?, ?, ?, {value})",
            (owner_id, file_id, number, model, one.starts, one.ends, _packed(dialect, one.embedding)),
        )


def nearest(
    connection: Connection,
    dialect: Dialect,
    owner_id: int,
    model: str,
    embedding: Sequence[float],
    folder: str,
    at_most: int,
) -> list[NearPassage]:
    """The nearest passage of each file, the nearest file first."""
    if dialect == "sqlite":
        place, distance, size = "p.embedding", "vec_distance_cosine(p.embedding, ?)", "length(p.embedding) / 4"
    else:
        place, distance, size = "p.place", "p.place <=> CAST(? AS vector)", "vector_dims(p.place)"
    # A model that answers in another number of dimensions than before cannot be compared with.
    rows = connection.execute(
        f"SELECT file_id, path, starts, ends, far FROM (SELECT p.file_id, f.path, p.starts, p.ends,"
        f" CASE WHEN {size} = ? THEN {distance} END AS far {_OF_FILE} AND {place} IS NOT NULL) AS found"
        " WHERE far IS NOT NULL ORDER BY far LIMIT ?",
        (len(embedding), _packed(dialect, embedding), owner_id, *below(folder), model, at_most * 8),
    )
    found: dict[int, NearPassage] = {}
    for file_id, path, starts, ends, far in rows.fetchall():
        if far == far and len(found) < at_most:  # no distance of a vector of zeros is a number
            found.setdefault(file_id, NearPassage(file_id, path, starts, ends))
    return list(found.values())


def _packed(dialect: Dialect, embedding: Sequence[float]) -> bytes | str:
    if dialect == "sqlite":
        return struct.pack(f"<{len(embedding)}f", *embedding)
    return "[" + ",".join(repr(float(one)) for one in embedding) + "]"
