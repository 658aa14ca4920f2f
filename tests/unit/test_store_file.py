"""What holds for a store in a file only."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

from hutch.store.store import Store
from tests.contract.store_records import sandbox, session, with_store


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:

        async def test(store: Store) -> None:
            await store.add_sandbox(sandbox(1))
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "data").iterdir()}
            assert modes == {"hutch.db": 0o600, "hutch.db-wal": 0o600, "hutch.db-shm": 0o600}
            assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700

        with_store(tmp_path, test)
    finally:
        os.umask(old)


def test_no_side_files_are_left(tmp_path: Path) -> None:
    async def run() -> None:
        await (await Store.open(tmp_path / "hutch.db")).aclose()

    asyncio.run(run())
    assert [file.name for file in tmp_path.iterdir()] == ["hutch.db"]


def test_text_may_hold_nul(tmp_path: Path) -> None:
    leased = session(1, "thread \x00")

    async def test(store: Store) -> None:
        await store.bind_session(leased, sandbox(1))
        found = await store.session_by_thread("acme", "thread \x00")
        assert found is not None
        assert found.session == leased

    with_store(tmp_path, test)
