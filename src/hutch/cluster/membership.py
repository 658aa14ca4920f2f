"""A worker's part in the cluster: it renews its announcement, and lets go of what others took over meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from hutch.cluster.registry import HEARTBEAT_SECONDS, Announcer
from hutch.engine.assemble import Engine
from hutch.model.errors import HutchError, SettingsInvalid

log = logging.getLogger(__name__)


class Membership:
    def __init__(self, engine: Engine, announcer: Announcer, *, shared_data: bool) -> None:
        self._engine = engine
        self._shared = shared_data
        self._announcer = announcer
        self.draining = False
        self._renewing: asyncio.Task[None] | None = None

    @property
    def worker_id(self) -> str:
        return self._announcer.info.worker_id

    @contextlib.asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        """A member from `begin` on, until the end."""
        try:
            yield
        finally:
            if self._renewing is not None:
                self._renewing.cancel()
                await asyncio.gather(self._renewing, return_exceptions=True)
            with contextlib.suppress(HutchError):  # then the announcement ends by itself
                await self._announcer.leave(returning=bool(await self._engine.moving.ours()))

    async def begin(self) -> None:
        """Calls are answered from now on. Raises: SettingsInvalid when the name is taken, StoreUnavailable."""
        await self.beat()
        self._renewing = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                await self.beat()
            except HutchError as error:
                # Redis or the database is away. Sandboxes go on: who would take them over needs both.
                log.warning("heartbeat_failed code=%s reason=%s", error.code, error)
            except Exception:
                log.exception("heartbeat_failed")

    async def beat(self) -> None:
        """First what is no longer ours goes, then we say that we are there: never the other way round.

        Raises: StoreUnavailable.
        """
        lost = await self._engine.sandboxes.let_go_of_others(keep_files=self._shared)
        if lost:
            log.warning("sandboxes_taken_over count=%s", lost)
        running, spare = self._engine.sandboxes.running, self._engine.pool.spare
        if not await self._announcer.announce(running=running, spare=spare, draining=self.draining):
            raise SettingsInvalid(
                f"Another worker uses the name {self._announcer.info.worker_id!r}. Give each a WORKER_ID of its own."
            )

    async def drain(self) -> None:
        """No new sandboxes from now on."""
        self.draining = True
        with contextlib.suppress(HutchError):
            await self.beat()
