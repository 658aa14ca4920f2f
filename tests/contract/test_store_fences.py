"""A worker that lost a sandbox can write nothing there any more, also when it got it back meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hutch.model.errors import SandboxNotFound
from hutch.model.location import Location
from hutch.store.locations import Locations
from hutch.store.records import LOCAL_WORKER
from hutch.store.store import Store
from tests.contract.store_records import sandbox, session, with_store

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("each_database")]

FIRST = Location("sb1", "acme", "running", LOCAL_WORKER, 0)
AWAY = replace(FIRST, worker_id="w2", fence=1)
BACK = replace(FIRST, fence=2)


async def _refused(store: Store, fence: int) -> None:
    """Each way to write that names a fence."""
    assert not await store.transition("sb1", "running", "stopped", "stop", fence=fence)
    with pytest.raises(SandboxNotFound):
        await store.set_context("sb1", "/workspace/stolen", {}, fence=fence)
    assert not await store.remove("sb1", fence=fence)


def test_what_the_old_holder_writes_changes_nothing(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        locations = Locations(store._database)
        await store.bind_session(session(1, "t"), sandbox(1, state="running"))
        assert await locations.sandbox("sb1") == FIRST
        assert await locations.move(FIRST, "w2")
        assert await locations.sandbox("sb1") == AWAY
        await _refused(store, 0)
        await _refused(store, 1)  # the fence is right, but it is another's
        assert await locations.move(AWAY, LOCAL_WORKER)
        assert await locations.sandbox("sb1") == BACK
        await _refused(store, 0)  # it is ours again; who knows only the old fence was paused in between
        assert not await locations.move(FIRST, "w3")
        assert not await locations.abandon(FIRST)
        record = await store.sandbox("sb1")
        assert record is not None
        assert (record.state, record.cwd) == ("running", "/workspace")
        assert await store.transition("sb1", "running", "stopped", "stop", fence=2)
        assert await store.remove("sb1", fence=2)

    with_store(tmp_path, test)


def test_a_worker_that_comes_back_is_not_judged_by_its_earlier_life(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        locations = Locations(store._database)
        await store.bind_session(session(1, "t"), sandbox(1, state="running"))
        await store.renew_fences()
        assert not await locations.abandon(FIRST)  # by a coordinator that was frozen all the while
        assert not await locations.move(FIRST, "w2")
        await _refused(store, 0)
        assert await store.fences() == {"sb1": 1}

    with_store(tmp_path, test)
