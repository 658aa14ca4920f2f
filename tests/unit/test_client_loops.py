"""Loops, threads, callbacks and iterators: the client works from wherever it is called."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hutch.client.async_client import AsyncSandboxClient
from hutch.client.sync_client import SandboxClient
from hutch.engine.assemble import assemble
from hutch.engine.homes import HOMES, EngineHome
from hutch.engine.loop import LoopThread
from hutch.model.errors import ClientClosed, StoreUnavailable
from hutch.settings import Settings
from hutch.testing.fake_provider import FakeProvider
from tests.unit.client_stage import fake_home
from tests.unit.engine_stage import settings


@pytest.fixture
def home(tmp_path: Path) -> Iterator[FakeProvider]:
    with fake_home(tmp_path) as provider:
        yield provider


def running(provider: FakeProvider) -> int:
    return sum(len(machine.running()) for machine in provider.world.machines.values())


def wait_until_none_runs(provider: FakeProvider) -> None:
    for _ in range(1000):
        if not running(provider):
            return
        threading.Event().wait(0.01)
    pytest.fail("a process is left")


class TestLoops:
    def test_one_client_in_many_loops_one_after_the_other(self, tmp_path: Path, home: FakeProvider) -> None:
        client = AsyncSandboxClient(policy="open", data_dir=tmp_path)

        async def use(number: int) -> str:
            await client.get_or_create_session("u", "t")
            await client.execute(f"echo {number} >> a")
            return (await client.execute("cat a"))["stdout"]

        assert [asyncio.run(use(number)) for number in range(3)][-1] == "0\n1\n2\n"

    def test_one_client_in_many_loops_at_once(self, tmp_path: Path, home: FakeProvider) -> None:
        client = AsyncSandboxClient(policy="open", data_dir=tmp_path)
        said: list[str] = []

        async def use(number: int) -> None:
            await client.get_or_create_session("u", f"t{number}")
            for _ in range(5):
                said.append((await client.execute(f"echo {number}"))["stdout"])

        threads = [threading.Thread(target=lambda number=number: asyncio.run(use(number))) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(said) == sorted(f"{number}\n" for number in range(8) for _ in range(5))

    def test_a_cancelled_call_leaves_no_process(self, tmp_path: Path, home: FakeProvider) -> None:
        async def run() -> None:
            client = AsyncSandboxClient(policy="open", data_dir=tmp_path)
            await client.get_or_create_session("u", "t")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.execute("sleep 20 & sleep 20")
            assert running(home) == 0  # cancelling waits for the clean-up

        asyncio.run(run())

    def test_a_loop_that_ends_in_mid_call_leaves_no_process(self, tmp_path: Path, home: FakeProvider) -> None:
        async def run() -> None:
            client = AsyncSandboxClient(policy="open", data_dir=tmp_path)
            await client.get_or_create_session("u", "t")
            task = asyncio.create_task(client.execute("sleep 20"))
            await asyncio.sleep(0.1)
            assert not task.done()

        asyncio.run(run())
        wait_until_none_runs(home)

    def test_a_stream_cancelled_in_the_middle_leaves_no_process(self, tmp_path: Path, home: FakeProvider) -> None:
        async def run() -> None:
            client = AsyncSandboxClient(policy="open", data_dir=tmp_path)
            await client.get_or_create_session("u", "t")

            async def walk() -> None:
                async for _ in client.stream("echo hi; sleep 20"):
                    pass

            task = asyncio.create_task(walk())
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert running(home) == 0

        asyncio.run(run())

    def test_a_stream_that_is_dropped_leaves_no_process(self, tmp_path: Path, home: FakeProvider) -> None:
        async def run() -> None:
            client = AsyncSandboxClient(policy="open", data_dir=tmp_path)
            await client.get_or_create_session("u", "t")
            async for _ in client.stream("echo hi; sleep 20"):
                break
            gc.collect()
            for _ in range(1000):
                if not running(home):
                    return
                await asyncio.sleep(0.01)
            pytest.fail("a process is left")

        asyncio.run(run())


class TestCallbacks:
    def test_they_run_on_the_callers_thread(self, tmp_path: Path, home: FakeProvider) -> None:
        client = SandboxClient(policy="open", data_dir=tmp_path)
        client.get_or_create_session("u", "t")
        threads: list[threading.Thread] = []
        client.execute("echo hi", on_stdout=lambda _: threads.append(threading.current_thread()))
        assert threads == [threading.current_thread()]

    def test_they_may_use_the_client(self, tmp_path: Path, home: FakeProvider) -> None:
        client = SandboxClient(policy="open", data_dir=tmp_path)
        client.get_or_create_session("u", "t")
        inner: list[str] = []
        client.execute("echo hi", on_stdout=lambda _: inner.append(client.execute("echo inner")["stdout"]))
        assert inner == ["inner\n"]

    def test_an_error_in_one_ends_the_command(self, tmp_path: Path, home: FakeProvider) -> None:
        client = SandboxClient(policy="open", data_dir=tmp_path)
        client.get_or_create_session("u", "t")

        def breaks(_: str) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            client.execute("echo hi; sleep 20", on_stdout=breaks)
        assert running(home) == 0
        assert client.execute("echo on")["stdout"] == "on\n"


class TestIterators:
    def test_leaving_one_ends_the_command(self, tmp_path: Path, home: FakeProvider) -> None:
        client = SandboxClient(policy="open", data_dir=tmp_path)
        client.get_or_create_session("u", "t")
        for event in client.stream("echo hi; sleep 20"):
            assert event["text"] == "hi\n"
            break
        gc.collect()
        wait_until_none_runs(home)

    def test_one_may_be_walked_in_another_thread(self, tmp_path: Path, home: FakeProvider) -> None:
        client = SandboxClient(policy="open", data_dir=tmp_path)
        client.get_or_create_session("u", "t")
        items = client.stream("echo hi")
        seen: list[str] = []
        thread = threading.Thread(target=lambda: seen.extend(event["type"] for event in items))
        thread.start()
        thread.join(30)
        assert seen == ["stdout", "exit"]

    def test_one_thread_waits_while_another_acts(self, tmp_path: Path, home: FakeProvider) -> None:
        client = SandboxClient(policy="open", data_dir=tmp_path).for_thread("u", "t")
        process = client.start("cat", stdin=True)["process_id"]
        ended: list[object] = []
        waiter = threading.Thread(target=lambda: ended.append(client.wait(process)))
        waiter.start()
        client.send_input(process, "hi")
        client.close_input(process)
        waiter.join(30)
        (result,) = ended
        assert result["stdout"] == "hi"  # type: ignore[index]


class TestHomes:
    def test_one_engine_for_each_data_folder(self, tmp_path: Path) -> None:
        made: list[Settings] = []

        async def run() -> None:
            await asyncio.gather(*(home.do(same) for _ in range(20)))

        async def make(wanted: Settings) -> object:
            made.append(wanted)
            await asyncio.sleep(0.02)
            return await assemble(wanted, FakeProvider())

        async def same(engine: object) -> object:
            return engine

        home = EngineHome(settings(tmp_path), make)  # type: ignore[arg-type]
        try:
            asyncio.run(run())
            assert len(made) == 1
        finally:
            home.close()
        with pytest.raises(ClientClosed):
            asyncio.run(run())
        home.close()

    def test_a_first_caller_that_gives_up_does_not_make_a_second_engine(self, tmp_path: Path) -> None:
        made: list[int] = []

        async def make(wanted: Settings) -> object:
            made.append(1)
            await asyncio.sleep(0.1)
            return await assemble(wanted, FakeProvider())

        async def engine_of(engine: object) -> object:
            return engine

        home = EngineHome(settings(tmp_path), make)  # type: ignore[arg-type]

        async def run() -> None:
            first = asyncio.create_task(home.do(engine_of))
            await asyncio.sleep(0.02)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            await asyncio.sleep(0.2)
            await home.do(engine_of)

        try:
            asyncio.run(run())
            assert made == [1]
        finally:
            home.close()

    def test_a_start_that_failed_is_tried_again(self, tmp_path: Path) -> None:
        tries: list[int] = []

        async def make(wanted: Settings) -> object:
            tries.append(1)
            if len(tries) == 1:
                raise StoreUnavailable("The database is locked.")
            return await assemble(wanted, FakeProvider())

        async def spare(engine: object) -> None:
            return None

        home = EngineHome(settings(tmp_path), make)  # type: ignore[arg-type]
        try:
            with pytest.raises(StoreUnavailable):
                asyncio.run(home.do(spare))
            asyncio.run(home.do(spare))
        finally:
            home.close()

    def test_clients_of_one_folder_have_one_home(self, tmp_path: Path) -> None:
        with fake_home(tmp_path):
            home = HOMES.get(settings(tmp_path))
            assert HOMES.get(settings(tmp_path)) is home
            assert home.closed is False
        assert HOMES.get(settings(tmp_path)) is not home


class TestLoopThread:
    def test_after_its_end_calls_say_so(self) -> None:
        thread = LoopThread("test")

        async def one() -> int:
            return 1

        assert thread.run(one()) == 1
        thread.stop()
        thread.stop()
        with pytest.raises(ClientClosed):
            thread.run(one())

    def test_who_waits_at_its_end_is_told(self) -> None:
        thread = LoopThread("test")
        errors: list[BaseException] = []
        begun = threading.Event()

        async def forever() -> None:
            begun.set()
            await asyncio.Event().wait()

        def wait() -> None:
            try:
                thread.run(forever())
            except BaseException as error:
                errors.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        assert begun.wait(10)
        thread.stop()
        waiter.join(10)
        assert [type(error) for error in errors] == [ClientClosed]

    def test_cancelling_twice_does_not_wait_for_the_clean_up(self) -> None:
        thread = LoopThread("test")
        cleaned = threading.Event()

        async def slow_to_end() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.5)
                cleaned.set()

        async def run() -> None:
            task = asyncio.create_task(thread.call(slow_to_end))
            for _ in range(2):
                await asyncio.sleep(0.05)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not cleaned.is_set()

        asyncio.run(run())
        assert cleaned.wait(10)
        thread.stop()
