"""The seam between the store and a database: what the SQL may use, and which database an address means.

SQL is written once, with `?` for values, in what SQLite and PostgreSQL both speak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from hutch.store import failures

T = TypeVar("T")
BUSY_SECONDS = 5.0
Dialect = Literal["sqlite", "postgresql"]


class Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Cursor: ...
    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Cursor: ...


Work = Callable[[Connection], T]  # may be run again from its beginning, after all it did was undone


class Database(Protocol):
    """Every method: Raises StoreUnavailable (with cause and remedy), ClientClosed, InvalidRequest (text that cannot be
    stored)."""

    dialect: Dialect  # for what cannot be said in words that both know: search

    async def read(self, work: Work[T]) -> T:
        """Run `work` without a lock. One statement sees one state of the database; two may see two."""

    async def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction that no other writer overlaps; any exception undoes all of it.

        A caller that is cancelled cannot know whether the transaction was committed.
        """

    async def claim(self, name: str) -> bool:
        """Keep others from a name, as long as this lives. False: another one has it. Processes on a file share all."""

    async def aclose(self) -> None:
        """Close after the calls already made. Closing twice is fine."""


async def open_database(place: Path | str, *, busy_seconds: float = BUSY_SECONDS) -> Database:
    """A file of SQLite (a path), or PostgreSQL (a URL), with its schema brought up to date.

    Raises: StoreUnavailable.
    """
    if isinstance(place, Path):
        from hutch.store.sqlite import SqliteDatabase

        return await SqliteDatabase.open(place, busy_seconds=busy_seconds)
    try:
        from hutch.store.postgres import PostgresDatabase
    except ImportError as error:
        raise failures.unavailable("in PostgreSQL", str(error), "pip install 'hutch[server]'") from error
    return await PostgresDatabase.open(place, busy_seconds=busy_seconds)
