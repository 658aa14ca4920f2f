from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from hutch.model.errors import InvalidRequest
from hutch.store.records import HostUidTaken, SandboxTaken
from hutch.store.store import Store
from tests.contract.store_records import opened, sandbox, session, with_store

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("each_database")]


def test_a_thread_has_one_sandbox_however_many_ask_at_once(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        asked = [store.bind_session(session(n, "same"), sandbox(n)) for n in range(50)]
        answers = await asyncio.gather(*asked)
        assert sum(answer.created for answer in answers) == 1
        assert len({answer.sandbox.sandbox_id for answer in answers}) == 1
        assert len(await store.sandboxes()) == 1
        assert len(await store.sessions()) == 1

    with_store(tmp_path, test)


def test_threads_of_other_tenants_are_other_threads(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        for number, tenant in enumerate(["acme", "other"]):
            bound = await store.bind_session(session(number, "t", tenant=tenant), sandbox(number, tenant=tenant))
            assert bound.created
        assert [pair.sandbox.sandbox_id for pair in await store.sessions("other")] == ["sb1"]
        assert [one.sandbox_id for one in await store.sandboxes(tenant="acme")] == ["sb0"]

    with_store(tmp_path, test)


def test_a_session_is_bound_to_its_own_sandbox_only(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        with pytest.raises(InvalidRequest):
            await store.bind_session(session(1, "t"), sandbox(2))
        with pytest.raises(InvalidRequest):
            await store.bind_session(session(1, "t"), sandbox(1, tenant="other"))
        assert await store.sandboxes() == []

    with_store(tmp_path, test)


def test_a_pooled_sandbox_goes_to_one_thread_and_takes_its_times(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        pooled = replace(sandbox(1, state="running", pooled=True, tenant=""), host_uid=70_001)
        await store.add_sandbox(pooled)
        wanted = replace(pooled, tenant="acme", pooled=True, deadline_at=9000.0, env={"A": "1"}, state="creating")
        bound = await store.bind_session(session(1, "t"), wanted)
        assert bound.created
        assert bound.sandbox == replace(wanted, pooled=False, state="running")
        again = replace(session(1, "u"), session_id="session-2")
        with pytest.raises(SandboxTaken) as caught:
            await store.bind_session(again, wanted)
        assert caught.value.retryable
        with pytest.raises(SandboxTaken):
            await store.bind_session(again, replace(wanted, pooled=False))
        assert await store.session_by_thread("acme", "u") is None

    with_store(tmp_path, test)


def test_taking_from_the_pool_gives_each_sandbox_once_the_oldest_first(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        for number in range(5):
            await store.add_sandbox(sandbox(number, state="running", pooled=True))
        await store.add_sandbox(replace(sandbox(10, state="running", pooled=True), template="open"))
        await store.add_sandbox(sandbox(11, state="creating", pooled=True))
        await store.add_sandbox(sandbox(12, state="running"))
        taken = await asyncio.gather(*(store.take_pooled("bash") for _ in range(8)))
        assert [one.sandbox_id for one in taken if one] == ["sb0", "sb1", "sb2", "sb3", "sb4"]
        assert all(one is None or not one.pooled for one in taken)
        assert taken[0] is not None
        bound = await store.bind_session(session(0, "t"), taken[0])
        assert bound.created

    with_store(tmp_path, test)


def test_a_sandbox_that_is_going_is_not_handed_over(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        pooled = sandbox(1, state="running", pooled=True)
        await store.add_sandbox(pooled)
        assert await store.transition("sb1", "running", "removing", "expire")
        with pytest.raises(SandboxTaken):
            await store.bind_session(session(1, "t"), pooled)

    with_store(tmp_path, test)


def test_a_host_uid_belongs_to_one_sandbox(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        first, second = replace(sandbox(1), host_uid=70_000), replace(sandbox(2), host_uid=70_000)
        await store.add_sandbox(first)
        with pytest.raises(HostUidTaken) as caught:
            await store.add_sandbox(second)
        assert caught.value.retryable
        with pytest.raises(HostUidTaken):
            await store.bind_session(session(2, "t"), second)
        assert await store.sandboxes() == [first]
        assert await store.sessions() == []
        await store.add_sandbox(sandbox(3))  # none at all is no conflict
        await store.add_sandbox(sandbox(4))
        assert await store.remove("sb1")
        assert (await store.bind_session(session(2, "t"), second)).created
        with pytest.raises(InvalidRequest, match="sb3"):
            await store.add_sandbox(sandbox(3))

    with_store(tmp_path, test)


def test_removal_forgets_all_but_the_events(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        await store.bind_session(session(1, "t"), replace(sandbox(1), host_uid=70_000))
        assert await store.remove("sb1")
        assert not await store.remove("sb1")
        assert await store.session_by_thread("acme", "t") is None
        assert await store.taken_uids() == frozenset()
        assert [one.event for one in await store.events("sb1")] == ["created", "removed"]
        assert (await store.bind_session(session(2, "t"), sandbox(2))).created

    with_store(tmp_path, test)


def test_two_stores_in_one_process_see_each_other(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as one, opened(tmp_path) as two:
            first, second = await asyncio.gather(
                one.bind_session(session(1, "t"), sandbox(1)), two.bind_session(session(2, "t"), sandbox(2))
            )
            assert sorted([first.created, second.created]) == [False, True]
            assert first.sandbox == second.sandbox

    asyncio.run(run())


def test_a_cancelled_call_does_not_break_the_store(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        calls = [asyncio.create_task(store.bind_session(session(n, f"t{n}"), sandbox(n))) for n in range(20)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(result, asyncio.CancelledError) for result in results) == 10
        bound = {pair.session.thread_id for pair in await store.sessions()}
        assert {f"t{n}" for n in range(1, 20, 2)} <= bound  # those cancelled may be there, too
        assert len(await store.sandboxes()) == len(bound)

    with_store(tmp_path, test)
