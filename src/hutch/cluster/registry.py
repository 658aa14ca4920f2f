"""Who is there: workers announce themselves in Redis and renew that; who stops renewing is taken for dead.

A worker has two keys: `info`, which stays, and `alive`, which ends by itself. Death is told with care, since it costs
files where storage is not shared: whoever tells it must have had answers from Redis, without a gap, for longer than a
worker may be silent. A Redis that was paused, restarted or emptied thus kills nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from hutch.cluster.workers import WorkerInfo, loads
from hutch.model.errors import SettingsInvalid, StoreUnavailable

HEARTBEAT_SECONDS = 1.0
ALIVE_SECONDS = 10.0  # a worker that was not heard of for that long is dead: a busy machine may well be late by a few
ANSWER_SECONDS = 3.0  # most for one question to Redis
_PREFIX = "hutch:"
_INFOS = _PREFIX + "workers"

# One name, one worker: a start is refused while another incarnation of that name is alive. It gets the name just before
# that of a dead one runs out: in between nobody would have it, and its sandboxes would be taken for lost.
_ANNOUNCE = """
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[1] and redis.call('PTTL', KEYS[2]) > tonumber(ARGV[5]) then return 0 end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
return 1
"""
_WITHDRAW = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return end
redis.call('DEL', KEYS[2])
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], ARGV[2]) end
"""

log = logging.getLogger(__name__)


def connect_redis(url: str) -> Redis:
    """Connects at first use; a lost connection is made again by itself."""
    made: Redis = Redis.from_url(
        url,
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        decode_responses=True,
        encoding_errors="replace",  # what somebody else wrote there shall not end us
    )
    return made


@contextlib.contextmanager
def redis_errors() -> Any:
    """Raises: StoreUnavailable."""
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreUnavailable(
            f"Redis, which the servers of the cluster share, does not answer ({type(error).__name__}). "
            "Running sandboxes go on; new ones wait for it.",
            retry_after=round(ALIVE_SECONDS),
        ) from error


class Announcer:
    """A worker's side."""

    def __init__(self, redis: Redis, info: WorkerInfo) -> None:
        self._redis = redis
        self.info = replace(info, incarnation=secrets.token_hex(8), token=secrets.token_urlsafe(24))
        self._announce = redis.register_script(_ANNOUNCE)
        self._withdraw = redis.register_script(_WITHDRAW)

    @property
    def _keys(self) -> list[str]:
        return [_INFOS, f"{_PREFIX}alive:{self.info.worker_id}"]

    async def announce(self, **changed: Any) -> bool:
        """Say that we are there, and how we stand. False: somebody else has our name. Raises: StoreUnavailable."""
        self.info = replace(self.info, **changed)
        info = self.info
        with redis_errors():
            alive, last = round(ALIVE_SECONDS * 1000), round(HEARTBEAT_SECONDS * 1000)
            args: list[str | int] = [info.incarnation, alive, info.worker_id, info.dumps(), last]
            told = await self._announce(keys=self._keys, args=args)
        return bool(told)

    @contextlib.asynccontextmanager
    async def starting(self) -> AsyncIterator[None]:
        """Has our name meanwhile, and takes no sandboxes: what is cleared up at the start must be nobody else's.

        Raises: SettingsInvalid when another worker keeps it, StoreUnavailable.
        """
        await self.join(draining=True)
        task = asyncio.create_task(self._keep())
        try:
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        except BaseException:
            with contextlib.suppress(StoreUnavailable):
                await self.leave(returning=True)
            raise

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            with contextlib.suppress(StoreUnavailable):
                await self.announce()

    async def join(self, **changed: Any) -> None:
        """The first word. Who died a moment ago still has our name for a while.

        Raises: SettingsInvalid when another worker keeps it, StoreUnavailable.
        """
        deadline = time.monotonic() + ALIVE_SECONDS + HEARTBEAT_SECONDS
        while not await self.announce(**changed):
            if time.monotonic() > deadline:
                raise SettingsInvalid(
                    f"WORKER_ID={self.info.worker_id!r} cannot be used: a worker of that name runs. "
                    "Give each worker a name of its own.",
                    variable="WORKER_ID",
                )
            await asyncio.sleep(HEARTBEAT_SECONDS / 2)

    async def leave(self, *, returning: bool) -> None:
        """`returning`: sandboxes stay here, and nobody shall take them for lost at once. Raises: StoreUnavailable."""
        if returning:
            await self.announce(draining=True, ended_at=time.time())
        with redis_errors():
            keep = "1" if returning else ""
            await self._withdraw(keys=self._keys, args=[self.info.incarnation, self.info.worker_id, keep])


@dataclass(frozen=True, slots=True)
class View:
    """The workers as they were known at some time."""

    workers: Mapping[str, WorkerInfo]
    trusted: bool  # whether who is not alive here is dead: else Redis may have forgotten, or be away


NOBODY = View({}, trusted=False)


class Registry:
    """A coordinator's side: the latest view, renewed in the background."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.view = NOBODY
        self._seeds: dict[str, WorkerInfo] = {}  # by address: found by asking them, not in Redis
        self._answered_since: float | None = None  # without a gap
        self._answered_at = 0.0

    @property
    def redis_answers(self) -> bool:
        return self._answered_since is not None

    def alive(self, worker: WorkerInfo) -> bool:
        """Whether that start of it still lives, as far as is known."""
        known = self.view.workers.get(worker.worker_id)
        if known is None or not known.alive:
            return not self.view.trusted
        return known.incarnation == worker.incarnation

    async def refresh(self) -> View:
        """Raises: StoreUnavailable; then the last view stays, no longer trusted."""
        began = time.monotonic()
        try:
            with redis_errors():
                workers = await self._read()
        except Exception:
            self._answered_since = None
            self.view = View(self.view.workers, trusted=False)
            raise
        now = time.monotonic()
        if self._answered_since is None or now - self._answered_at > ALIVE_SECONDS / 2:  # we may have been paused
            self._answered_since = began
        self._answered_at = now
        self.view = View(workers, trusted=began - self._answered_since > ALIVE_SECONDS)
        return self.view

    def seeded(self, url: str, worker: WorkerInfo | None) -> None:
        """What was found when the worker at that address was asked; None: nothing."""
        if worker is None:
            self._seeds.pop(url, None)
        else:
            self._seeds[url] = worker

    async def _read(self) -> dict[str, WorkerInfo]:
        """Who registered; beside them, who was only found by asking."""
        return {worker.worker_id: worker for worker in self._seeds.values()} | await self._registered()

    async def _registered(self) -> dict[str, WorkerInfo]:
        infos = [info for text in (await self._redis.hvals(_INFOS)) if (info := loads(text)) is not None]
        if not infos:
            return {}
        holders = await self._redis.mget([f"{_PREFIX}alive:{info.worker_id}" for info in infos])
        # A holder of another incarnation has started between the two questions: to be dead is something else.
        return {
            info.worker_id: replace(info, alive=holder is not None) for info, holder in zip(infos, holders, strict=True)
        }

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Renews the view meanwhile."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            try:
                await self.refresh()
            except StoreUnavailable as error:
                log.warning("redis_away reason=%s", error)
            except Exception:
                log.exception("registry_failed")
            await asyncio.sleep(HEARTBEAT_SECONDS)
