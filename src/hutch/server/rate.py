"""How often one key may call: counted in this process, or in Redis for all servers together.

While Redis is away each server counts for itself, so that running work goes on; it comes back by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from limits import RateLimitItem, parse
from limits.aio.storage import MemoryStorage
from limits.aio.storage.redis import RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter

from hutch.model.errors import RateLimited, SettingsInvalid
from hutch.model.principal import Principal

ANSWER_SECONDS = 0.25  # for Redis: a call waits no longer for it
RETRY_SECONDS = 1.0  # between two calls that look whether it is back; the others do not wait for it meanwhile
CONNECTIONS = 10_000  # more than calls at once: running out of them must not look like Redis being away

log = logging.getLogger(__name__)


class Rate:
    def __init__(self, limit: str, redis_url: str | None = None) -> None:
        """Raises: SettingsInvalid."""
        try:
            self._limit: RateLimitItem = parse(limit)
        except ValueError:
            raise SettingsInvalid(f"HUTCH_RATE={limit!r} cannot be used: write it like 600/minute.") from None
        self._own = FixedWindowRateLimiter(MemoryStorage())
        self._storage = None if redis_url is None else _redis(redis_url)
        self._shared = None if self._storage is None else FixedWindowRateLimiter(self._storage)
        self._away_until: float | None = None  # None: Redis answered when it was last asked

    @property
    def connected(self) -> bool:
        """Whether all servers count together."""
        return self._shared is not None and self._away_until is None

    async def count(self, principal: Principal) -> None:
        """Raises: RateLimited."""
        wait = None
        counted = False
        if self._shared is not None and (self._away_until is None or time.monotonic() >= self._away_until):
            if self._away_until is not None:
                self._away_until = time.monotonic() + RETRY_SECONDS  # others need not look, too
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    wait = await self._hit(self._shared, principal.key_id)
                counted = True
                self._is_back()
            except Exception as error:  # noqa: BLE001 - whatever its library raises: Redis is not to be had
                self._is_away(error)
        if not counted:
            wait = await self._hit(self._own, principal.key_id)
        if wait is not None:
            raise RateLimited(
                f"This key made more than {self._limit} calls. Wait {wait:.1f} s.", retry_after=round(wait + 0.5)
            )

    async def _hit(self, limiter: FixedWindowRateLimiter, key_id: str) -> float | None:
        """Seconds to wait, when the budget is used up."""
        if await limiter.hit(self._limit, key_id):
            return None
        window = await limiter.get_window_stats(self._limit, key_id)
        return max(0.1, window.reset_time - time.time())

    def _is_away(self, error: Exception) -> None:
        if self._away_until is None:
            # Not the error's text: it may hold the address, and that a password.
            log.warning("rate_unshared error=%s meaning=each server counts for itself", type(error).__name__)
        self._away_until = time.monotonic() + RETRY_SECONDS

    def _is_back(self) -> None:
        if self._away_until is not None:
            log.warning("rate_shared_again")
            self._away_until = None

    async def aclose(self) -> None:
        if self._storage is not None:
            bridge: Any = self._storage.bridge
            await bridge.storage.aclose()


def _redis(url: str) -> RedisStorage:
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    options: Any = {
        "socket_timeout": ANSWER_SECONDS,
        "socket_connect_timeout": ANSWER_SECONDS,
        "max_connections": CONNECTIONS,
        "retry": Retry(NoBackoff(), 0),
    }
    scheme = "async+redis+" if url.startswith("unix:") else "async+"
    return RedisStorage(scheme + url, implementation="redispy", key_prefix="hutch-rate", **options)
