from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path

import pytest

from hutch.model.errors import ClientClosed, InvalidRequest, SandboxNotFound, StoreUnavailable
from hutch.model.session import DeadlineAction, SandboxState
from hutch.store import statements
from hutch.store.records import Bound
from hutch.store.store import Store
from tests.contract.store_records import opened, place, sandbox, session, with_store

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("each_database")]


def test_everything_written_is_read_again_by_a_new_store(tmp_path: Path) -> None:
    strange = replace(
        sandbox(1),
        host_uid=4_000_000_000,
        cwd="/workspace/new\nline \udcff é",
        env={"A": "1", "EMPTY": "", "TEXT": "zwölf\n'\"\x00", "BYTES": "\udc80"},
        deadline_at=math.inf,
        deadline_action="stop",
        created_at=1763500000.1234567,
    )
    leased = replace(session(1, "thread %s ? '; DROP TABLE sessions; --"), shared=True)

    async def write() -> None:
        async with opened(tmp_path) as store:
            assert await store.bind_session(leased, strange) == (leased, strange, True)

    async def read() -> None:
        async with opened(tmp_path) as store:
            pair = Bound(leased, strange)
            assert await store.session_by_thread("acme", leased.thread_id) == pair
            assert await store.session("session-1") == pair
            assert await store.session_of_sandbox("sb1") == pair
            assert await store.sandbox("sb1") == strange
            assert await store.sandboxes() == [strange]
            assert await store.sessions() == [pair]
            assert await store.taken_uids() == {4_000_000_000}

    asyncio.run(write())
    asyncio.run(read())


def test_what_is_not_there(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        assert await store.session_by_thread("acme", "t") is None
        assert await store.session("s") is None
        assert await store.session_of_sandbox("sb1") is None
        assert await store.sandbox("sb1") is None
        assert await store.sandboxes() == []
        assert await store.sandboxes(states=[]) == []
        assert await store.sessions() == []
        assert await store.events("sb1") == []
        assert await store.due(1e12) == []
        assert await store.take_pooled("bash") is None
        assert await store.taken_uids() == frozenset()
        assert not await store.transition("sb1", "running", "stopped", "died")
        assert not await store.rearm("sb1", 1.0, 2.0, "stop")
        assert not await store.remove("sb1")
        await store.touch({})
        await store.touch({"sb1": (1.0, 2.0, "stop")})
        with pytest.raises(SandboxNotFound):
            await store.set_context("sb1", "/workspace", {})

    with_store(tmp_path, test)


def test_a_transition_is_made_by_one_and_told_by_an_event(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        await store.add_sandbox(sandbox(1))
        assert not await store.transition("sb1", "running", "stopped", "stopped")
        won = await asyncio.gather(
            *(store.transition("sb1", "creating", "running", "started", deadline_at=5.0) for _ in range(20))
        )
        assert sum(won) == 1
        assert await store.transition("sb1", "running", "stopped", "died", deadline_action="stop", detail="x" * 9000)
        after = await store.sandbox("sb1")
        assert after == replace(sandbox(1), state="stopped", deadline_at=5.0, deadline_action="stop")
        events = await store.events("sb1")
        steps = [(one.event, one.from_state, one.to_state) for one in events]
        assert steps == [
            ("created", "creating", "creating"),
            ("started", "creating", "running"),
            ("died", "running", "stopped"),
        ]
        assert len(events[-1].detail) == 2000
        assert [one.event for one in await store.events("sb1", limit=1)] == ["died"]
        assert events[0].at <= events[1].at <= events[2].at

    with_store(tmp_path, test)


def test_context_is_kept(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        await store.add_sandbox(sandbox(1))
        await store.set_context("sb1", "/workspace/a", {"B": "2"})
        assert await store.sandbox("sb1") == replace(sandbox(1), cwd="/workspace/a", env={"B": "2"})

    with_store(tmp_path, test)


def test_activity_never_goes_back_and_does_not_disturb_an_end(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        for number in range(3):
            await store.add_sandbox(sandbox(number, state="running"))
        await store.transition("sb2", "running", "removing", "expire")
        news: dict[str, tuple[float, float, DeadlineAction]] = {f"sb{n}": (1500.0, 3300.0, "stop") for n in range(3)}
        await store.touch({**news, "sb1": (900.0, 9999.0, "stop"), "unknown": (1.0, 1.0, "stop")})
        moved, stale, going = await store.sandboxes()
        assert (moved.last_activity_at, moved.deadline_at, moved.deadline_action) == (1500.0, 3300.0, "stop")
        assert stale == sandbox(1, state="running")
        assert going == sandbox(2, state="removing")
        await store.touch({"sb0": (1500.0, 3600.0, "remove")})  # no newer activity, but something runs: later deadline
        assert (await store.sandboxes())[0].deadline_at == 3600.0

    with_store(tmp_path, test)


def test_due_sandboxes_come_by_deadline(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        for number in (3, 1, 2):
            await store.add_sandbox(sandbox(number, state="running"))
        await store.add_sandbox(replace(sandbox(4), deadline_at=math.inf))
        await store.transition("sb1", "running", "removing", "expire")  # begun, and to be found again after a crash
        assert [one.sandbox_id for one in await store.due(2002.0)] == ["sb1", "sb2"]
        assert [one.sandbox_id for one in await store.due(1e12)] == ["sb1", "sb2", "sb3"]
        assert await store.due(2000.9) == []

    with_store(tmp_path, test)


def test_a_deadline_is_moved_by_who_knows_it(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        await store.add_sandbox(replace(sandbox(1, state="running"), deadline_at=0.1 + 0.2))
        assert not await store.rearm("sb1", 0.3, 50.0, "stop")
        assert await store.rearm("sb1", 0.1 + 0.2, 50.0, "stop")
        assert not await store.rearm("sb1", 0.1 + 0.2, 60.0, "stop")
        after = await store.sandbox("sb1")
        assert after is not None
        assert (after.deadline_at, after.deadline_action) == (50.0, "stop")

    with_store(tmp_path, test)


def test_events_are_bounded_in_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "EVENTS_KEPT", 20)

    async def test(store: Store) -> None:
        await store.add_sandbox(sandbox(1, state="running"))
        for _ in range(30):
            await store.transition("sb1", "running", "stopped", "stopped")
            await store.transition("sb1", "stopped", "running", "started")
        assert len(await store.events("sb1", limit=1000)) == 20

    with_store(tmp_path, test)


def test_states_are_asked_for_by_name(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        states: list[SandboxState] = ["creating", "running", "stopped", "removing", "removed"]
        for number, state in enumerate(states):
            await store.add_sandbox(sandbox(number, state=state))
        assert [one.state for one in await store.sandboxes(states=["running", "removing"])] == ["running", "removing"]
        assert [one.state for one in await store.sandboxes(states=["running"], tenant="other")] == []

    with_store(tmp_path, test)


def test_text_that_cannot_be_written_is_the_callers_mistake(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        with pytest.raises(InvalidRequest, match="Unicode"):
            await store.bind_session(session(1, "lone \ud800"), sandbox(1))
        with pytest.raises(InvalidRequest, match="Unicode"):
            await store.session_by_thread("acme", "lone \ud800")
        assert await store.sandboxes() == []

    with_store(tmp_path, test)


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        store = await Store.open(place(tmp_path))
        await store.aclose()
        await store.aclose()
        with pytest.raises(ClientClosed):
            await store.sandboxes()

    asyncio.run(run())


def test_a_failed_write_leaves_nothing_behind_and_the_next_works(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        broken = replace(sandbox(1), deadline_at=math.nan)  # stored as NULL, which no deadline may be
        with pytest.raises(StoreUnavailable):
            await store.bind_session(session(1, "t"), broken)
        assert await store.sandboxes() == []
        assert (await store.bind_session(session(1, "t"), sandbox(1))).created

    with_store(tmp_path, test)


def test_a_cancelled_open_closes_what_it_opened(tmp_path: Path) -> None:
    async def run() -> None:
        for _ in range(10):
            opening = asyncio.create_task(Store.open(place(tmp_path)))
            await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        await asyncio.sleep(0.2)
        async with opened(tmp_path):
            pass

    asyncio.run(run())  # a connection left open is a ResourceWarning, and warnings are errors


def test_thousands_of_sandboxes(tmp_path: Path) -> None:
    count = 10_000 if isinstance(place(tmp_path), Path) else 2_000

    async def test(store: Store) -> None:
        for start in range(0, count, 500):
            numbers = range(start, start + 500)
            await asyncio.gather(
                *(store.bind_session(session(n, f"t{n}"), replace(sandbox(n), host_uid=100_000 + n)) for n in numbers)
            )
        assert len(await store.sandboxes()) == count
        assert len(await store.sessions("acme")) == count
        assert len(await store.taken_uids()) == count
        assert len(await store.due(1e12)) == count
        found = await store.session_by_thread("acme", "t1777")
        assert found is not None
        assert found.sandbox.host_uid == 101_777
        await store.touch({f"sb{n}": (99_999.0, 101_799.0, "remove") for n in range(count)})
        assert await store.due(101_798.0) == []
        assert await store.transition("sb1777", "creating", "running", "started")
        assert await store.remove("sb1777")
        assert len(await store.sandboxes()) == count - 1

    with_store(tmp_path, test)
