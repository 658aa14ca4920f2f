from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hutch.model.errors import StoreUnavailable
from hutch.store.schema import Migration, migrate, read_migrations, split_statements
from hutch.store.store import Store


def connect(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None))


def tables(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_migrations_are_numbered_without_a_gap() -> None:
    migrations = read_migrations()
    assert [one.version for one in migrations] == list(range(1, len(migrations) + 1))
    assert all(one.statements for one in migrations)


@pytest.mark.parametrize("migration", read_migrations(), ids=lambda one: one.name)
def test_migrations_only_add(migration: Migration) -> None:
    for statement in migration.statements:
        code = " ".join(line.split("--")[0] for line in statement.splitlines())
        assert re.match(r"\s*(CREATE (UNIQUE )?(TABLE|INDEX)|ALTER TABLE \w+ ADD|INSERT INTO)\b", code), code


def test_a_script_is_split_at_the_ends_of_statements() -> None:
    script = "-- a; comment\nCREATE TABLE a (\n  b TEXT DEFAULT ';'\n);\n\nCREATE TABLE c (d TEXT);\n-- the end\n"
    first, second = split_statements(script)
    assert first.endswith("DEFAULT ';'\n);")
    assert second == "CREATE TABLE c (d TEXT);"
    with pytest.raises(ValueError, match="unfinished"):
        list(split_statements("CREATE TABLE a (b TEXT)"))


def test_later_migrations_are_added_to_an_older_database(tmp_path: Path) -> None:
    path = tmp_path / "db"
    first = Migration(1, "0001_a", ("CREATE TABLE a (x TEXT);",))
    second = Migration(2, "0002_b", ("ALTER TABLE a ADD y TEXT;", "CREATE TABLE b (x TEXT);"))
    with connect(path) as connection:
        migrate(connection, path, (first,))
        connection.execute("INSERT INTO a (x) VALUES ('kept')")
        migrate(connection, path, (first, second))
        migrate(connection, path, (first, second))
        assert tables(connection) == {"a", "b", "schema_versions"}
        assert connection.execute("SELECT x, y FROM a").fetchall() == [("kept", None)]
        assert connection.execute("SELECT version FROM schema_versions ORDER BY version").fetchall() == [(1,), (2,)]


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "db"
    broken = Migration(1, "0001_a", ("CREATE TABLE a (x TEXT);", "CREATE TABLE a (x TEXT);"))
    with connect(path) as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, path, (broken,))
        assert tables(connection) == set()
        assert not connection.in_transaction


def test_an_older_program_refuses_a_newer_schema_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hutch.db"

    async def open_and_close() -> None:
        await (await Store.open(path)).aclose()

    asyncio.run(open_and_close())
    with connect(path) as connection:
        connection.execute("INSERT INTO schema_versions (version, name) VALUES (999, '0999_later')")
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"newer Hutch wrote it \(schema 999") as caught:
        asyncio.run(open_and_close())
    assert "update this program" in caught.value.details["remedy"]
    assert path.read_bytes() == before


def test_an_up_to_date_database_is_opened_without_waiting_for_a_writer(tmp_path: Path) -> None:
    async def run() -> None:
        await (await Store.open(tmp_path / "db")).aclose()
        with connect(tmp_path / "db") as writer:
            writer.execute("BEGIN IMMEDIATE")
            store = await Store.open(tmp_path / "db", busy_seconds=0.05)
            assert await store.sandboxes() == []
            await store.aclose()

    asyncio.run(run())
