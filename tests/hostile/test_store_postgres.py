"""PostgreSQL that dies, stands still, refuses and is raced for, under a store."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hutch.model.errors import HutchError, StoreUnavailable
from hutch.store import postgres as postgres_module
from hutch.store import postgres_link
from hutch.store.database import Connection, Database, open_database
from hutch.store.store import Store
from tests.contract.store_records import sandbox
from tests.hostile.postgres_stage import add, backend, count, sql, with_database
from tests.hostile.test_store_processes import answer, worker
from tests.postgres_rig import PASSWORD, Postgres, running_postgres

pytestmark = pytest.mark.once


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.new_database()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_module, "STATEMENT_SECONDS", 1)
    monkeypatch.setattr(postgres_link, "STATEMENT_SECONDS", 1)


def test_eight_processes_at_an_empty_database_make_one_sandbox_for_a_thread(tmp_path: Path, url: str) -> None:
    place: Any = url
    gate = tmp_path / "gate"
    with ExitStack() as stack:
        workers = [stack.enter_context(worker("race", place, str(gate), "20")) for _ in range(8)]
        assert all(answer(one) == {"ready": True} for one in workers)  # all of them made the schema, or waited for it
        gate.touch()
        answers = [answer(one) for one in workers]
    assert len(answers[0]["bound"]) == 20
    assert all(one["bound"] == answers[0]["bound"] for one in answers)
    assert sum(one["made"] for one in answers) == 20
    assert sql(url, "SELECT (SELECT count(*) FROM sandboxes), (SELECT count(*) FROM sessions)") == [(20, 20)]


def test_many_may_open_an_empty_database_at_once(postgres: Postgres) -> None:
    async def run(url: str) -> None:
        opened = await asyncio.gather(*(open_database(url) for _ in range(12)))
        try:
            assert await opened[0].read(count) == 0
        finally:
            for database in opened:
                await database.aclose()

    for _ in range(3):
        asyncio.run(run(postgres.new_database()))


def test_writers_take_turns(url: str) -> None:
    async def run() -> None:
        databases = [await open_database(url) for _ in range(4)]

        def step(connection: Connection) -> None:
            """Loses counts unless nobody else writes between its two statements."""
            found = connection.execute("SELECT version FROM schema_versions WHERE name = 'turn'").fetchone()[0]
            connection.execute("SELECT pg_sleep(0.002)")
            connection.execute("UPDATE schema_versions SET version = ? WHERE name = 'turn'", (found - 1,))

        try:
            await databases[0].write(
                lambda connection: connection.execute("INSERT INTO schema_versions VALUES (-1, 'turn')")
            )
            await asyncio.gather(*(database.write(step) for database in databases for _ in range(25)))
        finally:
            for database in databases:
                await database.aclose()

    asyncio.run(run())
    assert sql(url, "SELECT version FROM schema_versions WHERE name = 'turn'") == [(-101,)]


def test_a_lock_that_a_stranger_keeps_is_a_bounded_wait_and_readers_do_not_wait(url: str) -> None:
    async def test(database: Database) -> None:
        with psycopg.connect(url) as stranger:
            stranger.execute(f"SELECT pg_advisory_xact_lock({postgres_link.WRITE_LOCK})".encode())
            results = await asyncio.gather(*(database.write(add) for _ in range(10)), return_exceptions=True)
            for result in results:
                assert isinstance(result, StoreUnavailable)
                assert "locked" in result.details["cause"]
                assert result.retryable
            assert await database.read(count) == 0
        await database.write(add)
        assert await database.read(count) == 1

    with_database(url, test, busy_seconds=0.3)


def test_a_process_killed_in_a_transaction_leaves_nothing_of_it(url: str) -> None:
    async def test(database: Database) -> None:
        place: Any = url
        with worker("hang", place) as process:
            assert answer(process) == {"inside": True}
            process.kill()
            process.wait()
        await database.write(add)
        assert await Store(database).sandboxes() == []

    with_database(url, test)


@pytest.mark.usefixtures("impatient")
def test_a_writer_that_stands_still_loses_its_turn(url: str) -> None:
    async def test(database: Database) -> None:
        def stand_still(connection: Connection) -> None:
            add(connection)
            time_out.wait(2)

        time_out = threading.Event()
        other = await open_database(url)
        still = asyncio.create_task(database.write(stand_still))
        try:
            await asyncio.sleep(0.1)
            await other.write(lambda connection: None)  # waits for the turn, and gets it
            assert not still.done()
            time_out.set()
            with pytest.raises(StoreUnavailable):
                await still
            assert await database.read(count) == 0
            await database.write(add)
        finally:
            await other.aclose()

    with_database(url, test, busy_seconds=5)


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_a_step_that_met_a_conflict_is_run_again_but_not_for_ever(url: str, code: str) -> None:
    def meeting(conflicts: int, tries: list[int]) -> Callable[[Connection], None]:
        def work(connection: Connection) -> None:
            tries.append(1)
            add(connection)
            if len(tries) <= conflicts:
                connection.execute(f"DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '{code}'; END $$")

        return work

    async def test(database: Database) -> None:
        tries: list[int] = []
        await database.write(meeting(2, tries))
        assert len(tries) == 3
        assert await database.read(count) == 1
        tries.clear()
        await database.write(lambda connection: connection.execute("DELETE FROM schema_versions WHERE version = 0"))
        with pytest.raises(StoreUnavailable, match="conflict"):
            await database.write(meeting(1000, tries))
        assert len(tries) == postgres_link.ATTEMPTS
        assert await database.read(count) == 0

    with_database(url, test)


# --- bad luck ---------------------------------------------------------------------------------------------------------


def test_a_killed_server_is_an_error_until_it_is_back_and_forgets_nothing() -> None:
    acknowledged: list[str] = []
    errors: list[HutchError] = []

    async def write(store: Store, over: asyncio.Event, name: str) -> None:
        number = 0
        while not over.is_set():
            number += 1
            made = f"{name}-{number}"
            try:
                await store.add_sandbox(replace(sandbox(0), sandbox_id=made))
                acknowledged.append(made)
                await store.sandbox(made)
            except StoreUnavailable as error:
                errors.append(error)
                await asyncio.sleep(0.02)

    async def run(server: Postgres) -> None:
        store, over = await Store.open(server.url), asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                for name in "abcd":
                    group.create_task(write(store, over, name))
                for _ in range(2):
                    await _more(acknowledged, 20)
                    await asyncio.to_thread(server.kill)
                    await _more(errors, 5)
                    await asyncio.to_thread(server.start)
                await _more(acknowledged, 20)
                over.set()
            there = {record.sandbox_id for record in await store.sandboxes()}
        finally:
            await store.aclose()
        assert set(acknowledged) <= there

    with running_postgres() as server:
        asyncio.run(run(server))
    assert all(error.retryable and error.details["remedy"] for error in errors)
    assert all(PASSWORD not in "".join(traceback.format_exception(error)) for error in errors)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_stands_still_is_an_error_and_not_a_hang() -> None:
    async def test(database: Database) -> None:
        await database.write(add)
        await database.read(count)
        server.pause()
        calls: list[Any] = [database.write(add), *(database.read(count) for _ in range(8))]
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, StoreUnavailable)
            assert "no answer" in result.details["cause"] or "expired" in result.details["cause"]
        server.resume()
        assert await database.read(count) == 1
        await database.write(lambda connection: connection.execute("DELETE FROM schema_versions WHERE version = 0"))
        server.pause()
        nobody_waits = asyncio.create_task(database.read(count))
        await asyncio.sleep(0.1)
        nobody_waits.cancel()
        async with asyncio.timeout(30):  # closing does not wait for ever, either
            await database.aclose()

    with running_postgres() as server:
        with_database(server.url, test, busy_seconds=0.3)


def test_a_connection_that_was_ended_meanwhile_is_replaced_unnoticed(url: str) -> None:
    async def test(database: Database) -> None:
        writer = await database.write(backend)
        readers = {await database.read(backend) for _ in range(10)}
        sql(url, *(f"SELECT pg_terminate_backend({pid}, 5000)" for pid in (writer, *readers)))
        await database.write(add)
        assert [await database.read(count) for _ in range(10)] == [1] * 10
        assert await database.write(backend) != writer

    with_database(url, test)


def test_a_step_whose_connection_is_ended_in_the_middle_is_run_again_once(url: str) -> None:
    def ended(times: int, tries: list[int]) -> Callable[[Connection], None]:
        def work(connection: Connection) -> None:
            tries.append(1)
            if len(tries) <= times:
                sql(url, f"SELECT pg_terminate_backend({backend(connection)}, 5000)")
            add(connection)

        return work

    async def test(database: Database) -> None:
        tries: list[int] = []
        await database.write(ended(1, tries))
        assert len(tries) == 2
        assert await database.read(count) == 1
        tries.clear()
        with pytest.raises(StoreUnavailable):
            await database.write(ended(9, tries))
        assert len(tries) == 2

    with_database(url, test)


def test_a_connection_lost_while_committing_is_told_as_such(url: str) -> None:
    async def test(database: Database) -> None:
        sql(
            url,
            "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$",
            "CREATE CONSTRAINT TRIGGER die AFTER INSERT ON schema_versions DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION die()",
        )
        with pytest.raises(StoreUnavailable) as caught:
            await database.write(add)
        assert "may or may not" in caught.value.details["cause"]
        sql(url, "DROP TRIGGER die ON schema_versions")
        await database.write(add)

    with_database(url, test)


def test_a_failed_statement_that_was_passed_over_is_no_commit(url: str) -> None:
    async def test(database: Database) -> None:
        def work(connection: Connection) -> None:
            add(connection)
            try:
                connection.execute("SELECT 1/0")
            except psycopg.Error:
                pass

        with pytest.raises(RuntimeError, match="ROLLBACK"):
            await database.write(work)
        assert await database.read(count) == 0
        await database.write(add)

    with_database(url, test)


async def _more(found: Sequence[object], number: int) -> None:
    """Wait until `found` has grown by so many."""
    enough = len(found) + number
    async with asyncio.timeout(30):
        while len(found) < enough:
            await asyncio.sleep(0.01)
