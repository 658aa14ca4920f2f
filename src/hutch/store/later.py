"""A database that is opened at its first use: what few calls need must not cost every start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TypeVar

from hutch.model.errors import ClientClosed
from hutch.store.database import Database, Dialect, Work

T = TypeVar("T")


class LaterDatabase:
    """A `Database` on a file of SQLite, by a connection and a thread of its own, which compares vectors if it can."""

    dialect: Dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opening = asyncio.Lock()
        self._database: Database | None = None
        self._closed = False

    async def read(self, work: Work[T]) -> T:
        return await (self._database or await self._opened()).read(work)

    async def write(self, work: Work[T]) -> T:
        return await (self._database or await self._opened()).write(work)

    async def claim(self, name: str) -> bool:
        return await (self._database or await self._opened()).claim(name)

    async def aclose(self) -> None:
        self._closed = True
        async with self._opening:
            if self._database is not None:
                await self._database.aclose()

    async def _opened(self) -> Database:
        async with self._opening:
            if self._closed:
                raise ClientClosed("The store is closed.")
            if self._database is None:
                from hutch.store.sqlite import SqliteDatabase

                self._database = await SqliteDatabase.open(self._path, vectors=True)
            return self._database
