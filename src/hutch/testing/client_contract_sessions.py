"""The client contract: sessions, and whom they are bound to."""

from __future__ import annotations

import asyncio

import pytest

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import InvalidRequest, NoActiveSession, SessionExpiredError, ThreadOwnedByOther
from hutch.model.limits import MIB
from hutch.testing.client_contract_stage import ClientContractStage, Stage, staged


class SessionContract(ClientContractStage):
    @staged
    async def test_a_session_is_made_once_and_found_again(self, stage: Stage) -> None:
        client = stage.client()
        first = await client.get_or_create_session("u", "t")
        second = await client.get_or_create_session(user_id="u", thread_id="t", timeout_minutes=30)
        assert (first["status"], second["status"]) == ("created", "existing")
        assert first["session_id"] == second["session_id"] == client.session_id
        assert (client.user_id, client.thread_id, client.mode) == ("u", "t", client.mode)
        assert set(first) >= {
            *("session_id", "thread_id", "user_id", "status", "workspace_dir"),
            *("created_at", "last_activity", "expires_at"),
        }

    @staged
    async def test_without_a_session_every_call_says_so(self, stage: Stage) -> None:
        client = stage.client()
        assert (client.session_id, client.user_id, client.thread_id) == (None, None, None)
        for call in (
            client.execute("echo hi"),
            client.info(),
            client.set_cwd("."),
            client.set_env({}),
            client.start("echo hi"),
            client.processes(),
            client.logs("p"),
            client.wait("p"),
            client.send_input("p", b""),
            client.close_input("p"),
            client.signal("p", 15),
            client.kill("p"),
            client.open_shell(),
            client.connect(80),
            client.upload_file_from_bytes("a", b""),
            client.download_file("a"),
            client.download_file_to_bytes("a"),
            client.list_files(),
            client.files.read("a"),
            client.files.write("a", b""),
            client.files.list(),
            client.files.stat("a"),
            client.files.mkdir("a"),
            client.files.move("a", "b"),
            client.files.remove("a"),
        ):
            with pytest.raises(NoActiveSession, match="get_or_create_session"):
                await call
        for items in (
            client.stream("echo hi"),
            client.attach("p"),
            client.files.watch(),
            client.files.read_pieces("a"),
        ):
            with pytest.raises(ValueError, match="No active session"):
                async for _ in items:
                    break

    @staged
    async def test_a_thread_belongs_to_its_user(self, stage: Stage) -> None:
        client = stage.client()
        await client.get_or_create_session("ann", "hers")
        with pytest.raises(ThreadOwnedByOther):
            await client.get_or_create_session("bob", "hers")
        await client.get_or_create_session("ann", "ours", shared=True)
        joined = await client.get_or_create_session("bob", "ours")
        assert joined["status"] == "existing"

    @staged
    async def test_arguments_that_make_no_sense(self, stage: Stage) -> None:
        client = stage.client()
        for user, thread, minutes in (("", "t", 1), ("u", "", 1), ("u", "t", 0), ("u", "t", -5)):
            with pytest.raises(InvalidRequest):
                await client.get_or_create_session(user, thread, minutes)
        with pytest.raises(InvalidRequest):
            stage.client(mode="sideways")
        with pytest.raises(InvalidRequest):
            stage.client(policy="/no/such/profile")
        with pytest.raises(InvalidRequest):
            stage.client(policy="strict", template="open")

    @staged
    async def test_closing_forgets_session_and_files_and_never_raises(self, stage: Stage) -> None:
        client = await stage.bound()
        await client.upload_file_from_bytes("a.txt", b"x")
        await client.close_session()
        await client.close_session()
        assert client.session_id is None
        with pytest.raises(NoActiveSession):
            await client.execute("echo hi")
        assert (await client.get_or_create_session("u", "t"))["status"] == "created"
        assert (await client.list_files())["total_files"] == 0

    @staged
    async def test_leaving_the_block_closes_the_session(self, stage: Stage) -> None:
        async with stage.client() as client:
            await client.get_or_create_session("u", "t")
        other = stage.client()
        assert await other.sessions() == []
        async with stage.client():
            pass  # with no session, too

    @staged
    async def test_info_and_list_tell_of_the_sandbox(self, stage: Stage) -> None:
        client = await stage.bound()
        info = await client.info()
        assert (info["thread_id"], info["user_id"], info["template"], info["state"]) == ("t", "u", "open", "running")
        assert info["session_id"] == client.session_id
        assert [one["sandbox_id"] for one in await client.sessions()] == [info["sandbox_id"]]
        assert await client.health()
        templates = {one["name"]: one for one in await client.templates()}
        assert "jq" in templates["bash"]["programs"]
        assert templates["bash"]["file_bytes"] == 100 * MIB
        assert (templates["open"]["programs"], templates["open"]["policy"]) == ([], "open")

    @staged
    async def test_the_thread_can_be_set(self, stage: Stage) -> None:
        client = await stage.bound("one")
        await client.upload_file_from_bytes("a.txt", b"one")
        await client.get_or_create_session("u", "two")
        assert (await client.list_files())["total_files"] == 0
        client.thread_id = "one"
        assert await client.download_file_to_bytes("a.txt") == b"one"
        client.thread_id = "three"
        with pytest.raises(NoActiveSession, match="three"):
            await client.execute("echo hi")
        client.thread_id = None
        assert (client.user_id, client.session_id) == (None, None)

    @staged
    async def test_a_handle_is_bound_for_good(self, stage: Stage) -> None:
        client = await stage.bound("mine")
        handle = client.for_thread("u", "other", 5)
        assert (await handle.execute("echo 1 > a"))["exit_code"] == 0
        assert (handle.thread_id, client.thread_id) == ("other", "mine")
        assert (await client.list_files())["total_files"] == 0
        await client.get_or_create_session("u", "elsewhere")
        assert (await handle.list_files())["total_files"] == 1
        await handle.close_session()
        result = await handle.execute("echo again")
        assert (result["stdout"], (await handle.list_files())["total_files"]) == ("again\n", 0)

    @staged
    async def test_a_handle_does_not_pass_the_owner_by(self, stage: Stage) -> None:
        client = await stage.bound("mine")
        with pytest.raises(ThreadOwnedByOther):
            await client.for_thread("somebody", "mine").execute("echo hi")

    @staged
    async def test_two_clients_see_the_same_thread(self, stage: Stage) -> None:
        one, two = await stage.bound(), await stage.bound()
        await one.upload_file_from_bytes("a", b"x")
        assert await two.download_file_to_bytes("a") == b"x"

    @staged
    async def test_a_session_that_ended_elsewhere(self, stage: Stage) -> None:
        client = await stage.bound()
        await client.for_thread("u", "t").close_session()
        with pytest.raises(SessionExpiredError):
            await client.execute("echo hi", auto_retry=False)
        with pytest.raises(SessionExpiredError):
            await client.list_files()
        result = await client.execute("echo hi")
        assert (result["stdout"], result["session_recreated"], result["files_kept"]) == ("hi\n", True, False)
        assert (await client.execute("echo hi"))["session_recreated"] is False

    @staged
    async def test_tasks_do_not_see_each_others_sessions(self, stage: Stage) -> None:
        client: AsyncSandboxClient = stage.client()

        async def one(number: int) -> None:
            with pytest.raises(NoActiveSession):
                await client.execute("echo hi")
            await client.get_or_create_session("u", f"t{number}")
            for _ in range(3):
                assert (await client.execute(f"echo {number}"))["stdout"] == f"{number}\n"
            assert client.thread_id == f"t{number}"

        await asyncio.gather(*(one(number) for number in range(8)))
        assert client.thread_id is None

    @staged
    async def test_a_child_task_inherits_and_changes_only_its_own(self, stage: Stage) -> None:
        client = await stage.bound("parent")

        async def child() -> None:
            assert client.thread_id == "parent"
            await client.get_or_create_session("u", "child")
            assert client.thread_id == "child"

        await asyncio.create_task(child())
        assert client.thread_id == "parent"
