"""Short leases on names, so that of several coordinators one decides, and the others follow what it decided."""

from __future__ import annotations

import hashlib

from redis.asyncio import Redis

from hutch.cluster.registry import redis_errors

PLACE_SECONDS = 15.0  # longer than a sandbox takes to be made and written down
_PREFIX = "hutch:place:"

# The lease ends only in the hand of who still holds it.
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class Places:
    """Which worker a thread without a sandbox is being given. Raises: StoreUnavailable."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._release = redis.register_script(_RELEASE)

    async def claim(self, tenant: str, thread_id: str, worker_id: str) -> str:
        """The worker that has the thread: `worker_id`, unless another coordinator was first."""
        name = _name(tenant, thread_id)
        with redis_errors():
            if await self._redis.set(name, worker_id, nx=True, px=round(PLACE_SECONDS * 1000)):
                return worker_id
            return str(await self._redis.get(name) or worker_id)

    async def release(self, tenant: str, thread_id: str, worker_id: str) -> None:
        """Give it up: that worker could not take it."""
        with redis_errors():
            await self._release(keys=[_name(tenant, thread_id)], args=[worker_id])


def _name(tenant: str, thread_id: str) -> str:
    # A name may be of any length and hold odd bytes. Its own length keeps ("a:b", "c") and ("a", "b:c") apart.
    text = f"{len(tenant)}:{tenant}:{thread_id}"
    return _PREFIX + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
