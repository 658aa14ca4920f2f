"""A data folder is kept from databases that know nothing of its sandboxes: those would delete their files."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from hutch.engine.belonging import NAME, check_belonging
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


def test_a_folder_without_sandboxes_may_go_to_another_database(tmp_path: Path) -> None:
    (tmp_path / "sandboxes").mkdir()
    for database in ("one", "two", "two"):
        check_belonging(tmp_path, database)
    (tmp_path / "sandboxes/sb1").mkdir()
    check_belonging(tmp_path, "two")
    with pytest.raises(SettingsInvalid):
        check_belonging(tmp_path, "one")
    (tmp_path / NAME).unlink()  # as the message says, for one that is gone for good
    check_belonging(tmp_path, "one")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
