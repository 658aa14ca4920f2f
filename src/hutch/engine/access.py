"""Keys and audit trail of a data folder without the rest of an engine: for verbs of whoever may read it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hutch.engine.audit import Audit
from hutch.engine.keys import Keys
from hutch.model.errors import StoreUnavailable
from hutch.model.principal import KEY_FILE, LOCAL_TENANT
from hutch.store.audit import AuditStore
from hutch.store.database import Database, open_database
from hutch.store.keys import KeyStore


@dataclass(frozen=True, slots=True)
class Access:
    keys: Keys
    audit: Audit


def access_to(database: Database) -> Access:
    return Access(Keys(KeyStore(database)), Audit(AuditStore(database)))


@asynccontextmanager
async def open_access(data_dir: Path, database_url: str | None = None) -> AsyncIterator[Access]:
    """Without a URL, SQLite in the data folder. Raises: StoreUnavailable."""
    database = await open_database(database_url or data_dir / "hutch.db")
    try:
        yield access_to(database)
    finally:
        await database.aclose()


async def ensure_first_key(keys: Keys, data_dir: Path) -> bool:
    """Where there is no key at all, make one that may do anything, in a file that programs of this user find.

    Raises: StoreUnavailable.
    """
    if await keys.list():
        return False
    made, _ = await keys.create("first key of this server", LOCAL_TENANT, "admin")
    try:
        _write_key(data_dir, made.text)
    except OSError as error:
        await keys.revoke(made.key_id)
        raise StoreUnavailable(
            f"The first API key cannot be written to {data_dir / KEY_FILE}: {error.strerror}. "
            "Make the data folder writable, or make a key with hutch keys create."
        ) from error
    return True


def _write_key(data_dir: Path, text: str) -> None:
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = data_dir / KEY_FILE
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text + "\n")
