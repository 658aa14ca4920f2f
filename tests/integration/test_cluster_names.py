"""What coordinators hold of workers that come, go, come back, or never were: on a real Redis."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from hutch.cluster import registry as registry_module
from hutch.cluster.leases import Places
from hutch.cluster.locate import RETURN_SECONDS, Locator
from hutch.cluster.registry import Announcer, Registry, View, connect_redis
from hutch.cluster.workers import WorkerInfo
from hutch.model.errors import SettingsInvalid
from hutch.model.wire import PROTOCOL
from hutch.store.database import open_database
from hutch.store.locations import Locations
from hutch.store.records import SandboxRecord
from hutch.store.store import Store
from tests.redis_rig import RunningRedis, running_redis

pytestmark = pytest.mark.once

WORKER = WorkerInfo("w1", "http://127.0.0.1:9", PROTOCOL, "1", capacity=10)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRedis]:
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


def play(server: RunningRedis, body: Callable[[Redis], Awaitable[None]]) -> None:
    async def run() -> None:
        async with connect_redis(server.url) as redis:
            await redis.flushall()
            await body(redis)

    asyncio.run(run())


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({"worker_id": "\ud800", "url": "http://x", "protocol": 1, "version": "1", "capacity": 1}).encode(),
        json.dumps({"worker_id": "w" * 1_000_000, "url": 1}).encode(),
        b"",
    ],
)
def test_what_somebody_else_wrote_hides_no_worker(redis_server: RunningRedis, text: bytes) -> None:
    async def body(redis: Redis) -> None:
        await Announcer(redis, WORKER).announce()
        await redis.hset("hutch:workers", "other", text)
        await redis.lpush("hutch:alive:other", "no text")
        view = await Registry(redis).refresh()
        assert view.workers["w1"].alive

    play(redis_server, body)


def test_a_registry_that_failed_once_goes_on(redis_server: RunningRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stumbles(Registry):
        stumbled = False

        async def _read(self) -> dict[str, WorkerInfo]:
            if not self.stumbled:
                self.stumbled = True
                raise RecursionError
            return await super()._read()

    async def body(redis: Redis) -> None:
        monkeypatch.setattr(registry_module, "HEARTBEAT_SECONDS", 0.05)
        await Announcer(redis, WORKER).announce()
        registry = Stumbles(redis)
        async with registry.watching(), asyncio.timeout(10):
            while "w1" not in registry.view.workers:
                await asyncio.sleep(0.01)

    play(redis_server, body)


def test_a_worker_that_starts_again_is_never_taken_for_dead(
    redis_server: RunningRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(redis: Redis) -> None:
        monkeypatch.setattr(registry_module, "ALIVE_SECONDS", 1.5)
        monkeypatch.setattr(registry_module, "HEARTBEAT_SECONDS", 0.5)
        assert await Announcer(redis, WORKER).announce()  # kill -9
        registry = Registry(redis)
        again = asyncio.create_task(Announcer(redis, WORKER).join())
        while not again.done():
            assert (await registry.refresh()).workers["w1"].alive
        await again
        assert (await registry.refresh()).workers["w1"].alive

    play(redis_server, body)


def test_a_name_belongs_to_one_worker(redis_server: RunningRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(redis: Redis) -> None:
        monkeypatch.setattr(registry_module, "ALIVE_SECONDS", 0.8)
        monkeypatch.setattr(registry_module, "HEARTBEAT_SECONDS", 0.2)
        registry = Registry(redis)
        async with Announcer(redis, WORKER).starting():
            with pytest.raises(SettingsInvalid):
                await Announcer(redis, WORKER).join()
            assert not (await registry.refresh()).workers["w1"].takes_more
        with pytest.raises(ZeroDivisionError):
            async with Announcer(redis, replace(WORKER, worker_id="w2")).starting():
                raise ZeroDivisionError
        failed = (await registry.refresh()).workers["w2"]
        assert not failed.alive
        assert failed.ended_at > time.time() - 10  # it may be started again: what it has is not given up

    play(redis_server, body)


@asynccontextmanager
async def _left(folder: Path, redis: Redis, **worker: Any) -> AsyncIterator[tuple[Locator, Registry, Store]]:
    """A sandbox that is due, of a worker that is not there."""
    database = await open_database(folder / "hutch.db")
    store, now = Store(database, "w1"), time.time()
    what = ("sb1", "local", "bash", "fake")
    due = SandboxRecord(*what, "running", None, "/", {}, now, now, now - 1, "stop", 600.0, False, worker_id="w1")
    await store.add_sandbox(due)
    registry = Registry(redis)
    registry.view = View({"w1": replace(WORKER, alive=False, **worker)}, trusted=True)
    try:
        yield Locator(Locations(database), registry, Places(redis), shared_data=False), registry, store
    finally:
        await store.aclose()


def test_what_a_worker_left_that_comes_back_is_not_buried(redis_server: RunningRedis, tmp_path: Path) -> None:
    async def body(redis: Redis) -> None:
        async with _left(tmp_path, redis, ended_at=time.time()) as (locator, registry, store):
            assert await locator.bury_left_behind() == 0
            assert await store.sandbox("sb1") is not None
            registry.view = View({"w1": replace(WORKER, alive=False, ended_at=time.time() - RETURN_SECONDS)}, True)
            assert await locator.bury_left_behind() == 1
            assert await store.sandbox("sb1") is None

    play(redis_server, body)


def test_the_lease_of_a_thread_is_its_own_and_small_whatever_it_is_called(redis_server: RunningRedis) -> None:
    names = [
        ("a:b", "c"),
        ("a", "b:c"),
        ("a", "\ud800"),
        ("a", "\udcff"),
        ("a", "\0"),
        ("a", ""),
        ("a", "x" * 4_000_000),
    ]

    async def body(redis: Redis) -> None:
        places = Places(redis)
        for number, name in enumerate(names):
            assert await places.claim(*name, f"w{number}") == f"w{number}"
        for number, name in enumerate(names):
            assert await places.claim(*name, "late") == f"w{number}"
        keys = await redis.keys("hutch:place:*")
        assert len(keys) == len(names)
        assert max(map(len, keys)) < 100
        await places.release(*names[0], "late")
        assert await places.claim(*names[0], "late") == "w0"
        await places.release(*names[0], "w0")
        assert await places.claim(*names[0], "late") == "late"

    play(redis_server, body)
