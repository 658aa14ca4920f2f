"""Steps to run against a store in PostgreSQL, and a hand to disturb them by."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from hutch.store.database import Connection, Database, open_database

ADD = "INSERT INTO schema_versions (version, name) VALUES (0, 'test')"  # any row will do
COUNT = "SELECT count(*) FROM schema_versions WHERE version = 0"


def with_database(url: str, test: Callable[[Database], Awaitable[None]], busy_seconds: float = 5.0) -> None:
    async def run() -> None:
        database = await open_database(url, busy_seconds=busy_seconds)
        try:
            await test(database)
        finally:
            await database.aclose()

    asyncio.run(run())


def add(connection: Connection) -> None:
    connection.execute(ADD)


def count(connection: Connection) -> int:
    return int(connection.execute(COUNT).fetchone()[0])


def backend(connection: Connection) -> int:
    return int(connection.execute("SELECT pg_backend_pid()").fetchone()[0])


def sql(url: str, *statements: str) -> list[Any]:
    """Run as somebody else; the rows of the last statement."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
