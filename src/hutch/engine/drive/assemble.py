"""Wires the drive over a database: an engine's, or that of a server which runs no sandboxes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from hutch.engine.drive.drive import Drive
from hutch.engine.drive.embedding import Embedder, ServiceEmbedder
from hutch.engine.drive.grep import Grep
from hutch.engine.drive.indexer import Indexer
from hutch.engine.drive.search import Search
from hutch.settings import Settings
from hutch.store.database import Database
from hutch.store.drive.store import DriveStore
from hutch.store.later import LaterDatabase


@dataclass(frozen=True, slots=True)
class Drives:
    files: Drive
    grep: Grep
    search: Search
    indexer: Indexer
    close_database: Callable[[], Awaitable[None]]

    async def close(self) -> None:
        await self.indexer.close()
        await self.close_database()


async def _nothing() -> None: ...


def open_drives(settings: Settings, shared: Database | None) -> Drives:
    """On the database that all servers `shared`, or on the file in the data folder, opened at first use.

    Of a file it has a connection and a thread of its own, so that large files never hold up a command.
    """
    database = shared if shared is not None else LaterDatabase(_file(settings))
    store = DriveStore(database)
    indexer = Indexer(store, _embedder(settings))
    drive = Drive(store, indexer, settings.drive_quota)
    close = _nothing if shared is not None else database.aclose
    return Drives(drive, Grep(drive), Search(drive), indexer, close)


def _file(settings: Settings) -> Path:
    return settings.data_dir / "hutch.db"


def _embedder(settings: Settings) -> Embedder | None:
    if settings.embeddings_url is None:
        return None
    return ServiceEmbedder(settings.embeddings_url, settings.embeddings_model, settings.embeddings_key)
