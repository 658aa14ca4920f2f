"""One connection to PostgreSQL, used by one thread at a time, opened at need and replaced when it broke."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from hutch.store import failures
from hutch.store.database import Work
from hutch.store.postgres_words import Facade, Place, in_dialect, is_lost
from hutch.store.schema import Migration, add_later, checked_version

T = TypeVar("T")

# Writers take turns, as they do in SQLite, by this lock of the whole database (the letters "hutch"). Each statement of
# a writer then sees all that the writers before it did, so compare-and-set needs no other isolation.
WRITE_LOCK = 0x6875746368
LEAST_LOCK_SECONDS = 0.05  # what a call still waits for the lock that queued behind slower ones for too long
STATEMENT_SECONDS = 10
ATTEMPTS = 5
_AGAIN = {"40001", "40P01"}  # serialization failure, deadlock: by strangers, as our own writers take turns
# By reading the catalogue: to_regclass would answer from a cache, which waiting for the lock does not renew.
_FIND_VERSIONS = (
    "SELECT 1 FROM pg_tables WHERE tablename = 'schema_versions' AND schemaname = ANY (current_schemas(false))"
)
# The URL may say otherwise.
_DEFAULTS: dict[str, Any] = {
    "application_name": "hutch",
    "client_encoding": "utf8",
    "connect_timeout": 5,
    # A server that is cut off is noticed within some 15 seconds.
    "keepalives": 1,
    "keepalives_idle": 6,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "target_session_attrs": "read-write",
}


class Call:
    """One call of the store: how long it may take, and a way to end it from outside of its thread."""

    def __init__(self, busy_seconds: float) -> None:
        self._lock = threading.Lock()
        self._connection: psycopg.Connection | None = None
        self._busy_until = time.monotonic() + busy_seconds
        self.given_up = False

    def lock_milliseconds(self) -> int:
        """Time spent in the queue counts: fifty callers behind one lock all fail after the same bounded wait."""
        return round(1000 * max(LEAST_LOCK_SECONDS, self._busy_until - time.monotonic()))

    @contextlib.contextmanager
    def using(self, connection: psycopg.Connection) -> Iterator[None]:
        with self._lock:
            self._connection = connection
        try:
            yield
        finally:
            with self._lock:
                self._connection = None

    def give_up(self) -> None:
        """Its thread gets an error at once, even where the server is stopped and its connection open."""
        with self._lock:
            self.given_up = True
            if self._connection is not None:
                with contextlib.suppress(OSError, psycopg.Error):
                    with socket.socket(fileno=os.dup(self._connection.fileno())) as stream:
                        stream.shutdown(socket.SHUT_RDWR)


class Link:
    """Its methods block. Raises: StoreUnavailable, InvalidRequest, and what `work` raises."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._connection: psycopg.Connection | None = None

    def read(self, call: Call, work: Work[T]) -> T:
        return self._run(call, lambda connection: work(Facade(connection)))

    def write(self, call: Call, work: Work[T]) -> T:
        return self._run(call, lambda connection: self._transaction(connection, call.lock_milliseconds(), work))

    def migrate(self, call: Call, migrations: tuple[Migration, ...]) -> None:
        """Bring the schema up to date. Does not write, or wait for writers, when it already is."""
        latest = migrations[-1].version

        def work(connection: psycopg.Connection) -> None:
            if checked_version(Facade(connection), str(self._place), latest, _FIND_VERSIONS) != latest:
                connection.execute("SET statement_timeout = 0")
                self._transaction(
                    connection,
                    call.lock_milliseconds(),
                    lambda facade: add_later(facade, str(self._place), migrations, _FIND_VERSIONS, in_dialect),
                )
                connection.execute(f"SET statement_timeout = {STATEMENT_SECONDS * 1000}".encode())

        self._run(call, work)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _run(self, call: Call, act: Callable[[psycopg.Connection], T]) -> T:
        attempt = 0
        while True:
            attempt += 1
            is_old = self._connection is not None
            connection = self._connection = self._connection or self._opened()
            try:
                with call.using(connection):
                    return act(connection)
            except psycopg.Error as error:
                lost = is_lost(error) or connection.closed
                # A connection may have broken while nobody used it. Nothing was committed, so a new one may try.
                again = is_old if lost else error.sqlstate in _AGAIN and attempt < ATTEMPTS
                if lost:
                    self.close()
                if call.given_up or not again:
                    raise self._place.failure(error) from error
                if not lost:
                    time.sleep(random.uniform(0, 0.01 * 2**attempt))
            except UnicodeEncodeError as error:
                raise failures.no_text(error) from error

    def _transaction(self, connection: psycopg.Connection, lock_milliseconds: int, work: Work[T]) -> T:
        begin = f"BEGIN; SET LOCAL lock_timeout = {lock_milliseconds}; SELECT pg_advisory_xact_lock({WRITE_LOCK})"
        try:
            connection.execute(begin.encode(), prepare=False)
            result = work(Facade(connection))
        except BaseException:
            with contextlib.suppress(psycopg.Error):  # what failed first is what counts
                connection.execute("ROLLBACK")
            if connection.info.transaction_status != TransactionStatus.IDLE:
                self.close()
            raise
        try:
            done = connection.execute("COMMIT")
        except psycopg.Error as error:
            if is_lost(error) or connection.closed:
                self.close()
                raise self._place.uncertain() from error
            raise
        if done.statusmessage != "COMMIT":  # what PostgreSQL says when a failed statement was passed over
            raise RuntimeError(f"a transaction ended with {done.statusmessage}")
        return result

    def _opened(self) -> psycopg.Connection:
        try:
            connection = psycopg.connect(autocommit=True, **{**_DEFAULTS, **self._place.conninfo})
        except psycopg.Error as error:
            raise self._place.unreachable(error) from error
        try:
            limit = STATEMENT_SECONDS * 1000
            connection.execute(
                # A server of ours that stops in the middle must not keep the lock from the others.
                f"SET statement_timeout = {limit}; SET idle_in_transaction_session_timeout = {limit};"
                " SET default_transaction_isolation = 'read committed'".encode(),
                prepare=False,
            )
        except psycopg.Error as error:
            connection.close()
            raise self._place.unreachable(error) from error
        return connection
