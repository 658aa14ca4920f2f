"""One sandbox for each thread, whoever asks, and nothing left of one that ended."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from hutch.engine.sessions import SessionRequest
from hutch.model.errors import (
    InvalidRequest,
    PoolExhausted,
    SandboxUnavailable,
    SessionExpiredError,
    StoreUnavailable,
    ThreadOwnedByOther,
)
from hutch.testing.fake_provider import FakeProvider
from tests.unit.engine_stage import TENANT, Stage, play, until


def test_fifty_callers_at_once_get_one_sandbox(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        stage.provider.faults.delays["start"] = 0.05
        request = SessionRequest(TENANT, "u", "t")
        answers = await asyncio.gather(*(stage.engine.sessions.get_or_create(request) for _ in range(50)))
        assert len({sandbox for _, sandbox in answers}) == 1
        assert len({session["session_id"] for session, _ in answers}) == 1
        assert sorted(session["status"] for session, _ in answers) == ["created"] + ["existing"] * 49
        assert stage.engine.sandboxes.running == 1
        assert len(stage.folders()) == 1

    play(tmp_path, body)


def test_a_session_tells_what_was_promised(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        session, _ = await stage.engine.sessions.get_or_create(SessionRequest(TENANT, "u", "t"))
        assert set(session) == {
            *("session_id", "thread_id", "user_id", "status", "workspace_dir"),
            *("created_at", "last_activity", "expires_at", "template"),
        }
        assert (session["thread_id"], session["user_id"], session["workspace_dir"]) == ("t", "u", "/workspace")
        assert session["expires_at"] > session["last_activity"] >= session["created_at"]

    play(tmp_path, body)


def test_a_thread_of_another_user_is_refused_and_untouched(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t", "ann")
        with pytest.raises(ThreadOwnedByOther):
            await stage.session("t", "bob")
        assert await stage.session("t", "ann") == sandbox
        assert stage.engine.sandboxes.running == 1

    play(tmp_path, body)


def test_a_shared_thread_takes_other_users(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t", "ann", shared=True)
        assert await stage.session("t", "bob") == sandbox

    play(tmp_path, body)


def test_threads_of_different_tenants_never_meet(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        ours = await stage.session("t")
        _, theirs = await stage.engine.sessions.get_or_create(SessionRequest("other", "u", "t"))
        assert ours != theirs
        with pytest.raises(SessionExpiredError):
            await stage.engine.sandboxes.find("other", ours)
        assert [row["sandbox_id"] for row in await stage.engine.sessions.list(TENANT)] == [ours]

    play(tmp_path, body)


def test_another_template_on_a_thread_is_an_error(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.session("t", template="open")
        with pytest.raises(InvalidRequest, match="template"):
            await stage.session("t", template="bash")
        with pytest.raises(InvalidRequest, match="bash, open"):
            await stage.session("t2", template="nonsense")

    play(tmp_path, body)


@pytest.mark.parametrize("minutes", [0, -1, math.nan, math.inf, True, "30", 10**9])
def test_a_timeout_must_make_sense(tmp_path: Path, minutes: Any) -> None:
    async def body(stage: Stage) -> None:
        with pytest.raises(InvalidRequest, match="timeout_minutes"):
            await stage.session("t", timeout_minutes=minutes)
        assert stage.folders() == []

    play(tmp_path, body)


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 513, 7, None, b"t"])
def test_names_must_make_sense(tmp_path: Path, name: Any) -> None:
    async def body(stage: Stage) -> None:
        for user, thread in (("u", name), (name, "t")):
            with pytest.raises(InvalidRequest):
                await stage.session(thread, user)

    play(tmp_path, body)


@pytest.mark.parametrize("name", ["ü", "new\nline", "../../etc", "' OR 1=1 --", "x" * 512, "🦊"])
def test_any_text_can_name_a_thread(tmp_path: Path, name: str) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session(name)
        assert await stage.session(name) == sandbox
        (row,) = await stage.engine.sessions.list(TENANT)
        assert row["thread_id"] == name
        assert all(name not in folder for folder in stage.folders())

    play(tmp_path, body)


def test_a_lone_surrogate_in_a_name_is_a_clear_error(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        with pytest.raises(InvalidRequest):
            await stage.session("\ud800")
        assert stage.folders() == []

    play(tmp_path, body)


def test_closing_leaves_nothing_and_the_thread_starts_afresh(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t")
        await stage.write(sandbox, "a.txt", b"hello")
        await stage.engine.sessions.close(TENANT, sandbox)
        assert stage.folders() == []
        assert stage.engine.sandboxes.running == 0
        assert await stage.engine.store.sandboxes() == []
        with pytest.raises(SessionExpiredError):
            await stage.run(sandbox, "echo hi")
        await stage.engine.sessions.close(TENANT, sandbox)  # once more is fine
        fresh = await stage.session("t")
        assert fresh != sandbox
        assert (await stage.engine.files.list_files(TENANT, fresh))["total_files"] == 0

    play(tmp_path, body)


def test_closing_ends_what_runs(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t")
        machine = stage.machine(sandbox)
        command = asyncio.create_task(stage.run(sandbox, "sleep 20"))
        await until(lambda: bool(machine.running()))
        await stage.engine.sessions.close(TENANT, sandbox)
        with pytest.raises(SandboxUnavailable, match="closed"):
            await command
        assert not machine.alive

    play(tmp_path, body)


@pytest.mark.parametrize("call", ["start", "destroy"])
def test_a_start_that_fails_leaves_nothing(tmp_path: Path, call: str) -> None:
    async def body(stage: Stage) -> None:
        stage.provider.faults.fail_next("start", SandboxUnavailable("no room"))
        with pytest.raises(SandboxUnavailable, match="no room"):
            await stage.session("t")
        assert stage.folders() == []
        assert stage.engine.sandboxes.running == 0
        assert await stage.engine.store.sandboxes() == []
        await stage.session("t")

    play(tmp_path, body)


def test_a_folder_that_cannot_be_made_leaves_no_row(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        folder = tmp_path / "sandboxes"
        folder.rmdir()
        folder.write_text("in the way")
        with pytest.raises(SandboxUnavailable, match="HUTCH_DATA_DIR"):
            await stage.session("t")
        assert await stage.engine.store.sandboxes() == []
        assert stage.engine.sandboxes.running == 0
        folder.unlink()
        folder.mkdir()
        await stage.session("t")

    play(tmp_path, body)


def test_a_binding_that_fails_leaves_no_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(stage: Stage) -> None:
        async def locked(*_: object) -> None:
            raise StoreUnavailable("The database is locked.")

        with monkeypatch.context() as patch:
            patch.setattr(stage.engine.store, "bind_session", locked)
            with pytest.raises(StoreUnavailable):
                await stage.session("t")
        assert stage.folders() == []
        assert stage.engine.sandboxes.running == 0
        assert await stage.engine.store.sandboxes() == []

    play(tmp_path, body)


def test_a_caller_that_gives_up_leaves_nothing(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        stage.provider.faults.delays["start"] = 5
        caller = asyncio.create_task(stage.session("t"))
        await until(lambda: len(stage.folders()) == 1)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await until(lambda: stage.folders() == [])
        assert await stage.engine.store.sandboxes() == []

    play(tmp_path, body)


def test_a_removal_that_fails_is_taken_up_again(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t")
        stage.provider.faults.fail_next("destroy", SandboxUnavailable("the disk is busy"))
        with pytest.raises(SandboxUnavailable):
            await stage.engine.sessions.close(TENANT, sandbox)
        with pytest.raises(SessionExpiredError):
            await stage.run(sandbox, "echo hi")
        await until(lambda: stage.folders() == [])  # by the sweeper
        while await stage.engine.store.sandboxes():
            await asyncio.sleep(0.01)
        assert stage.engine.sandboxes.running == 0

    play(tmp_path, body)


def test_one_more_than_fits_is_told_what_to_do(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        first = await stage.session("t1")
        await stage.session("t2")
        with pytest.raises(PoolExhausted, match=r"Pool at max capacity.*MAX_POOL_SIZE"):
            await stage.session("t3")
        assert len(stage.folders()) == 2
        await stage.engine.sessions.close(TENANT, first)
        await stage.session("t3")

    play(tmp_path, body, max_pool_size=2)


def test_each_sandbox_has_a_host_uid_of_its_own(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandboxes = await asyncio.gather(*(stage.session(f"t{number}") for number in range(20)))
        uids = {stage.live(sandbox).spec.host_uid for sandbox in sandboxes}
        assert len(uids) == 20
        assert None not in uids

    play(tmp_path, body, FakeProvider(as_root=True))


def test_info_of_a_session_and_the_list_agree(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session("t")
        await stage.start(sandbox, "sleep 20")
        info = await stage.engine.sessions.info(TENANT, sandbox)
        assert await stage.engine.sessions.list(TENANT) == [info]
        assert (info["state"], info["processes"], info["cwd"]) == ("running", 1, "/workspace")

    play(tmp_path, body)
