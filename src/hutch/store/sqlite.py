"""One SQLite file, spoken to by one connection in one thread of its own.

SQLite calls block, so they never run on the event loop; a single thread keeps them in order and spares a pool of
connections. Several processes may share the file: readers never wait, writers wait for each other a bounded time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from hutch.model.errors import ClientClosed
from hutch.store import failures, sqlite_vectors
from hutch.store.database import BUSY_SECONDS, Dialect, Work
from hutch.store.schema import migrate, read_migrations

T = TypeVar("T")

_LEAST_BUSY_SECONDS = 0.05  # what a call still waits for a lock that queued behind slower ones for too long
_OLDEST_SQLITE = (3, 35, 0)  # RETURNING
_CACHE_KIB = 1024
_WAL_BYTES = 4 * 1024 * 1024


class SqliteDatabase:
    """A `Database`. Use `open`."""

    dialect: Dialect = "sqlite"

    def __init__(
        self, path: Path, connection: sqlite3.Connection, executor: ThreadPoolExecutor, busy_seconds: float
    ) -> None:
        self._path = path
        self._connection = connection
        self._executor = executor
        self._busy_seconds = busy_seconds
        self._process_id = os.getpid()
        self._closed = False

    @classmethod
    async def open(cls, path: Path, *, busy_seconds: float = BUSY_SECONDS, vectors: bool = False) -> SqliteDatabase:
        """Open the file, made with its folder when missing, and bring its schema up to date; with `vectors`, where it
        can be had, able to compare them.

        Raises: StoreUnavailable.
        """
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hutch-store")
        opening = executor.submit(_connect, path, busy_seconds, vectors)
        try:
            connection = await asyncio.shield(asyncio.wrap_future(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_discard)  # or a connection would stay open that nobody can close
            executor.shutdown(wait=False)
            raise
        except BaseException:
            executor.shutdown(wait=False)
            raise
        return cls(path, connection, executor, busy_seconds)

    async def read(self, work: Work[T]) -> T:
        """Run `work` without a lock."""
        return await self._run(work, writes=False)

    async def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction, begun with the write lock."""
        return await self._run(work, writes=True)

    async def claim(self, name: str) -> bool:
        return True

    async def aclose(self) -> None:
        """Close after the calls already made. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        if self._process_id != os.getpid():
            return  # the connection and its thread belong to the process we were forked from
        try:
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._executor, self._connection.close))
        finally:
            self._executor.shutdown(wait=False)

    async def _run(self, work: Work[T], *, writes: bool) -> T:
        if self._closed:
            raise ClientClosed("The store is closed.")
        if self._process_id != os.getpid():  # the thread did not survive the fork: a call would wait for ever
            raise failures.forked(self._path)
        asked_at = time.monotonic()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._in_thread, work, writes, asked_at)

    def _in_thread(self, work: Work[T], writes: bool, asked_at: float) -> T:
        connection = self._connection
        # Time spent in the queue counts: fifty callers behind one lock all fail after the same bounded wait.
        left = max(_LEAST_BUSY_SECONDS, self._busy_seconds - (time.monotonic() - asked_at))
        try:
            connection.execute(f"PRAGMA busy_timeout = {round(left * 1000)}")
            if not writes:
                return work(connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
                return result
            finally:
                if connection.in_transaction:  # some failures end the transaction by themselves
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise failures.from_sqlite(self._path, error) from error
        except UnicodeEncodeError as error:
            raise failures.no_text(error) from error


def _connect(path: Path, busy_seconds: float, vectors: bool = False) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        needed = ".".join(map(str, _OLDEST_SQLITE))
        raise failures.unavailable(path, f"SQLite is {sqlite3.sqlite_version}, older than {needed}", "update SQLite")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_new = not path.exists()
        # Not bound to a thread by the module, as it is closed where no thread of ours may be left.
        with sqlite_vectors.offered() if vectors else contextlib.nullcontext():
            connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
        try:
            if vectors:
                with contextlib.suppress(sqlite3.Error):  # `sqlite_vectors.missing` says it, where somebody asks
                    sqlite_vectors.load(connection)
            if is_new:
                # By name, never through a descriptor of our own: closing one would drop the locks that this process
                # holds on the file through other connections. SQLite gives its side files the same mode.
                path.chmod(0o600)
            # Now, not at the first write: SQLite opens what it may only read without a word.
            if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
                raise failures.unwritable(path)
            _set_up(connection, path, busy_seconds)
            migrate(connection, path, read_migrations())
        except BaseException:
            connection.close()
            raise
        return connection
    except sqlite3.Error as error:
        raise failures.from_sqlite(path, error) from error
    except OSError as error:
        raise failures.from_os(path, error) from error


def _set_up(connection: sqlite3.Connection, path: Path, busy_seconds: float) -> None:
    mode = _switch_to_wal(connection, busy_seconds)
    if mode != "wal":
        raise failures.unavailable(
            path, f"its file system cannot hold a write-ahead log (mode {mode})", "set HUTCH_DATA_DIR to a local disk"
        )
    # NORMAL: a killed process loses nothing; a power cut may lose the last moments, never the file.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")


def _switch_to_wal(connection: sqlite3.Connection, busy_seconds: float) -> str:
    """Change the journal mode. Unlike all else, this does not always wait when other processes do it, too."""
    give_up_at = time.monotonic() + busy_seconds
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= give_up_at:
                raise
            time.sleep(0.02)


def _discard(opening: Future[sqlite3.Connection]) -> None:
    if opening.exception() is None:
        opening.result().close()
