"""API keys: made, looked up, revoked."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hutch.model.clock import iso
from hutch.model.errors import InvalidRequest, Unauthorized
from hutch.model.principal import SCOPES, KeyInfo, NewKey, Principal, Scope, digest, new_key, same_digest, split_key
from hutch.store.keys import KeyRecord, KeyStore

KNOWN_SECONDS = 1.0  # a revoked key works no longer than this where another process revoked it
MAX_NAME_LENGTH = 200
_KNOWN_AT_MOST = 10_000
_NO_DIGEST = digest("")  # compared with when there is no such key, so that the answer takes as long


@dataclass(frozen=True, slots=True)
class _Known:
    record: KeyRecord
    until: float


class Keys:
    def __init__(self, store: KeyStore) -> None:
        self._store = store
        self._known: dict[str, _Known] = {}
        self._used: dict[str, float] = {}

    async def authenticate(self, text: str) -> Principal:
        """Raises: Unauthorized, StoreUnavailable."""
        parts = split_key(text)
        record = await self._record(parts[0]) if parts is not None else None
        secret = parts[1] if parts is not None else ""
        matches = same_digest(digest(secret), record.digest if record is not None else _NO_DIGEST)
        if record is None or not matches or record.revoked_at is not None:
            raise Unauthorized("This API key is not known here, or was revoked. hutch keys list shows those there are.")
        self._used[record.key_id] = time.time()
        return Principal(record.key_id, record.name, record.tenant, record.scope)

    async def _record(self, key_id: str) -> KeyRecord | None:
        known = self._known.get(key_id)
        if known is not None and known.until > time.monotonic():
            return known.record
        record = await self._store.get(key_id)
        if record is None:
            self._known.pop(key_id, None)
        else:
            if len(self._known) >= _KNOWN_AT_MOST:
                self._known.clear()
            self._known[key_id] = _Known(record, time.monotonic() + KNOWN_SECONDS)
        return record

    async def create(self, name: str, tenant: str, scope: Scope) -> tuple[NewKey, KeyInfo]:
        """The key's text is shown now and never again. Raises: InvalidRequest, StoreUnavailable."""
        for what, value in (("name", name), ("tenant", tenant)):
            if not value.strip() or len(value) > MAX_NAME_LENGTH or not value.isprintable():
                raise InvalidRequest(f"A key's {what} is a printable text of 1 to {MAX_NAME_LENGTH} characters.")
        if tenant.startswith("-"):  # the pool's
            raise InvalidRequest("A tenant's name does not begin with '-'.")
        if scope not in SCOPES:
            raise InvalidRequest(f"The scope of a key is one of {', '.join(SCOPES)}.")
        made = new_key()
        record = KeyRecord(made.key_id, made.digest, name, tenant, scope, time.time())
        await self._store.add(record)
        return made, key_info(record)

    async def list(self, tenant: str | None = None) -> list[KeyInfo]:
        return [key_info(record) for record in await self._store.all(tenant)]

    async def revoke(self, key_id: str, tenant: str | None = None) -> bool:
        """False when there is none (of that tenant) that could be revoked."""
        revoked = await self._store.revoke(key_id, tenant)
        self._known.pop(key_id, None)
        return revoked

    async def flush(self) -> None:
        """Write down when keys were used."""
        used, self._used = self._used, {}
        await self._store.used(used)


def key_info(record: KeyRecord) -> KeyInfo:
    return {
        "key_id": record.key_id,
        "name": record.name,
        "tenant": record.tenant,
        "scope": record.scope,
        "created_at": iso(record.created_at),
        "last_used_at": None if record.last_used_at is None else iso(record.last_used_at),
        "revoked_at": None if record.revoked_at is None else iso(record.revoked_at),
    }
