"""Rules and requests of sandboxes that may reach hosts. The rules are kept with their secrets: they must be there after
a restart, on whichever worker has the sandbox then. Whoever can read the database can read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from hutch.model.egress import LOG_KEPT
from hutch.store.database import Connection, Database
from hutch.store.rows import storable

Documents = list[dict[str, Any]]  # of rules, as `model.egress.rule_document` makes them
_COLUMNS = "sandbox_id, at, method, host, port, verdict, rule, reason, status, sent_bytes, received_bytes, duration_ms"


@dataclass(frozen=True, slots=True)
class RulesRecord:
    rules: Documents
    revision: int = 0
    in_force: int = 0


@dataclass(frozen=True, slots=True)
class RequestRecord:
    sandbox_id: str
    at: float
    method: str
    host: str
    port: int
    verdict: str
    rule: str
    reason: str
    status: int | None
    sent_bytes: int
    received_bytes: int
    duration_ms: float


class EgressStore:
    """All methods: Raises StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def rules(self, sandbox_id: str) -> RulesRecord:
        return await self._database.read(lambda connection: _rules(connection, sandbox_id))

    async def change(self, sandbox_id: str, change: Callable[[Documents], Documents]) -> RulesRecord | None:
        """None when there is no such sandbox (any more): secrets of one that is gone would stay for ever."""

        def work(connection: Connection) -> RulesRecord | None:
            there = connection.execute(
                "SELECT 1 FROM sandboxes WHERE sandbox_id = ? AND state NOT IN ('removing', 'removed')", (sandbox_id,)
            ).fetchone()
            if there is None:
                return None
            before = _rules(connection, sandbox_id)
            after = RulesRecord(change(before.rules), before.revision + 1, before.in_force)
            connection.execute(
                "INSERT INTO egress_rules (sandbox_id, rules, revision, in_force) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (sandbox_id) DO UPDATE SET rules = excluded.rules, revision = excluded.revision",
                (sandbox_id, json.dumps(after.rules), after.revision, after.in_force),
            )
            return after

        return await self._database.write(work)

    async def revisions(self, worker_id: str) -> dict[str, int]:
        """Of all sandboxes of a worker that have, or had, rules."""
        query = (
            "SELECT r.sandbox_id, r.revision FROM egress_rules r JOIN sandboxes b ON b.sandbox_id = r.sandbox_id"
            " WHERE b.worker_id = ?"
        )
        return await self._database.read(lambda connection: dict(connection.execute(query, (worker_id,)).fetchall()))

    async def now_in_force(self, sandbox_id: str, revision: int) -> None:
        def work(connection: Connection) -> None:
            connection.execute(
                "UPDATE egress_rules SET in_force = ? WHERE sandbox_id = ? AND in_force < ?",
                (revision, sandbox_id, revision),
            )

        await self._database.write(work)

    async def note(self, requests: Sequence[RequestRecord]) -> None:
        """Of each sandbox the latest are kept; those of one that is gone are dropped."""
        insert = f"INSERT INTO egress_log ({_COLUMNS}) VALUES ({', '.join('?' * 12)})"
        names = {one.sandbox_id for one in requests}
        find = f"SELECT sandbox_id FROM sandboxes WHERE sandbox_id IN ({', '.join('?' * len(names))})"

        def work(connection: Connection) -> None:
            there = {row[0] for row in connection.execute(find, tuple(names))}
            connection.executemany(insert, [_storable(one) for one in requests if one.sandbox_id in there])
            for sandbox_id in there:
                connection.execute(
                    "DELETE FROM egress_log WHERE sandbox_id = ? AND record_id <= (SELECT record_id FROM egress_log"
                    " WHERE sandbox_id = ? ORDER BY record_id DESC LIMIT 1 OFFSET ?)",
                    (sandbox_id, sandbox_id, LOG_KEPT),
                )

        await self._database.write(work)

    async def noted(self, sandbox_id: str, after: int, limit: int) -> list[tuple[int, RequestRecord]]:
        """The latest `limit` of those with a larger number than `after`, the oldest first."""
        query = (
            f"SELECT record_id, {_COLUMNS} FROM egress_log WHERE sandbox_id = ? AND record_id > ?"
            " ORDER BY record_id DESC LIMIT ?"
        )

        def work(connection: Connection) -> list[tuple[int, RequestRecord]]:
            rows = connection.execute(query, (sandbox_id, after, limit)).fetchall()
            return [(row[0], RequestRecord(*row[1:])) for row in reversed(rows)]

        return await self._database.read(work)


def _rules(connection: Connection, sandbox_id: str) -> RulesRecord:
    row = connection.execute(
        "SELECT rules, revision, in_force FROM egress_rules WHERE sandbox_id = ?", (sandbox_id,)
    ).fetchone()
    return RulesRecord([]) if row is None else RulesRecord(json.loads(row[0]), row[1], row[2])


def _storable(one: RequestRecord) -> tuple[Any, ...]:
    return tuple(storable(value) if isinstance(value, str) else value for value in astuple(one))
