"""The schema: numbered files that only add, applied in order, each number recorded.

An older program meeting a newer schema refuses: it cannot know what the new columns mean.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hutch.store import failures
from hutch.store.database import Connection

_FILE_NAME = re.compile(r"([0-9]{4})_[a-z0-9_]+\.sql")
_FIND_VERSIONS = "SELECT 1 FROM sqlite_master WHERE name = 'schema_versions'"
_VERSIONS = "CREATE TABLE IF NOT EXISTS schema_versions (version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL)"


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    statements: tuple[str, ...]


def read_migrations() -> tuple[Migration, ...]:
    """The files beside this one, in order. Their numbers run from 1 without a gap (a test checks it)."""
    folder = Path(__file__).parent / "migrations"
    found = []
    for file in sorted(folder.glob("*.sql")):
        match = _FILE_NAME.fullmatch(file.name)
        if match is None:
            raise RuntimeError(f"{file.name} is no name of a migration")
        found.append(Migration(int(match[1]), file.stem, tuple(split_statements(file.read_text("utf-8")))))
    return tuple(found)


def split_statements(script: str) -> Iterator[str]:
    """Single statements. `executescript` would do, but it commits first, and the lock is lost."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
    if any(line.strip() and not line.lstrip().startswith("--") for line in statement.splitlines()):
        raise ValueError(f"unfinished statement: {statement.strip()}")


def migrate(connection: sqlite3.Connection, path: Path, migrations: tuple[Migration, ...]) -> None:
    """Bring the schema up to date. Does not write, or wait for writers, when it already is.

    Raises: StoreUnavailable when a newer program wrote the file.
    """
    latest = migrations[-1].version
    if checked_version(connection, path, latest, _FIND_VERSIONS) == latest:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        add_later(connection, path, migrations, _FIND_VERSIONS)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def add_later(
    connection: Connection,
    place: Path | str,
    migrations: tuple[Migration, ...],
    find_versions: str,
    in_dialect: Callable[[str], str] = str,
) -> None:
    """In a transaction that keeps every other writer out: apply what is not there yet.

    Raises: StoreUnavailable when a newer program wrote the database.
    """
    current = checked_version(connection, place, migrations[-1].version, find_versions)
    connection.execute(_VERSIONS)
    for migration in migrations:
        if migration.version > current:
            for statement in migration.statements:
                connection.execute(in_dialect(statement))
            connection.execute(
                "INSERT INTO schema_versions (version, name) VALUES (?, ?)", (migration.version, migration.name)
            )


def checked_version(connection: Connection, place: Path | str, latest: int, find_versions: str) -> int:
    """The version found, 0 in an empty database. `find_versions` has a row where the table of versions exists.

    Raises: StoreUnavailable when it is newer than `latest`.
    """
    if connection.execute(find_versions).fetchone() is None:
        return 0
    found = int(connection.execute("SELECT max(version) FROM schema_versions").fetchone()[0] or 0)
    if found > latest:
        raise failures.newer_schema(place, found, latest)
    return found
