"""The requests of sandboxes, written down together a moment later. What floods is cut to what is kept anyway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict, deque

from hutch.model.clock import iso
from hutch.model.egress import LOG_KEPT, EgressRecord
from hutch.model.errors import HutchError
from hutch.store.egress import EgressStore, RequestRecord

FLUSH_SECONDS = 0.3
PAUSE_SECONDS = 5.0  # while the store cannot be written

log = logging.getLogger(__name__)


class Notes:
    def __init__(self, store: EgressStore) -> None:
        self._store = store
        self._waiting: defaultdict[str, deque[RequestRecord]] = defaultdict(lambda: deque(maxlen=LOG_KEPT))
        self._writer: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    def add(self, record: RequestRecord) -> None:
        self._waiting[record.sandbox_id].append(record)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_soon())

    async def _write_soon(self) -> None:
        while self._waiting:
            await asyncio.sleep(FLUSH_SECONDS)
            try:
                await self._flush()
            except HutchError as error:
                log.warning("egress_log_late code=%s reason=%s", error.code, error)
                await asyncio.sleep(PAUSE_SECONDS)

    async def _flush(self) -> None:
        """Raises: StoreUnavailable; what could not be written waits on."""
        async with self._writing:
            rows = [record for records in self._waiting.values() for record in records]
            if not rows:
                return
            self._waiting.clear()
            try:
                await self._store.note(rows)
            except BaseException:
                for record in rows:
                    self._waiting[record.sandbox_id].append(record)
                raise

    async def list(self, sandbox_id: str, after: int, limit: int) -> list[EgressRecord]:
        """Raises: StoreUnavailable."""
        await self._flush()
        return [_shown(number, record) for number, record in await self._store.noted(sandbox_id, after, limit)]

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        with contextlib.suppress(HutchError):
            await self._flush()


def _shown(number: int, record: RequestRecord) -> EgressRecord:
    return {
        "record_id": number,
        "at": iso(record.at),
        "method": record.method,
        "host": record.host,
        "port": record.port,
        "verdict": record.verdict,  # type: ignore[typeddict-item]  # only what a proxy told was written
        "rule": record.rule,
        "reason": record.reason,
        "status": record.status,
        "sent_bytes": record.sent_bytes,
        "received_bytes": record.received_bytes,
        "duration_ms": record.duration_ms,
    }
