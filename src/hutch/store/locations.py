"""Which worker has which sandbox: for coordinators, and for workers that hand sandboxes over.

A sandbox changes hands by compare-and-set on worker and fence; each change makes the fence one larger, so that whoever
had it before can write nothing there any more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from hutch.model.location import Location
from hutch.store import statements
from hutch.store.database import Connection, Database
from hutch.store.rows import LOCATION_COLUMNS

_COLUMNS = ", ".join(f"b.{name}" for name in LOCATION_COLUMNS)
_LOCATION = f"SELECT {_COLUMNS} FROM sandboxes b"
_OF_SESSION = f"{_LOCATION} JOIN sessions s ON s.sandbox_id = b.sandbox_id"


class Locations:
    """Every method raises StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sandbox(self, sandbox_id: str) -> Location | None:
        return await self._one(f"{_LOCATION} WHERE b.sandbox_id = ?", sandbox_id)

    async def session(self, session_id: str) -> Location | None:
        return await self._one(f"{_OF_SESSION} WHERE s.session_id = ?", session_id)

    async def thread(self, tenant: str, thread_id: str) -> Location | None:
        return await self._one(f"{_OF_SESSION} WHERE s.tenant = ? AND s.thread_id = ?", tenant, thread_id)

    async def move(self, location: Location, worker_id: str) -> bool:
        """Give it to another worker, a spare one for removal. False: it changed hands before."""

        def work(connection: Connection) -> bool:
            changed = connection.execute(
                "UPDATE sandboxes SET worker_id = ?, fence = fence + 1,"
                " state = CASE WHEN pooled = 1 THEN 'removing' ELSE state END,"
                " deadline_at = CASE WHEN pooled = 1 THEN ? ELSE deadline_at END, pooled = 0"
                f" WHERE {statements.HELD} AND state <> 'removed'",
                (worker_id, time.time(), *_held(location)),
            )
            if changed.rowcount != 1:
                return False
            detail = f"from {location.worker_id} to {worker_id}"
            statements.add_event(connection, location.sandbox_id, "moved", location.state, location.state, detail)
            return True

        return await self._database.write(work)

    async def abandon(self, location: Location) -> bool:
        """Its files are lost: forget it with its session. False: it changed hands before."""

        def work(connection: Connection) -> bool:
            return statements.delete_sandbox(connection, _held(location), "abandoned")

        return await self._database.write(work)

    async def left_behind(self, alive: Sequence[str], now: float) -> list[Location]:
        """Sandboxes of workers that are not `alive` which are due by now, or which nobody uses yet."""
        others = f"b.worker_id NOT IN ({', '.join('?' * len(alive))}) AND " if alive else ""
        query = f"{_LOCATION} WHERE {others}(b.deadline_at <= ? OR b.pooled = 1) ORDER BY b.sandbox_id LIMIT 1000"

        def work(connection: Connection) -> list[Location]:
            return [Location(*row) for row in connection.execute(query, (*alive, now))]

        return await self._database.read(work)

    async def _one(self, query: str, *values: Any) -> Location | None:
        def work(connection: Connection) -> Location | None:
            row = connection.execute(query, values).fetchone()
            return None if row is None else Location(*row)

        return await self._database.read(work)


def _held(location: Location) -> statements.Held:
    return location.sandbox_id, location.worker_id, location.fence
