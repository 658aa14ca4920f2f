"""The audit trail: rows that are only added, and after a while dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from hutch.model.audit import AuditFilter
from hutch.store.database import Connection, Database
from hutch.store.rows import storable

ENTRIES_KEPT = 1_000_000
_VALUES = "at, tenant, key_id, user_id, action, sandbox_id, detail, outcome, exit_code, duration_ms"


@dataclass(frozen=True, slots=True)
class AuditRecord:
    at: float
    tenant: str
    key_id: str
    user_id: str
    action: str
    sandbox_id: str
    detail: str
    outcome: str
    exit_code: int | None
    duration_ms: float


class AuditStore:
    """All methods: Raises StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, records: Sequence[AuditRecord]) -> None:
        rows = [
            [storable(value) if isinstance(value, str) else value for value in astuple(record)] for record in records
        ]

        def work(connection: Connection) -> None:
            connection.executemany(f"INSERT INTO audit ({_VALUES}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            newest = connection.execute("SELECT max(entry_id) FROM audit").fetchone()[0] or 0
            connection.execute("DELETE FROM audit WHERE entry_id <= ?", (newest - ENTRIES_KEPT,))

        if rows:
            await self._database.write(work)

    async def latest(self, wanted: AuditFilter) -> list[tuple[int, AuditRecord]]:
        """The latest rows with their numbers, the newest first."""
        conditions = {
            "tenant = ?": wanted.tenant,
            "sandbox_id = ?": wanted.sandbox_id,
            "key_id = ?": wanted.key_id,
            "user_id = ?": wanted.user_id,
            "action = ?": wanted.action,
            "outcome <> ?": "ok" if wanted.failed else None,
            "entry_id < ?": wanted.before,
            "entry_id > ?": wanted.after,
        }
        given = {condition: value for condition, value in conditions.items() if value is not None}
        where = f"WHERE {' AND '.join(given)} " if given else ""
        query = f"SELECT entry_id, {_VALUES} FROM audit {where}ORDER BY entry_id DESC LIMIT ?"

        def work(connection: Connection) -> list[tuple[int, AuditRecord]]:
            rows = connection.execute(query, (*given.values(), wanted.limit)).fetchall()
            return [(row[0], AuditRecord(*row[1:])) for row in rows]

        return await self._database.read(work)
