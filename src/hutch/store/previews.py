"""Tokens of previews: who may look at a port. Of a token only a digest is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from hutch.store.database import Connection, Database

_COLUMNS = "token_id, digest, tenant, sandbox_id, port, created_at, expires_at, revoked_at, key_id"


@dataclass(frozen=True, slots=True)
class TokenRecord:
    token_id: str
    digest: str
    tenant: str
    sandbox_id: str
    port: int
    created_at: float
    expires_at: float
    revoked_at: float | None = None
    key_id: str = ""  # of the API key that it was made with, and ends with


class PreviewStore:
    """All methods: Raises StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, record: TokenRecord, at_most: int) -> bool:
        """False when the sandbox has `at_most` that are good already. What has expired is forgotten."""
        values = astuple(record)

        def work(connection: Connection) -> bool:
            connection.execute("DELETE FROM preview_tokens WHERE expires_at <= ?", (record.created_at,))
            good = connection.execute(
                "SELECT count(*) FROM preview_tokens WHERE sandbox_id = ? AND revoked_at IS NULL", (record.sandbox_id,)
            ).fetchone()[0]
            if good >= at_most:
                return False
            connection.execute(f"INSERT INTO preview_tokens ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            return True

        return await self._database.write(work)

    async def get(self, token_id: str) -> TokenRecord | None:
        found = await self._select("token_id = ?", (token_id,))
        return found[0] if found else None

    async def good(self, tenant: str, sandbox_id: str, now: float) -> list[TokenRecord]:
        """Those of a sandbox that open something, the oldest first."""
        where = "tenant = ? AND sandbox_id = ? AND revoked_at IS NULL AND expires_at > ? ORDER BY created_at, token_id"
        return await self._select(where, (tenant, sandbox_id, now))

    async def revoke(self, tenant: str, sandbox_id: str, port: int, token_id: str | None = None) -> list[str]:
        """Ids of what was revoked just now: one token of the port, or all of them."""
        where, values = ("", ()) if token_id is None else (" AND token_id = ?", (token_id,))

        def work(connection: Connection) -> list[str]:
            rows = connection.execute(
                "UPDATE preview_tokens SET revoked_at = ?"
                f" WHERE tenant = ? AND sandbox_id = ? AND port = ? AND revoked_at IS NULL{where} RETURNING token_id",
                (time.time(), tenant, sandbox_id, port, *values),
            ).fetchall()
            return [row[0] for row in rows]

        return await self._database.write(work)

    async def _select(self, where: str, values: Sequence[Any]) -> list[TokenRecord]:
        def work(connection: Connection) -> list[TokenRecord]:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM preview_tokens WHERE {where}", values)
            return [TokenRecord(*row) for row in rows]

        return await self._database.read(work)
