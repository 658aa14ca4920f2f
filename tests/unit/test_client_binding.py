"""One client, many users: the session belongs to the task or thread that asked for it, never to the object."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hutch.client.async_client import AsyncSandboxClient
from hutch.client.sync_client import SandboxClient
from hutch.model.errors import NoActiveSession
from hutch.testing.fake_provider import FakeProvider
from tests.unit.client_stage import fake_home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[FakeProvider]:
    with fake_home(tmp_path) as provider:
        yield provider


def sync_client(folder: Path) -> SandboxClient:
    return SandboxClient(policy="open", data_dir=folder)


def async_client(folder: Path) -> AsyncSandboxClient:
    return AsyncSandboxClient(policy="open", data_dir=folder)


def in_thread(work: Callable[[], None]) -> None:
    """Run in a fresh thread; what it raises is raised here."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_fifty_threads_through_one_client(tmp_path: Path, home: FakeProvider) -> None:
    client = sync_client(tmp_path)
    barrier = threading.Barrier(50)

    def user(number: int) -> set[str]:
        barrier.wait(30)
        client.get_or_create_session(f"u{number}", f"t{number}")
        said = {client.execute(f"echo {number}")["stdout"] for _ in range(5)}
        assert client.thread_id == f"t{number}"
        return said

    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(user, range(50))) == [{f"{number}\n"} for number in range(50)]
    assert len(client.sessions()) == 50
    assert client.thread_id is None


def test_a_new_thread_has_no_session(tmp_path: Path, home: FakeProvider) -> None:
    client = sync_client(tmp_path)
    client.get_or_create_session("u", "t")

    def stranger() -> None:
        with pytest.raises(NoActiveSession, match="for_thread"):
            client.execute("echo hi")
        assert client.session_id is None
        client.close_session()  # closes nobody's

    in_thread(stranger)
    assert client.execute("echo hi")["exit_code"] == 0


def test_a_plain_executor_has_no_session_and_a_copied_context_has(tmp_path: Path, home: FakeProvider) -> None:
    client = sync_client(tmp_path)
    client.get_or_create_session("u", "t")
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(NoActiveSession):
            pool.submit(client.execute, "echo hi").result(30)
        context = contextvars.copy_context()
        assert pool.submit(context.run, client.execute, "echo hi").result(30)["stdout"] == "hi\n"

    async def inherits() -> None:
        assert (await asyncio.to_thread(client.execute, "echo hi"))["stdout"] == "hi\n"

    asyncio.run(inherits())


def test_what_a_copied_context_binds_stays_there(tmp_path: Path, home: FakeProvider) -> None:
    client = sync_client(tmp_path)
    client.get_or_create_session("u", "outer")
    contextvars.copy_context().run(client.get_or_create_session, "u", "inner")
    assert client.thread_id == "outer"


def test_two_clients_in_one_thread_do_not_mix(tmp_path: Path, home: FakeProvider) -> None:
    one, two = sync_client(tmp_path), sync_client(tmp_path)
    one.get_or_create_session("u", "one")
    with pytest.raises(NoActiveSession):
        two.execute("echo hi")
    two.get_or_create_session("u", "two")
    one.close_session()
    assert (one.thread_id, two.thread_id) == (None, "two")


def test_a_handle_works_in_any_thread(tmp_path: Path, home: FakeProvider) -> None:
    handle = sync_client(tmp_path).for_thread("u", "t")
    handle.execute("echo 1 > a")
    in_thread(lambda: None if handle.execute("cat a")["stdout"] == "1\n" else pytest.fail("another sandbox"))
    assert len(handle.sessions()) == 1


def test_async_and_sync_clients_share_the_engine(tmp_path: Path, home: FakeProvider) -> None:
    plain = sync_client(tmp_path)
    plain.get_or_create_session("u", "t")
    plain.execute("echo 1 > a")

    async def other() -> None:
        client = async_client(tmp_path)
        await client.get_or_create_session("u", "t")
        assert (await client.execute("cat a"))["stdout"] == "1\n"
        assert plain.execute("cat a")["stdout"] == "1\n"  # a sync call in a running loop works, too

    asyncio.run(other())


def test_setting_the_thread_keeps_the_user(tmp_path: Path, home: FakeProvider) -> None:
    client = sync_client(tmp_path)
    client.get_or_create_session("ann", "one")
    client.get_or_create_session("ann", "two")
    client.thread_id = "one"
    assert (client.user_id, client.session_id) == ("ann", None)
    client.execute("echo hi")
    assert client.session_id is not None


def test_tasks_in_one_loop_are_fifty_users(tmp_path: Path, home: FakeProvider) -> None:
    async def run() -> None:
        client = async_client(tmp_path)

        async def user(number: int) -> None:
            await client.get_or_create_session(f"u{number}", f"t{number}")
            for _ in range(5):
                assert (await client.execute(f"echo {number}"))["stdout"] == f"{number}\n"

        await asyncio.gather(*(user(number) for number in range(50)))
        assert len(await client.sessions()) == 50

    asyncio.run(run())
