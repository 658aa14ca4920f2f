"""Calls with an Idempotency-Key: once each, and bounded for each tenant by itself."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from hutch.model.errors import IdempotencyConflict, PoolExhausted
from hutch.server import calls
from hutch.server.calls import Calls


class Outcome(dict[str, str]):
    """Of a kind that can be counted."""


class Counted:
    def __init__(self, size: int = 0) -> None:
        self.ran: dict[str, int] = {}
        self._size = size

    def of(self, name: str) -> Callable[[], Awaitable[dict[str, str]]]:
        async def work() -> dict[str, str]:
            self.ran[name] = self.ran.get(name, 0) + 1
            await asyncio.sleep(0)
            return Outcome(stdout="x" * self._size)

        return work


async def once(made: Calls, work: Counted, tenant: str, key: str) -> None:
    await made.once(tenant, key, "asked", work.of(f"{tenant} {key}"))  # type: ignore[arg-type]


def test_the_same_key_is_carried_out_once_and_belongs_to_its_request() -> None:
    async def test() -> None:
        made, work = Calls(), Counted()
        await asyncio.gather(*(once(made, work, "a", "k") for _ in range(10)))
        await once(made, work, "b", "k")
        assert work.ran == {"a k": 1, "b k": 1}
        with pytest.raises(IdempotencyConflict):
            await made.once("a", "k", "something else", work.of("never"))  # type: ignore[arg-type]

    asyncio.run(test())


@pytest.mark.parametrize("bound", ["number", "bytes"])
def test_one_tenant_pushes_out_its_own_oldest_only(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    if bound == "number":
        monkeypatch.setattr(calls, "REMEMBERED_AT_MOST", 5)
    else:
        monkeypatch.setattr(calls, "REMEMBERED_BYTES", 5 * 101_100)

    async def test() -> None:
        made, work = Calls(), Counted(100_000)
        await once(made, work, "quiet", "k")
        for number in range(20):
            await once(made, work, "loud", f"k{number}")
        await once(made, work, "quiet", "k")
        await once(made, work, "loud", "k19")
        await once(made, work, "loud", "k15")
        assert set(work.ran.values()) == {1}
        await once(made, work, "loud", "k0")
        assert work.ran["loud k0"] == 2
        gc.collect()
        kept = [one for one in gc.get_objects() if type(one) is Outcome]
        assert len(kept) <= 7  # nothing else holds what was forgotten

    asyncio.run(test())


def test_what_may_be_tried_again_and_what_is_old_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "REMEMBERED_SECONDS", 0.05)

    async def full() -> None:
        raise PoolExhausted("full")

    async def test() -> None:
        made, work = Calls(), Counted()
        with pytest.raises(PoolExhausted):
            await made.once("a", "k", "asked", full)
        await once(made, work, "a", "k")
        await asyncio.sleep(0.2)
        assert made._tenants == {}

    asyncio.run(test())
