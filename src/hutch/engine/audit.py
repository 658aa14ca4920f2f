"""The audit trail, off the hot path: rows are collected and written together, at most a tenth of a second later."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from hutch.model.audit import AuditEntry, AuditFilter, redacted
from hutch.model.clock import iso
from hutch.model.errors import HutchError, InvalidRequest
from hutch.store.audit import AuditRecord, AuditStore

FLUSH_SECONDS = 0.1
WAITING_AT_MOST = 10_000  # rows, while the store cannot be written; then the oldest are dropped, and that is logged
MOST_LISTED = 1000

log = logging.getLogger(__name__)


class Audit:
    def __init__(self, store: AuditStore) -> None:
        self._store = store
        self._waiting: list[AuditRecord] = []
        self._writer: asyncio.Task[None] | None = None

    def add(
        self,
        *,
        tenant: str,
        key_id: str,
        action: str,
        user_id: str = "",
        sandbox_id: str = "",
        detail: str = "",
        outcome: str = "ok",
        exit_code: int | None = None,
        duration_ms: float = 0.0,
    ) -> None:
        """Of the loop's thread only. What looks like a secret is never written."""
        detail = redacted(detail)
        record = AuditRecord(
            time.time(), tenant, key_id, user_id, action, sandbox_id, detail, outcome, exit_code, round(duration_ms, 3)
        )
        if len(self._waiting) >= WAITING_AT_MOST:
            del self._waiting[: WAITING_AT_MOST // 10]
            log.error("audit_dropped rows=%s reason=the store cannot be written", WAITING_AT_MOST // 10)
        self._waiting.append(record)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_soon())

    async def _write_soon(self) -> None:
        while self._waiting:
            await asyncio.sleep(FLUSH_SECONDS)
            try:
                await self.flush()
            except HutchError as error:
                log.warning("audit_late code=%s reason=%s", error.code, error)
                await asyncio.sleep(1)

    async def flush(self) -> None:
        """Raises: StoreUnavailable; what could not be written waits on."""
        rows, self._waiting = self._waiting, []
        try:
            await self._store.add(rows)
        except BaseException:
            self._waiting = rows + self._waiting
            raise

    async def list(self, wanted: AuditFilter) -> list[AuditEntry]:
        """The latest entries, the newest first. Raises: InvalidRequest, StoreUnavailable."""
        if not 0 < wanted.limit <= MOST_LISTED:
            raise InvalidRequest(f"limit is from 1 to {MOST_LISTED}, not {wanted.limit}.")
        await self.flush()
        return [_entry(number, record) for number, record in await self._store.latest(wanted)]

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writer
        with contextlib.suppress(HutchError):
            await self.flush()


def _entry(number: int, record: AuditRecord) -> AuditEntry:
    return {
        "entry_id": number,
        "at": iso(record.at),
        "tenant": record.tenant,
        "key_id": record.key_id,
        "user_id": record.user_id,
        "action": record.action,
        "sandbox_id": record.sandbox_id,
        "detail": record.detail,
        "outcome": record.outcome,
        "exit_code": record.exit_code,
        "duration_ms": record.duration_ms,
    }
