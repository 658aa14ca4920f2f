"""The drive on SQLite and on PostgreSQL: whose files are whose, what a quota bounds, what a crash leaves, search."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from hutch.engine.drive.assemble import Drives
from hutch.engine.drive.embedding import ObjectEmbedder
from hutch.engine.drive.grep import Wanted
from hutch.model.drive import VERSIONS_KEPT
from hutch.model.errors import DriveFileNotFound, FileConflict, InvalidRequest, LimitExceeded
from hutch.store.drive import store as drive_store
from tests.contract.store_records import place
from tests.drive_rig import Meaning, one, opened_drives, put

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("each_database")]

ALICE = ("acme", "alice@example.com")


def drives(path: Path, quota: int | None = None) -> AbstractAsyncContextManager[Drives]:
    return opened_drives(path, place(path), quota)


def play(path: Path, test: Callable[[Drives], Awaitable[None]], quota: int | None = None) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), drives(path, quota) as opened:
            await test(opened)

    asyncio.run(run())


async def paths(made: Drives, who: tuple[str, str]) -> list[str]:
    return [entry["path"] for entry in await made.files.ls(*who, recursive=True) if entry["kind"] == "file"]


def test_nobody_sees_what_is_anothers(tmp_path: Path) -> None:
    others = [
        ("acme", "alice"),
        ("acme", "alice2"),
        ("acme", "alice@example.com2"),
        ("acme", "ALICE@example.com"),
        ("acme", "a%"),
        ("acme", "_lice@example.com"),
        ("acme2", "alice@example.com"),
        ("acme alice", "@example.com"),
        ("", "alice@example.com"),
    ]

    async def test(made: Drives) -> None:
        await put(made, ALICE, "/memories/secret.txt", "the treasure is here")
        for number, who in enumerate(others):
            await put(made, who, f"/mine{number}", "nothing")
        assert await paths(made, ALICE) == ["/memories/secret.txt"]
        for number, who in enumerate(others):
            assert await paths(made, who) == [f"/mine{number}"]
            assert [entry["path"] for entry in await made.files.glob(*who, "**")] == [f"/mine{number}"]
            assert (await made.grep.grep(*who, Wanted("treasure")))["matches"] == []
            assert (await made.search.search(*who, "treasure secret"))["hits"] == []
            assert (await made.files.usage(*who))["bytes"] == 7
            for call in (made.files.stat, made.files.versions, made.files.undo, made.files.delete):
                with pytest.raises(DriveFileNotFound):
                    await call(*who, "/memories/secret.txt")
            with pytest.raises(DriveFileNotFound):
                await made.files.move(*who, "/memories", "/x")
        assert (await made.search.search(*ALICE, "treasure"))["hits"][0]["path"] == "/memories/secret.txt"

    play(tmp_path, test)


def test_a_quota_is_told_with_both_numbers_and_history_makes_place(tmp_path: Path) -> None:
    async def test(made: Drives) -> None:
        await put(made, ALICE, "/a", bytes(600))
        with pytest.raises(LimitExceeded) as caught:
            await put(made, ALICE, "/b", bytes(500))
        assert (caught.value.details["limit"], caught.value.details["maximum"]) == ("drive_quota", 1000)
        assert caught.value.details["actual"] == 1100
        with pytest.raises(LimitExceeded):
            await put(made, ALICE, "/huge", bytes(3_000_000))
        assert await paths(made, ALICE) == ["/a"]
        await put(made, ALICE, "/a", bytes(300))
        assert await made.files.usage(*ALICE) == {"bytes": 300, "kept_bytes": 600, "files": 1, "quota_bytes": 1000}
        await put(made, ALICE, "/b", bytes(600))  # the earlier version of /a makes place
        assert await made.files.usage(*ALICE) == {"bytes": 900, "kept_bytes": 0, "files": 2, "quota_bytes": 1000}
        await made.files.delete(*ALICE, "/b")
        await put(made, ALICE, "/c", bytes(700))  # and so does the deleted file
        assert (await made.files.usage(*ALICE))["kept_bytes"] == 0
        with pytest.raises(DriveFileNotFound):
            await made.files.undo(*ALICE, "/b")
        await put(made, ("acme", "bob"), "/a", bytes(1000))  # each user has one

    play(tmp_path, test, quota=1000)


def test_usage_is_what_is_there(tmp_path: Path) -> None:
    async def test(made: Drives) -> None:
        for number in range(VERSIONS_KEPT + 5):
            await put(made, ALICE, "/x/f", bytes(number + 1))
        assert len(await made.files.versions(*ALICE, "/x/f")) == VERSIONS_KEPT
        await put(made, ALICE, "/x/g", bytes(10))
        await made.files.move(*ALICE, "/x/g", "/x/f", overwrite=True)
        await made.files.delete(*ALICE, "/x", recursive=True)
        await made.files.undo(*ALICE, "/x/f")
        await made.files.move(*ALICE, "/x", "/y")
        await made.files.undo(*ALICE, "/y/f")
        used = await made.files.usage(*ALICE)
        kept = sum(one["size_bytes"] for one in await made.files.versions(*ALICE, "/y/f") if not one["current"])
        gone = sum(one["size_bytes"] for one in await made.files.versions(*ALICE, "/y/g"))
        assert (used["files"], used["bytes"], used["kept_bytes"]) == (1, VERSIONS_KEPT + 5, kept + gone)
        assert [entry["path"] for entry in await made.files.ls(*ALICE, recursive=True)] == ["/y", "/y/f"]

    play(tmp_path, test)


def test_writers_at_once_never_mix_and_a_broken_write_leaves_nothing(tmp_path: Path) -> None:
    async def slow(letter: bytes, *, breaks: bool = False) -> AsyncIterator[bytes]:
        for _ in range(6):
            yield letter * 300_000
            await asyncio.sleep(0)
        if breaks:
            raise InvalidRequest("the sender is gone")

    async def test(made: Drives) -> None:
        letters = [bytes([65 + number]) for number in range(6)]
        writes = [made.files.write(*ALICE, "/f", slow(letter)) for letter in letters]
        broken = [made.files.write(*ALICE, path, slow(b"x", breaks=True)) for path in ("/f", "/new")]
        await asyncio.gather(*writes, *broken, return_exceptions=True)
        assert len(await made.files.versions(*ALICE, "/f")) == 6
        for version in await made.files.versions(*ALICE, "/f"):
            found = b"".join([piece async for piece in made.files.read(*ALICE, "/f", version=version["version"])])
            assert (len(found), len(set(found))) == (1_800_000, 1)
        assert await paths(made, ALICE) == ["/f"]
        only_once = [made.files.write(*ALICE, "/once", one(b"x"), overwrite=False) for _ in range(8)]
        outcomes = await asyncio.gather(*only_once, return_exceptions=True)
        assert sum(isinstance(outcome, FileConflict) for outcome in outcomes) == 7
        while await made.files.store.clear_some(time.time()):
            pass
        assert await _leftovers(made) == 0

    play(tmp_path, test)


async def _leftovers(made: Drives) -> int:
    """Chunks that no version names."""
    query = (
        "SELECT count(*) FROM drive_chunks c WHERE NOT EXISTS"
        " (SELECT 1 FROM drive_versions v WHERE v.content_id = c.content_id)"
    )
    return int(await made.files.store._database.read(lambda connection: connection.execute(query).fetchone()[0]))


def test_a_reader_gets_one_version_whole(tmp_path: Path) -> None:
    async def test(made: Drives) -> None:
        await put(made, ALICE, "/f", b"a" * 3_000_000)
        pieces = made.files.read(*ALICE, "/f")
        found = await anext(pieces)
        await put(made, ALICE, "/f", b"b" * 3_000_000)
        await made.files.delete(*ALICE, "/f")
        found += b"".join([piece async for piece in pieces])
        assert found == b"a" * 3_000_000

    play(tmp_path, test)


def test_what_was_not_indexed_is_indexed_by_the_next_process(tmp_path: Path) -> None:
    async def run() -> None:
        async with drives(tmp_path) as first:
            first.indexer.kick = lambda: None  # type: ignore[method-assign]  # it was killed before it came to that
            await put(first, ALICE, "/memories/a.txt", "walrus")
            due = await first.files.store.claim("words", 10)
            assert [one.path for one in due] == ["/memories/a.txt"]
            await first.files.store.postpone(due, time.time() - 1)  # its lease ran out
        async with drives(tmp_path) as second:
            found = await second.search.search(*ALICE, "walrus")
            assert [hit["path"] for hit in found["hits"]] == ["/memories/a.txt"]

    asyncio.run(run())


def test_deleted_files_are_forgotten_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(made: Drives) -> None:
        await put(made, ALICE, "/f", "walrus")
        await made.search.search(*ALICE, "walrus")
        await made.files.delete(*ALICE, "/f")
        monkeypatch.setattr(drive_store, "DELETED_SECONDS", -1)
        while await made.files.store.clear_some(time.time()):
            pass
        with pytest.raises(DriveFileNotFound):
            await made.files.undo(*ALICE, "/f")
        assert await made.files.usage(*ALICE) == {"bytes": 0, "kept_bytes": 0, "files": 0, "quota_bytes": None}
        assert await _leftovers(made) == 0

    play(tmp_path, test)


class Broken(Meaning):
    def embed_query(self, text: str) -> list[float]:
        raise RuntimeError("no power")


def test_meaning_and_words_are_merged_or_it_is_said_why_not(tmp_path: Path) -> None:
    async def test(made: Drives) -> None:
        await put(made, ALICE, "/before.txt", "The kitten sleeps")  # before there was an embedder
        await put(made, ALICE, "/dog.txt", "My puppy likes walks")
        await put(made, ALICE, "/bin", b"\0\1\2")
        await put(made, ("acme", "bob"), "/cat.txt", "cat feline purr")
        made.indexer.use(ObjectEmbedder(Meaning()))
        found = await made.search.search(*ALICE, "feline purr")
        if isinstance(place(tmp_path), str):  # Debian's PostgreSQL has no pgvector
            assert (found["by"], found["hits"]) == ("words", [])
            assert "pgvector" in (found["note"] or "")
            return
        assert (found["by"], found["note"]) == ("words+meaning", None)
        assert found["hits"][0] == {
            "path": "/before.txt",
            "score": found["hits"][0]["score"],
            "snippet": "The kitten sleeps",
        }
        both = await made.search.search(*ALICE, "feline walks")
        assert {hit["path"] for hit in both["hits"][:2]} == {"/before.txt", "/dog.txt"}
        await made.files.edit(*ALICE, "/before.txt", "kitten", "flight")
        changed = await made.search.search(*ALICE, "hotel")
        assert changed["hits"][0]["path"] == "/before.txt"
        made.indexer.use(ObjectEmbedder(Broken()))
        broken = await made.search.search(*ALICE, "puppy")
        assert (broken["by"], [hit["path"] for hit in broken["hits"]]) == ("words", ["/dog.txt"])
        assert "no power" in (broken["note"] or "")

    play(tmp_path, test)
