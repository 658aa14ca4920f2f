"""What a store in PostgreSQL answers to addresses, rights and text that cannot be."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import traceback

import pytest

from hutch.model.audit import AuditFilter
from hutch.model.errors import InvalidRequest, StoreUnavailable
from hutch.store.audit import AuditRecord, AuditStore
from hutch.store.database import Database, open_database
from hutch.store.store import Store
from tests.contract.store_records import sandbox, session
from tests.hostile.postgres_stage import count, sql, with_database
from tests.postgres_rig import PASSWORD, Postgres

pytestmark = pytest.mark.once


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.new_database()


@pytest.mark.parametrize(
    ("database", "user", "password", "port", "said"),
    [
        ("postgres", "hutch", "wr0ng/secret", None, "password authentication failed"),
        ("postgres", "nobody-known", PASSWORD, None, "password authentication failed"),
        ("missing", "hutch", PASSWORD, None, 'database "missing" does not exist'),
        ("postgres", "hutch", PASSWORD, 1, "refused"),
    ],
    ids=["password", "user", "database", "port"],
)
def test_who_cannot_connect_reads_why_and_no_secret(
    postgres: Postgres, database: str, user: str, password: str, port: int | None, said: str
) -> None:
    url = postgres.url_of(database, user=user, password=password)
    if port is not None:
        url = url.replace(f":{postgres.port}/", f":{port}/")
    told = refused(url)
    assert said in told.details["cause"]
    assert "DATABASE_URL" in told.details["remedy"]
    assert password not in "".join(traceback.format_exception(told))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://hutch:topsecret%zz@localhost/x",
        "postgresql://hutch:topsecret@localhost:port/x",
        "postgresql://hutch:topsecret@[::1/x",
        "postgresql://hutch:p@topsecret/@localhost/x",
        "postgresql://hutch:p@topsecret@localhost/x",
        "postgresql://hutch:p/topsecret@localhost/x",
        "postgresql://hutch:topsecret@localhost/x?nonsense=1",
        "postgresql://hutch:topsecret@localhost/x?sslmode=nonsense",
        "postgresql://hutch:topsecret@localhost/x?connect_timeout=nonsense",
    ],
)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    told = refused(url)
    assert "topsecret" not in "".join(traceback.format_exception(told))
    assert "DATABASE_URL" in told.message


def refused(url: str) -> StoreUnavailable:
    async def attempt() -> None:
        await (await open_database(url)).aclose()

    with pytest.raises(StoreUnavailable) as caught:
        asyncio.run(attempt())
    return caught.value


def test_a_user_without_rights_reads_which_are_missing(postgres: Postgres, url: str) -> None:
    sql(url, "CREATE ROLE guest LOGIN PASSWORD 'guest'", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    try:
        told = refused(postgres.url_of(url.rpartition("/")[2], user="guest", password="guest"))
        assert "permission denied" in told.details["cause"]
        assert "rights" in told.details["remedy"]
    finally:
        sql(url, "DROP ROLE guest")


def test_an_older_program_refuses_a_newer_schema(url: str) -> None:
    async def nothing(database: Database) -> None:
        pass

    with_database(url, nothing)
    sql(url, "INSERT INTO schema_versions (version, name) VALUES (999, '0999_later')")
    told = refused(url)
    assert "newer Hutch wrote it (schema 999" in told.details["cause"]
    assert "database of its own" in told.details["remedy"]
    assert sql(url, "SELECT max(version) FROM schema_versions") == [(999,)]


def test_what_postgres_cannot_keep_is_the_callers_mistake_but_never_an_events(url: str) -> None:
    async def test(database: Database) -> None:
        store = Store(database)
        with pytest.raises(InvalidRequest, match="NUL"):
            await store.bind_session(session(1, "nul \0"), sandbox(1))
        with pytest.raises(InvalidRequest, match="NUL"):
            await store.session_by_thread("acme", "nul \0")
        assert await store.sandboxes() == []
        await store.add_sandbox(sandbox(1))
        assert await store.transition("sb1", "creating", "running", "started", detail="of a sandbox: \0 \ud800")
        assert "of a sandbox" in (await store.events("sb1"))[-1].detail
        audit = AuditStore(database)
        await audit.add([AuditRecord(1.0, "t", "k", "u", "exec", "sb1", "\0 \udcff", "ok", None, math.pi)])
        ((_, entry),) = await audit.latest(AuditFilter("t"))
        assert entry.duration_ms == math.pi

    with_database(url, test)


def test_a_forked_process_is_told_to_open_its_own(url: str) -> None:
    async def test(database: Database) -> None:
        pid = os.getpid()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "getpid", lambda: pid + 1)
            with pytest.raises(StoreUnavailable, match="forked"):
                await database.read(count)
        assert await database.read(count) == 0

    with_database(url, test)


def test_without_psycopg_one_reads_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("hutch.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "hutch[server]" in refused("postgresql://hutch:topsecret@localhost/x").details["remedy"]
