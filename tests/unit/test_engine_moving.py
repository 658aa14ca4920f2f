"""A sandbox comes from another worker: whatever breaks off, its files are kept by somebody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from hutch.engine.moving import _UNPACK, Moving, location_of
from hutch.engine.ownership import try_lock
from hutch.engine.sandboxes import Sandboxes, make_folder
from hutch.model.errors import InvalidRequest, SandboxMoved, SandboxUnavailable, StoreUnavailable
from hutch.model.location import Location
from hutch.model.template import BASH
from hutch.store.database import open_database
from hutch.store.locations import Locations
from hutch.store.records import SandboxRecord
from hutch.store.store import Store
from hutch.testing.fake_process import Running
from hutch.testing.fake_provider import FakeProvider
from tests.unit.engine_stage import HANG, pieces

ID = "sbaaaaaaaaaaaaaaaa"


class Unsure(Locations):
    """The database goes while it changes hands: before that is written, or just after."""

    written = True

    async def move(self, location: Location, worker_id: str) -> bool:
        if self.written:
            await super().move(location, worker_id)
        raise StoreUnavailable("it went")


class Stage:
    def __init__(self, folder: Path, store: Store, heirs: Store, locations: Locations) -> None:
        self.folder = folder / ID
        self.provider = FakeProvider()
        self.provider.on(_UNPACK, self._unpack)
        self.store, self.locations = store, locations
        sandboxes = Sandboxes(
            store=heirs, provider=self.provider, folder=folder, templates={"bash": BASH}, max_running=3
        )
        self._parts = {"sandboxes": sandboxes, "store": heirs, "provider": self.provider}
        self.code = 0

    async def _unpack(self, me: Running) -> int:
        return self.code

    async def location(self) -> Location:
        record = await self.store.sandbox(ID)
        assert record is not None
        return location_of(record)

    async def receive(self, locations: Locations, archive: AsyncIterator[bytes] | None = None) -> None:
        moving = Moving(locations=locations, **self._parts)  # type: ignore[arg-type]  # of the types they were made of
        await moving.receive(await self.location(), archive or pieces(b"archive"))


def play(folder: Path, body: Callable[[Stage, Unsure], Awaitable[None]]) -> None:
    async def run() -> None:
        database = await open_database(folder / "hutch.db")
        (folder / "w2").mkdir()
        store, now = Store(database, "w1"), time.time()
        what = (ID, "local", "bash", "fake")
        record = SandboxRecord(*what, "stopped", None, "/", {}, now, now, now + 600, "remove", 600.0, False, "w1")
        try:
            async with asyncio.timeout(HANG):
                await store.add_sandbox(record)
                stage = Stage(folder / "w2", store, Store(database, "w2"), Locations(database))
                await body(stage, Unsure(database))
        finally:
            await store.aclose()

    asyncio.run(run())


def test_files_stay_when_nobody_knows_whether_they_are_ours(tmp_path: Path) -> None:
    async def body(stage: Stage, unsure: Unsure) -> None:
        with pytest.raises(StoreUnavailable):
            await stage.receive(unsure)
        assert (await stage.location()).worker_id == "w2"
        assert stage.folder.is_dir(), "the only copy is gone"
        lock = try_lock(stage.folder)
        assert lock is not None, "nobody can use it"
        lock.release()

    play(tmp_path, body)


def test_what_an_earlier_try_left_is_in_nobodys_way(tmp_path: Path) -> None:
    async def body(stage: Stage, unsure: Unsure) -> None:
        unsure.written = False
        with pytest.raises(StoreUnavailable):
            await stage.receive(unsure)
        assert (await stage.location()).worker_id == "w1"
        await stage.receive(stage.locations)
        assert (await stage.location()).worker_id == "w2"
        assert stage.folder.is_dir()
        with pytest.raises(InvalidRequest):  # it is ours: nothing that comes in may touch it
            await stage.receive(stage.locations)
        assert stage.folder.is_dir()

    play(tmp_path, body)


def test_what_cannot_be_taken_leaves_nothing(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"a part"
        raise ConnectionResetError

    class Late(Locations):
        async def move(self, location: Location, worker_id: str) -> bool:
            return False

    async def body(stage: Stage, unsure: Unsure) -> None:
        with pytest.raises(ConnectionResetError):
            await stage.receive(stage.locations, broken())
        assert not stage.folder.exists()
        stage.code = 2
        with pytest.raises(SandboxUnavailable, match="unpacked"):
            await stage.receive(stage.locations)
        assert not stage.folder.exists()
        stage.code = 0
        with pytest.raises(SandboxMoved):
            await stage.receive(Late(unsure._database))
        assert list(stage.folder.parent.iterdir()) == []

    play(tmp_path, body)


def test_a_folder_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "taken"
    folder.mkdir()
    (folder / "file").touch()
    with pytest.raises(SandboxUnavailable):
        make_folder(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
