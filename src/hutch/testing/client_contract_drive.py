"""The client contract: drives."""

from __future__ import annotations

import asyncio
import hashlib
import os

import pytest

from hutch.model.errors import (
    DriveFileNotFound,
    FileConflict,
    InvalidRequest,
    NoActiveSession,
    PathRejected,
)
from hutch.model.limits import MIB
from hutch.testing.client_contract_stage import ClientContractStage, Stage, staged


class DriveContract(ClientContractStage):
    @staged
    async def test_a_drive_keeps_bytes_of_any_size(self, stage: Stage) -> None:
        drive = stage.client().drive_of("ann")
        for size in (0, 1, 262_144, 3 * MIB + 1):
            data = os.urandom(size)
            stored = await drive.write_file("/data-exports/x.bin", data)
            assert (stored["size_bytes"], stored["sha256"]) == (size, hashlib.sha256(data).hexdigest())
            assert await drive.read_file("/data-exports/x.bin") == data
        assert await drive.read_file("/data-exports/x.bin", offset=262_140, length=10) == data[262_140:262_150]
        assert await drive.read_file("/data-exports/x.bin", offset=size + 5) == b""
        assert b"".join([piece async for piece in drive.stream("/data-exports/x.bin", offset=1)]) == data[1:]
        with pytest.raises(InvalidRequest):
            await drive.read_file("/data-exports/x.bin", offset=-1)
        with pytest.raises(FileConflict):
            await drive.write_file("/data-exports/x.bin", b"", overwrite=False)

    @staged
    async def test_the_drive_is_that_of_the_bound_user(self, stage: Stage) -> None:
        client = stage.client()
        with pytest.raises(NoActiveSession):
            await client.drive.ls()
        await client.get_or_create_session("ann@example.com", "t")
        await client.drive.write_file("/memories/me.md", "I am Ann. Grüße")
        assert await client.drive_of("ann@example.com").read_text("/memories/me.md") == "I am Ann. Grüße"
        assert await client.for_thread("ann@example.com", "t2").drive.read_text("/memories/me.md")
        for other in ("ann", "ann@example.co", "ann@example.com2", "example.com", "Ann@example.com", "a/../ann", "%"):
            theirs = client.drive_of(other)
            assert await theirs.ls() == []
            assert (await theirs.grep("Ann"))["matches"] == []
            assert (await theirs.search("Ann"))["hits"] == []
            assert await theirs.glob("**") == []
            with pytest.raises(DriveFileNotFound):
                await theirs.read_file("/memories/me.md")
            with pytest.raises(DriveFileNotFound):
                await theirs.delete("/memories", recursive=True)
        for bad in ("", "a\0b", "x" * 513):
            with pytest.raises(InvalidRequest):
                await client.drive_of(bad).ls()

    @staged
    async def test_folders_are_there_while_files_are_below_them(self, stage: Stage) -> None:
        drive = stage.client().drive_of("ann")
        for path in ("/a/b/c.txt", "/a/d.txt", "/a.txt", "/ab/e.txt"):
            await drive.write_file(path, path)
        assert [(one["path"], one["kind"]) for one in await drive.ls("/")] == [
            ("/a", "directory"),
            ("/a.txt", "file"),
            ("/ab", "directory"),
        ]
        assert [one["name"] for one in await drive.ls("/a/")] == ["b", "d.txt"]
        assert [one["path"] for one in await drive.ls("/a", recursive=True)] == ["/a/b", "/a/b/c.txt", "/a/d.txt"]
        assert [one["path"] for one in await drive.ls("/a/d.txt")] == ["/a/d.txt"]
        assert (await drive.stat("/a/b"))["kind"] == "directory"
        assert (await drive.stat("/a/d.txt"))["size_bytes"] == 8
        assert [one["path"] for one in await drive.glob("**/*.txt")] == [
            "/a.txt",
            "/a/b/c.txt",
            "/a/d.txt",
            "/ab/e.txt",
        ]
        assert [one["path"] for one in await drive.glob("*.txt", "/a")] == ["/a/d.txt"]
        with pytest.raises(FileConflict):
            await drive.delete("/a")
        await drive.delete("/a/b/c.txt")
        with pytest.raises(DriveFileNotFound):
            await drive.stat("/a/b")
        with pytest.raises(FileConflict, match="folder"):
            await drive.write_file("/a", b"")
        with pytest.raises(FileConflict, match="is a file"):
            await drive.write_file("/a.txt/b", b"")
        with pytest.raises(PathRejected, match="folder"):
            await drive.read_file("/a")
        for missing in ("/nope", "/a/nope", "/a/d.txt/nope"):
            with pytest.raises(DriveFileNotFound, match=missing):
                await drive.ls(missing)

    @staged
    async def test_changes_can_be_taken_back(self, stage: Stage) -> None:
        drive = stage.client().drive_of("ann")
        for text in ("one", "two", "three"):
            await drive.write_file("/f", text)
        assert [(one["version"], one["current"]) for one in await drive.versions("/f")] == [
            (3, True),
            (2, False),
            (1, False),
        ]
        assert await drive.read_file("/f", version=1) == b"one"
        assert (await drive.undo("/f"))["version"] == 2
        assert await drive.read_text("/f") == "two"
        assert (await drive.write_file("/f", "four"))["version"] == 4
        await drive.delete("/f")
        with pytest.raises(DriveFileNotFound):
            await drive.read_file("/f")
        assert (await drive.undo("/f"))["version"] == 4
        assert await drive.read_text("/f") == "four"
        await drive.undo("/f")
        await drive.undo("/f")
        with pytest.raises(InvalidRequest, match="earlier"):
            await drive.undo("/f")
        with pytest.raises(DriveFileNotFound):
            await drive.read_file("/f", version=4)
        with pytest.raises(DriveFileNotFound):
            await drive.undo("/never")

    @staged
    async def test_edits_want_one_place(self, stage: Stage) -> None:
        drive = stage.client().drive_of("ann")
        await drive.write_file("/f", "a b a\r\n")
        with pytest.raises(InvalidRequest, match="2 times"):
            await drive.edit_file("/f", "a", "c")
        with pytest.raises(InvalidRequest, match="not hold"):
            await drive.edit_file("/f", "x", "c")
        assert await drive.edit_file("/f", "b", "ü") == {"path": "/f", "version": 2, "replacements": 1}
        assert (await drive.edit_file("/f", "a", "c", replace_all=True))["replacements"] == 2
        assert await drive.read_file("/f") == "c ü c\r\n".encode()
        for data in (b"\xff\xfea", b"a\0"):
            await drive.write_file("/binary", data)
            with pytest.raises(InvalidRequest, match="text"):
                await drive.edit_file("/binary", "a", "b")
            assert await drive.read_file("/binary") == data
        with pytest.raises(InvalidRequest, match="UTF-8"):
            await drive.write_file("/latin", b"gr\xfcn")
            await drive.read_text("/latin")

    @staged
    async def test_edits_at_once_lose_nothing(self, stage: Stage) -> None:
        drive = stage.client().drive_of("ann")
        names = [f"n{number}." for number in range(8)]
        await drive.write_file("/f", " ".join(names))
        await asyncio.gather(*(drive.edit_file("/f", name, name.upper()) for name in names))
        assert await drive.read_text("/f") == " ".join(names).upper()

    @staged
    async def test_files_and_folders_are_moved(self, stage: Stage) -> None:
        drive = stage.client().drive_of("ann")
        for path in ("/a/x", "/a/s/y", "/b"):
            await drive.write_file(path, path)
        await drive.move("/a", "/c/d")
        assert [one["path"] for one in await drive.ls(recursive=True)] == [
            "/b",
            "/c",
            "/c/d",
            "/c/d/s",
            "/c/d/s/y",
            "/c/d/x",
        ]
        assert await drive.read_text("/c/d/s/y") == "/a/s/y"
        with pytest.raises(FileConflict):
            await drive.move("/b", "/c/d/x")
        with pytest.raises(FileConflict):
            await drive.move("/b", "/c")
        with pytest.raises(InvalidRequest):
            await drive.move("/c", "/c/d/e")
        with pytest.raises(DriveFileNotFound):
            await drive.move("/nope", "/x")
        await drive.move("/b", "/c/d/x", overwrite=True)
        assert await drive.read_text("/c/d/x") == "/b"
        await drive.undo("/c/d/x")
        await drive.undo("/b")
        assert (await drive.read_text("/c/d/x"), await drive.read_text("/b")) == ("/a/x", "/b")
        assert (await drive.usage())["files"] == 3

    @staged
    async def test_lines_are_found(self, stage: Stage) -> None:
        drive = stage.client().drive_of("ann")
        await drive.write_file("/a.txt", "first\nTotal: 12\r\nlast total")
        await drive.write_file("/big.log", "x\n" * 400_000 + "needle total\n")
        await drive.write_file("/c.bin", b"total\0")
        found = await drive.grep("total")
        assert [(one["path"], one["line"]) for one in found["matches"]] == [("/a.txt", 3), ("/big.log", 400_001)]
        assert (await drive.grep("total", glob="*.txt", ignore_case=True))["matches"] == [
            {"path": "/a.txt", "line": 2, "text": "Total: 12"},
            {"path": "/a.txt", "line": 3, "text": "last total"},
        ]
        by_pattern = await drive.grep(r"^[Tt]otal: \d+$", regex=True)
        assert [one["line"] for one in by_pattern["matches"]] == [2]
        assert (await drive.grep("x", max_matches=5))["truncated"] is True
        assert (await drive.grep("total", path="/a.txt"))["truncated"] is False
        for bad in ("(", "a{99999999999}"):
            with pytest.raises(InvalidRequest, match="regular expression"):
                await drive.grep(bad, regex=True)
        with pytest.raises(DriveFileNotFound):
            await drive.grep("x", path="/nope")

    @staged
    async def test_what_was_written_is_found_at_once(self, stage: Stage) -> None:
        drive = stage.client().drive_of("ann")
        await drive.write_file("/memories/travel.md", "The uber receipt from Lisbon was 42 euros.")
        await drive.write_file("/memories/food.md", "Lunch receipt.")
        await drive.write_file("/other/uber_receipt.bin", b"\0\xff")
        found = await drive.search("uber receipt")
        assert found["by"] == "words"
        assert "no embedder" in (found["note"] or "")
        assert [one["path"] for one in found["hits"]][-1] == "/memories/food.md"
        assert "Lisbon" in next(one["snippet"] for one in found["hits"] if one["path"] == "/memories/travel.md")
        assert [one["path"] for one in (await drive.search("receipt", path="/memories", limit=1))["hits"]]
        await drive.edit_file("/memories/travel.md", "uber", "taxi")
        await drive.delete("/memories/food.md")
        assert [one["path"] for one in (await drive.search("uber"))["hits"]] == ["/other/uber_receipt.bin"]
        assert [one["path"] for one in (await drive.search("lunch"))["hits"]] == []
        for odd in ('"', "a AND OR NOT (", "owner : 1", "*", "'; DROP TABLE drive_files; --", "\U0001f600"):
            await drive.search(odd)
        with pytest.raises(InvalidRequest):
            await drive.search(" ")

    @staged
    async def test_odd_paths(self, stage: Stage) -> None:
        drive = stage.client().drive_of("ann")
        good = [
            "/-rf",
            "/a b\n\t'\"",
            "/" + "n" * 255,
            "/%2e%2e",
            "/ü",
            "/u\u0308",
            "/*",
            "/[a]",
            "/?x=1&y#z",
            "/\u202e",
        ]
        for path in good:
            await drive.write_file(path, path)
        assert sorted(one["path"] for one in await drive.ls()) == sorted(good)
        for path in good:
            assert await drive.read_text(path) == path
        bad = [
            "",
            "a",
            "a/b",
            "/",
            "/a/",
            "/../x",
            "/a/../b",
            "/a\0b",
            "/" + "n" * 256,
            "/" + "a/" * 70 + "b",
            "/\udcff",
        ]
        for path in bad:
            with pytest.raises(PathRejected):
                await drive.write_file(path, b"")
        await drive.write_file("//x/./y", b"")
        assert (await drive.stat("/x/y"))["path"] == "/x/y"
