"""A data folder is kept from databases that know nothing of its sandboxes: those would delete their files."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from hutch.engine.belonging import NAME, SHARED, Belonging
from hutch.model.errors import SettingsInvalid
from hutch.testing.fake_provider import FakeProvider
from tests.unit.engine_stage import Stage, play, staged


def test_another_database_is_refused_and_every_file_stays(tmp_path: Path) -> None:
    folder, aside = tmp_path / "data", tmp_path / "aside"
    provider = FakeProvider()

    async def first(stage: Stage) -> None:
        await stage.write(await stage.session(), "a.txt", b"kept")

    async def again(stage: Stage) -> None:
        assert await stage.read(await stage.session(), "a.txt") == b"kept"

    async def refused() -> None:
        async with staged(folder, provider):
            pytest.fail("an engine started that knows none of these sandboxes")

    play(folder, first, provider)
    aside.mkdir()
    for file in folder.glob("hutch.db*"):
        shutil.move(file, aside)
    with pytest.raises(SettingsInvalid, match="belong to another database"):
        asyncio.run(refused())
    for file in folder.glob("hutch.db*"):
        file.unlink()
    for file in aside.iterdir():
        shutil.move(file, folder)
    play(folder, again, provider)


def claim(folder: Path, database: str, worker: str = "w1") -> Belonging:
    return Belonging(folder, database, worker)


def test_a_folder_without_sandboxes_may_go_to_another_database(tmp_path: Path) -> None:
    (tmp_path / "sandboxes").mkdir()
    for database in ("one", "two", "two"):
        claim(tmp_path, database).close()
    (tmp_path / "sandboxes/sb1").mkdir()
    claim(tmp_path, "two").close()
    with pytest.raises(SettingsInvalid, match="DATABASE_URL"):
        claim(tmp_path, "one")
    (tmp_path / NAME).unlink()  # as the message says, for one that is gone for good
    claim(tmp_path, "one").close()


def test_a_folder_is_not_taken_from_an_engine_that_has_made_nothing_yet(tmp_path: Path) -> None:
    (tmp_path / "sandboxes").mkdir()
    first = claim(tmp_path, "one")
    second = claim(tmp_path, "one")  # another process
    first.close()
    with pytest.raises(SettingsInvalid):
        claim(tmp_path, "two")
    second.close()
    claim(tmp_path, "two").close()


def test_a_worker_of_another_name_is_refused_unless_they_share(tmp_path: Path) -> None:
    (tmp_path / "sandboxes/sb1").mkdir(parents=True)
    claim(tmp_path, "one", "w1").close()
    with pytest.raises(SettingsInvalid, match="worker 'w1'"):
        claim(tmp_path, "one", "w2")
    shared = [claim(tmp_path, "one", SHARED) for _ in range(2)]
    for one in shared:
        one.close()
    with pytest.raises(SettingsInvalid, match="HUTCH_SHARED_DATA"):
        claim(tmp_path, "one", "w1")
