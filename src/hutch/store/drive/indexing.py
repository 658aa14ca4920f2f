"""What is still to be indexed: a file's row says so itself, so no crash loses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hutch.model.drive import name_of
from hutch.store.database import Connection

Index = Literal["words", "meaning"]
_LEASE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Due:
    """A file whose index is older than the file."""

    file_id: int
    owner_id: int
    path: str
    changes: int
    live: bool

    @property
    def name(self) -> str:
        return name_of(self.path)


def any_due(connection: Connection, index: Index, now: float) -> bool:
    found = connection.execute(
        f"SELECT 1 FROM drive_files WHERE {index}_seen <> changes AND index_after <= ? LIMIT 1", (now,)
    )
    return found.fetchone() is not None


def claim(connection: Connection, index: Index, now: float, at_most: int) -> list[Due]:
    """Some of them, which nobody else gets for a minute."""
    rows = connection.execute(
        "UPDATE drive_files SET index_after = ? WHERE file_id IN"
        f" (SELECT file_id FROM drive_files WHERE {index}_seen <> changes AND index_after <= ?"
        " ORDER BY index_after LIMIT ?) RETURNING file_id, owner_id, path, changes, deleted_at",
        (now + _LEASE_SECONDS, now, at_most),
    ).fetchall()
    return [Due(row[0], row[1], row[2], row[3], row[4] is None) for row in rows]


def done(connection: Connection, index: Index, due: Due, model: str = "") -> bool:
    """False: the file has changed meanwhile, and stays due."""
    more, values = (", meaning_model = ?", (model,)) if index == "meaning" else ("", ())
    changed = connection.execute(
        f"UPDATE drive_files SET {index}_seen = ?, index_after = 0{more} WHERE file_id = ? AND changes = ?",
        (due.changes, *values, due.file_id, due.changes),
    )
    return changed.rowcount == 1


def postpone(connection: Connection, due: Sequence[Due], until: float) -> None:
    for one in due:
        connection.execute(
            "UPDATE drive_files SET index_after = ? WHERE file_id = ? AND changes = ?",
            (until, one.file_id, one.changes),
        )


def waiting(connection: Connection, index: Index, owner_id: int, at_most: int) -> int:
    """How many files of a user are due, counted up to `at_most`."""
    row = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM drive_files WHERE {index}_seen <> changes AND owner_id = ?"
        " AND deleted_at IS NULL LIMIT ?) AS due",
        (owner_id, at_most),
    ).fetchone()
    return int(row[0])


def forget_other_models(connection: Connection, model: str, at_most: int) -> int:
    """Files whose passages are another model's (or none) become due again. How many, `at_most` at once."""
    return connection.execute(
        "UPDATE drive_files SET meaning_seen = 0, meaning_model = ? WHERE file_id IN (SELECT file_id FROM drive_files"
        " WHERE meaning_model <> ? AND meaning_seen = changes LIMIT ?)",
        (model, model, at_most),
    ).rowcount
