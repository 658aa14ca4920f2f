"""API keys: who may call. Of a key only a digest is kept."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hutch.model.principal import Scope
from hutch.store.database import Connection, Database

_COLUMNS = "key_id, digest, name, tenant, scope, created_at, last_used_at, revoked_at"


@dataclass(frozen=True, slots=True)
class KeyRecord:
    key_id: str
    digest: str
    name: str
    tenant: str
    scope: Scope
    created_at: float
    last_used_at: float | None = None
    revoked_at: float | None = None


class KeyStore:
    """All methods: Raises StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, record: KeyRecord) -> None:
        values = (record.key_id, record.digest, record.name, record.tenant, record.scope, record.created_at)

        def work(connection: Connection) -> None:
            connection.execute(
                "INSERT INTO api_keys (key_id, digest, name, tenant, scope, created_at) VALUES (?, ?, ?, ?, ?, ?)",
                values,
            )

        await self._database.write(work)

    async def get(self, key_id: str) -> KeyRecord | None:
        found = await self._select("WHERE key_id = ?", (key_id,))
        return found[0] if found else None

    async def all(self, tenant: str | None = None) -> list[KeyRecord]:
        """Of a tenant (None: of all), the oldest first, revoked ones too."""
        if tenant is None:
            return await self._select("ORDER BY created_at, key_id", ())
        return await self._select("WHERE tenant = ? ORDER BY created_at, key_id", (tenant,))

    async def revoke(self, key_id: str, tenant: str | None = None) -> bool:
        """With the previews that it opened. False: there is no such key (of that tenant), or it was revoked already."""
        now = time.time()
        where, values = ("", ()) if tenant is None else (" AND tenant = ?", (tenant,))

        def work(connection: Connection) -> bool:
            changed = connection.execute(
                f"UPDATE api_keys SET revoked_at = ? WHERE key_id = ? AND revoked_at IS NULL{where}",
                (now, key_id, *values),
            )
            if changed.rowcount != 1:
                return False
            connection.execute(
                "UPDATE preview_tokens SET revoked_at = ? WHERE key_id = ? AND revoked_at IS NULL", (now, key_id)
            )
            return True

        return await self._database.write(work)

    async def used(self, times: Mapping[str, float]) -> None:
        """When each key was last used."""
        rows = [(at, key_id) for key_id, at in times.items()]
        if rows:
            await self._database.write(
                lambda connection: connection.executemany("UPDATE api_keys SET last_used_at = ? WHERE key_id = ?", rows)
            )

    async def _select(self, rest: str, values: Sequence[Any]) -> list[KeyRecord]:
        def work(connection: Connection) -> list[KeyRecord]:
            return [KeyRecord(*row) for row in connection.execute(f"SELECT {_COLUMNS} FROM api_keys {rest}", values)]

        return await self._database.read(work)
