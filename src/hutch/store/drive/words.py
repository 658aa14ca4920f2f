"""The index of words: FTS5 in SQLite, tsvector in PostgreSQL. It is derived, so it is made when first needed, and may
be dropped to be made anew."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hutch.model.drive import below
from hutch.store.database import Connection, Dialect

WORDS_AT_MOST = 32  # of a question
_WORD = re.compile(r"\w+")
_LONGEST_WORD = 200

_PREPARE: dict[Dialect, tuple[str, ...]] = {
    # The owner is a word of the index, so that nobody's question walks through what others wrote.
    "sqlite": ("CREATE VIRTUAL TABLE IF NOT EXISTS drive_words USING fts5(owner, name, text, tokenize = 'unicode61')",),
    "postgresql": (
        "CREATE TABLE IF NOT EXISTS drive_words (rowid BIGINT PRIMARY KEY, owner_id BIGINT NOT NULL, words TSVECTOR)",
        "CREATE INDEX IF NOT EXISTS drive_words_by_word ON drive_words USING gin (words)",
        "CREATE INDEX IF NOT EXISTS drive_words_by_owner ON drive_words (owner_id)",
    ),
}
_PUT: dict[Dialect, str] = {
    "sqlite": "INSERT INTO drive_words (rowid, owner, name, text) VALUES (?, ?, ?, ?)",
    "postgresql": "INSERT INTO drive_words (rowid, owner_id, words) VALUES (?, ?,"
    " setweight(to_tsvector('simple', ?), 'A') || to_tsvector('simple', ?))",
}
_OF_FILE = (
    "JOIN drive_files f ON f.file_id = w.rowid WHERE f.owner_id = ? AND f.deleted_at IS NULL"
    " AND f.path > ? AND f.path < ?"
)
_FIND: dict[Dialect, str] = {
    "sqlite": f"SELECT f.file_id, f.path FROM drive_words w {_OF_FILE} AND drive_words MATCH ?"
    " ORDER BY bm25(drive_words, 0, 4, 1), f.path LIMIT ?",
    "postgresql": f"SELECT f.file_id, f.path FROM drive_words w {_OF_FILE} AND w.owner_id = f.owner_id"
    " AND w.words @@ to_tsquery('simple', ?) ORDER BY ts_rank(w.words, to_tsquery('simple', ?), 1) DESC, f.path"
    " LIMIT ?",
}


@dataclass(frozen=True, slots=True)
class Found:
    file_id: int
    path: str


def prepare(connection: Connection, dialect: Dialect) -> None:
    for statement in _PREPARE[dialect]:
        connection.execute(statement)


def is_prepared(connection: Connection, dialect: Dialect) -> bool:
    where = (
        "sqlite_master WHERE name"
        if dialect == "sqlite"
        else "pg_tables WHERE schemaname = current_schema() AND tablename"
    )
    return connection.execute(f"SELECT 1 FROM {where} = 'drive_words'").fetchone() is not None


def put(connection: Connection, dialect: Dialect, file_id: int, owner_id: int, name: str, text: str) -> None:
    remove(connection, file_id)
    owner = _owner_word(owner_id) if dialect == "sqlite" else owner_id
    connection.execute(_PUT[dialect], (file_id, owner, " ".join(words_of(name)), text))


def remove(connection: Connection, file_id: int) -> None:
    connection.execute("DELETE FROM drive_words WHERE rowid = ?", (file_id,))


def words_of(text: str) -> list[str]:
    """The words of a question, or of a name; `_` and digits part words too, as names are written that way."""
    return [word[:_LONGEST_WORD] for word in _WORD.findall(text.replace("_", " "))]


def find(
    connection: Connection, dialect: Dialect, owner_id: int, words: Sequence[str], folder: str, at_most: int
) -> list[Found]:
    """Files with all the words first, then those with some of them; in each the best first."""
    if not words:
        return []
    found: dict[int, Found] = {}
    for all_of_them in (True, False):
        left = at_most - len(found)
        if left <= 0 or (not all_of_them and len(words) == 1):
            break
        question = _question(dialect, owner_id, words[:WORDS_AT_MOST], all_of_them=all_of_them)
        asked = (question,) if dialect == "sqlite" else (question, question)
        rows = connection.execute(_FIND[dialect], (owner_id, *below(folder), *asked, at_most))
        for row in rows.fetchall():
            found.setdefault(row[0], Found(*row))
    return list(found.values())[:at_most]


def _question(dialect: Dialect, owner_id: int, words: Sequence[str], *, all_of_them: bool) -> str:
    """Words hold letters and digits only, so quoting them takes all meaning from them but their own."""
    if dialect == "sqlite":
        joined = (" AND " if all_of_them else " OR ").join(f'"{word}"' for word in words)
        return f'(owner : "{_owner_word(owner_id)}") AND ({{name text}} : ({joined}))'
    return (" & " if all_of_them else " | ").join(f"'{word}'" for word in words)


def _owner_word(owner_id: int) -> str:
    return f"owner{owner_id}"
