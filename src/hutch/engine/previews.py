"""Tokens of previews: made for one port of one sandbox, judged, revoked."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass

from hutch.engine.ports import check_port
from hutch.engine.sandboxes import Sandboxes
from hutch.model.clock import iso
from hutch.model.errors import InvalidRequest, LimitExceeded, StoreUnavailable, Unauthorized
from hutch.model.preview import DEFAULT_SECONDS, LONGEST_SECONDS, NewToken, PreviewInfo, new_token, split_token
from hutch.model.principal import digest, same_digest
from hutch.store.previews import PreviewStore, TokenRecord

KNOWN_SECONDS = 1.0  # a revoked token works no longer than this where another process revoked it
LOOK_SECONDS = 2.0  # between two looks at the token of a connection that stays open
TOKENS_AT_MOST = 1_000  # that are good, for one sandbox
_KNOWN_AT_MOST = 10_000
_NO_DIGEST = digest("")  # compared with when there is no such token, so that the answer takes as long


@dataclass(frozen=True, slots=True)
class Admission:
    """A token that is good."""

    token_id: str
    tenant: str
    sandbox_id: str
    port: int
    expires_at: float


class Previews:
    def __init__(self, store: PreviewStore, sandboxes: Sandboxes) -> None:
        self._store = store
        self._sandboxes = sandboxes
        self._known: dict[str, tuple[TokenRecord, float]] = {}

    async def make(
        self, tenant: str, sandbox_id: str, port: int, seconds: float | None = None, *, key_id: str = ""
    ) -> tuple[NewToken, PreviewInfo]:
        """The token's text is shown now and never again. It is good no longer than the key that it was made with.

        Raises: InvalidRequest, SessionExpiredError, LimitExceeded, StoreUnavailable.
        """
        seconds = DEFAULT_SECONDS if seconds is None else seconds
        check_port(port)
        if not math.isfinite(seconds) or not 0 < seconds <= LONGEST_SECONDS:
            raise InvalidRequest(f"A preview expires after more than 0 and up to {LONGEST_SECONDS:.0f} seconds.")
        await self._sandboxes.find(tenant, sandbox_id)
        made, now = new_token(), time.time()
        record = TokenRecord(made.token_id, made.digest, tenant, sandbox_id, port, now, now + seconds, key_id=key_id)
        if not await self._store.add(record, TOKENS_AT_MOST):
            raise LimitExceeded(
                f"This sandbox has {TOKENS_AT_MOST} preview tokens that are good. Revoke some, or let them expire.",
                limit="preview_tokens",
                maximum=TOKENS_AT_MOST,
            )
        return made, _info(record)

    async def list(self, tenant: str, sandbox_id: str) -> list[PreviewInfo]:
        """Those that are good. Raises: SessionExpiredError, StoreUnavailable."""
        await self._sandboxes.find(tenant, sandbox_id)
        return [_info(record) for record in await self._store.good(tenant, sandbox_id, time.time())]

    async def revoke(self, tenant: str, sandbox_id: str, port: int, token_id: str | None = None) -> int:
        """How many were good until now, of one token or of all of a port.

        Raises: InvalidRequest, SessionExpiredError, StoreUnavailable.
        """
        check_port(port)
        await self._sandboxes.find(tenant, sandbox_id)
        revoked = await self._store.revoke(tenant, sandbox_id, port, token_id)
        for one in revoked:
            self._known.pop(one, None)
        return len(revoked)

    async def admit(self, text: str, sandbox_id: str, port: int) -> Admission:
        """Raises: Unauthorized (also for a token of another port), StoreUnavailable."""
        parts = split_token(text)
        record = await self._record(parts[0]) if parts is not None else None
        secret = parts[1] if parts is not None else ""
        matches = same_digest(digest(secret), record.digest if record is not None else _NO_DIGEST)
        if record is None or not matches or not _good(record) or (record.sandbox_id, record.port) != (sandbox_id, port):
            raise Unauthorized(
                "This preview's token is not known here, expired, was revoked, or belongs to another port. "
                f"GET /v1/sandboxes/{sandbox_id}/ports/{port} makes a new one."
            )
        return Admission(record.token_id, record.tenant, record.sandbox_id, record.port, record.expires_at)

    async def until_over(self, admission: Admission) -> None:
        """Until the token of a connection is good no more, to about two seconds."""
        while (left := admission.expires_at - time.time()) > 0:
            await asyncio.sleep(min(left, LOOK_SECONDS))
            try:
                record = await self._record(admission.token_id)
            except StoreUnavailable:
                continue  # what runs goes on; it cannot outlive the time that was given to it
            if record is None or not _good(record):
                return

    async def _record(self, token_id: str) -> TokenRecord | None:
        known = self._known.get(token_id)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        record = await self._store.get(token_id)
        if record is None:
            self._known.pop(token_id, None)
        else:
            if len(self._known) >= _KNOWN_AT_MOST:
                self._known.clear()
            self._known[token_id] = (record, time.monotonic() + KNOWN_SECONDS)
        return record


def _good(record: TokenRecord) -> bool:
    return record.revoked_at is None and record.expires_at > time.time()


def _info(record: TokenRecord) -> PreviewInfo:
    return {
        "token_id": record.token_id,
        "sandbox_id": record.sandbox_id,
        "port": record.port,
        "created_at": iso(record.created_at),
        "expires_at": iso(record.expires_at),
    }
