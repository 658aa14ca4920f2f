"""A PostgreSQL database: one connection that writes, a few that read, each in a thread.

psycopg's plain connections block, so they never run on the event loop. One writer is enough: the writers of all servers
take turns anyway, and a reader never waits for them.
"""

from __future__ import annotations

import asyncio
import os
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from hutch.model.errors import ClientClosed
from hutch.store import failures
from hutch.store.database import BUSY_SECONDS, Connection, Dialect, Work
from hutch.store.postgres_link import STATEMENT_SECONDS, Call, Link
from hutch.store.postgres_words import Place
from hutch.store.schema import read_migrations

T = TypeVar("T")

READERS = 3
CLAIMS = 0x68757463  # the letters "hutc"
# The machine that held a claim may have gone without a word; the server asks for it sooner than it would by itself.
_NOTICE_THE_DEAD = ("tcp_keepalives_idle = 6", "tcp_keepalives_interval = 3", "tcp_keepalives_count = 3")
MIGRATE_SECONDS = 300.0


class PostgresDatabase:
    """A `Database`. Use `open`."""

    dialect: Dialect = "postgresql"

    def __init__(self, place: Place, busy_seconds: float) -> None:
        self._place = place
        self._busy_seconds = busy_seconds
        self._writer = Link(place)
        self._claims = Link(place)  # a claim lasts as long as its connection
        self._idle: queue.SimpleQueue[Link] = queue.SimpleQueue()
        for _ in range(READERS):
            self._idle.put(Link(place))
        self._writing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hutch-store-write")
        self._reading = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="hutch-store-read")
        self._calls: set[Call] = set()
        self._process_id = os.getpid()
        self._closed = False

    @classmethod
    async def open(cls, url: str, *, busy_seconds: float = BUSY_SECONDS) -> PostgresDatabase:
        """Connect, and bring the schema up to date.

        Raises: StoreUnavailable.
        """
        database = cls(Place(url), busy_seconds)
        try:
            await database._run(
                database._writing,
                lambda call: database._writer.migrate(call, read_migrations()),
                Call(MIGRATE_SECONDS),
                MIGRATE_SECONDS,
            )
        except BaseException:
            database._end(wait=False)
            raise
        return database

    async def read(self, work: Work[T]) -> T:
        """Run `work` without a lock."""

        def act(call: Call) -> T:
            link = self._idle.get()
            try:
                return link.read(call, work)
            finally:
                self._idle.put(link)

        return await self._run(self._reading, act, Call(self._busy_seconds), self._longest())

    async def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction, begun with the lock that all writers take."""
        return await self._run(
            self._writing, lambda call: self._writer.write(call, work), Call(self._busy_seconds), self._longest()
        )

    async def claim(self, name: str) -> bool:
        """By a lock of the session: one that was lost with its connection (PostgreSQL restarted) is not taken again."""

        def work(connection: Connection) -> bool:
            for setting in _NOTICE_THE_DEAD:
                connection.execute(f"SET {setting}")
            held = connection.execute("SELECT pg_try_advisory_lock(?, hashtext(?))", (CLAIMS, name)).fetchone()
            return bool(held[0])

        call = Call(self._busy_seconds)
        return await self._run(self._reading, lambda call: self._claims.read(call, work), call, self._longest())

    async def aclose(self) -> None:
        """Close after the calls already made, each of which ends by itself. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        if self._process_id != os.getpid():
            return  # connections and threads belong to the process we were forked from
        ending = asyncio.create_task(asyncio.to_thread(self._end, wait=True))
        _, late = await asyncio.wait({ending}, timeout=self._longest())
        if late:
            for call in tuple(self._calls):
                call.give_up()
        await asyncio.shield(ending)

    def _longest(self) -> float:
        return self._busy_seconds + STATEMENT_SECONDS

    async def _run(self, threads: ThreadPoolExecutor, act: Callable[[Call], T], call: Call, longest: float) -> T:
        if self._closed:
            raise ClientClosed("The store is closed.")
        if self._process_id != os.getpid():  # the threads did not survive the fork: a call would wait for ever
            raise failures.forked(str(self._place))
        future = threads.submit(act, call)
        self._calls.add(call)
        future.add_done_callback(lambda _: self._calls.discard(call))
        try:
            async with asyncio.timeout(longest):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            call.give_up()
            raise self._place.slow(longest) from error
        except asyncio.CancelledError:  # it may go on, but not for ever
            asyncio.get_running_loop().call_later(longest, call.give_up)
            raise

    def _end(self, *, wait: bool) -> None:
        # In the threads that use them, and so after the calls already made.
        self._writing.submit(self._writer.close)
        self._writing.submit(self._claims.close)
        for _ in range(READERS):
            self._reading.submit(lambda: self._idle.get().close())
        self._writing.shutdown(wait=wait)
        self._reading.shutdown(wait=wait)
