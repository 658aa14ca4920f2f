"""What a coordinator has: the shared database, Redis, and who is where."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from hutch.cluster.leases import Places
from hutch.cluster.locate import Locator
from hutch.cluster.registry import Registry, connect_redis
from hutch.engine.access import Access, access_to
from hutch.engine.drive.assemble import Drives, open_drives
from hutch.model.errors import HutchError
from hutch.settings import Settings
from hutch.store.database import open_database
from hutch.store.locations import Locations

BURY_SECONDS = 30.0  # between two looks at what dead workers left behind

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Desk:
    access: Access
    registry: Registry
    locator: Locator
    drive: Drives


@contextlib.asynccontextmanager
async def open_desk(database_url: str, redis_url: str, settings: Settings, *, shared_data: bool) -> AsyncIterator[Desk]:
    """Raises: StoreUnavailable."""
    async with contextlib.AsyncExitStack() as ends:
        database = await open_database(database_url)
        ends.push_async_callback(database.aclose)
        redis = connect_redis(redis_url)
        ends.push_async_callback(redis.aclose)
        access = access_to(database)
        ends.push_async_callback(access.audit.close)
        drive = open_drives(settings, database)
        ends.push_async_callback(drive.close)
        registry = Registry(redis)
        locator = Locator(Locations(database), registry, Places(redis), shared_data=shared_data)
        await registry.refresh()
        await ends.enter_async_context(registry.watching())
        burying = asyncio.create_task(_bury(locator))
        ends.callback(burying.cancel)
        yield Desk(access, registry, locator, drive)


async def _bury(locator: Locator) -> None:
    while True:
        await asyncio.sleep(BURY_SECONDS)
        try:
            if count := await locator.bury_left_behind():
                log.info("left_behind_buried count=%s", count)
        except HutchError as error:
            log.warning("left_behind_waits code=%s reason=%s", error.code, error)
        except Exception:
            log.exception("left_behind_failed")
