"""A worker that is told to end: what runs may finish, then each sandbox goes to another worker, with its files."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from typing import BinaryIO
from urllib.parse import quote

import httpx

from hutch.cluster.membership import Membership
from hutch.cluster.registry import Registry
from hutch.cluster.workers import WorkerInfo, by_preference
from hutch.engine.moving import PIECE, Moving
from hutch.model.errors import HutchError, StoreUnavailable, WorkerLost
from hutch.model.location import Location
from hutch.model.wire import unpack_error
from hutch.server.routes.handover import WORKER_TOKEN_HEADER

AT_ONCE = 4
LOOK_SECONDS = 0.1
CARRY_TIMEOUT = httpx.Timeout(60.0, connect=5.0)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Drain:
    moving: Moving
    membership: Membership
    registry: Registry
    shared_data: bool
    _stuck: set[str] = field(default_factory=set[str])
    _lost: set[str] = field(default_factory=set[str])  # heirs that went while they took one

    async def run(self, seconds: float) -> int:
        """Empty this worker. Running commands have `seconds`; then their sandboxes go, too. How many could not go.

        Raises: StoreUnavailable.
        """
        await self.membership.drain()
        deadline = time.monotonic() + seconds
        while True:
            ours = [one.sandbox_id for one in await self.moving.ours() if one.sandbox_id not in self._stuck]
            over = time.monotonic() >= deadline
            ready = [sandbox_id for sandbox_id in ours if over or self.moving.idle(sandbox_id)]
            for start in range(0, len(ready), AT_ONCE):
                await asyncio.gather(*(self._move(sandbox_id) for sandbox_id in ready[start : start + AT_ONCE]))
            if not ours or over:
                return len(self._stuck)
            await asyncio.sleep(LOOK_SECONDS)

    async def _move(self, sandbox_id: str) -> None:
        while (heir := await self._heir()) is not None:
            try:
                if self.shared_data:
                    await self.moving.give(sandbox_id, heir.worker_id)
                else:
                    await self.moving.send(sandbox_id, Carrier(heir).carry)
                return
            except WorkerLost as error:
                log.warning("heir_lost worker=%s sandbox=%s reason=%s", heir.worker_id, sandbox_id, error)
                self._lost.add(heir.worker_id)
            except HutchError as error:
                log.warning("move_failed sandbox=%s code=%s reason=%s", sandbox_id, error.code, error)
                break
            except Exception:  # one that cannot move keeps no other from it
                log.exception("move_failed sandbox=%s", sandbox_id)
                break
        self._stuck.add(sandbox_id)

    async def _heir(self) -> WorkerInfo | None:
        try:
            view = await self.registry.refresh()
        except StoreUnavailable:
            return None
        out = {self.membership.worker_id} | self._lost
        others = [one for one in view.workers.values() if one.worker_id not in out]
        return next(iter(by_preference(others)), None)


@dataclass(frozen=True, slots=True)
class Carrier:
    """Brings archives to one worker."""

    to: WorkerInfo

    async def carry(self, location: Location, archive: BinaryIO) -> None:
        """Raises: WorkerLost, and what that worker says."""
        where = asdict(location)
        address = f"{self.to.url}/internal/sandboxes/{quote(where.pop('sandbox_id'), safe='')}"
        headers = {WORKER_TOKEN_HEADER: self.to.token}
        try:
            async with httpx.AsyncClient(timeout=CARRY_TIMEOUT, trust_env=False) as client:
                answer = await client.put(address, params=where, headers=headers, content=_pieces(archive))
                if answer.status_code != 200:
                    raise unpack_error(answer.json())
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise WorkerLost(
                f"Worker {self.to.worker_id} did not take the sandbox ({type(error).__name__}).", sent=True
            ) from error


async def _pieces(archive: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(archive.read, PIECE):
        yield piece
