"""Records to put into a store, and a store to put them into: a file in the folder of a test, or a PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from hutch.model.session import SandboxState
from hutch.store.records import SandboxRecord, SessionRecord
from hutch.store.store import Store


def sandbox(
    number: int, *, state: SandboxState = "creating", pooled: bool = False, tenant: str = "acme"
) -> SandboxRecord:
    return SandboxRecord(
        sandbox_id=f"sb{number}",
        tenant=tenant,
        template="bash",
        provider="fake",
        state=state,
        host_uid=None,
        cwd="/workspace",
        env={},
        created_at=1000.0 + number,
        last_activity_at=1000.0 + number,
        deadline_at=2000.0 + number,
        deadline_action="remove",
        idle_seconds=1800.0,
        pooled=pooled,
    )


def session(number: int, thread_id: str, *, tenant: str = "acme") -> SessionRecord:
    return SessionRecord(
        session_id=f"session-{number}",
        tenant=tenant,
        thread_id=thread_id,
        user_id="ann",
        sandbox_id=f"sb{number}",
        created_at=1000.0 + number,
        timeout_seconds=1800.0,
        shared=False,
    )


PLACES: dict[Path, str] = {}  # folders of tests that stand for a PostgreSQL; tests/contract/conftest.py fills it


def place(path: Path) -> Path | str:
    return PLACES.get(path, path / "data" / "hutch.db")


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Store]:
    store = await Store.open(place(path))
    try:
        yield store
    finally:
        await store.aclose()


def with_store(path: Path, test: Callable[[Store], Awaitable[None]]) -> None:
    async def run() -> None:
        async with opened(path) as store:
            await test(store)

    asyncio.run(run())
