"""The contract, part four: reading and writing files, and the paths that must lead nowhere."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from hutch.model.errors import FileConflict, HutchError, PathRejected, SandboxFileNotFound
from hutch.testing import contract_scripts as scripts
from hutch.testing.contract_stage import ContractStage, Stage, staged

# What must never be served: it exists on every host and in no workspace.
HOST_FILE_STARTS = b"root:"


class FileContract(ContractStage):
    # --- what is written is read -------------------------------------------------------------------------------

    @staged
    async def test_files_come_back_as_they_were(self, stage: Stage) -> None:
        for size in (0, 1, 4095, 1_048_577):
            data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
            await stage.write(f"file{size}", data)
            assert await stage.read(f"file{size}") == data

    @staged
    async def test_commands_and_calls_see_the_same_files(self, stage: Stage) -> None:
        await stage.write("in.txt", b"from outside\n")
        assert (await stage.execute("cat in.txt")).stdout == b"from outside\n"
        await stage.execute("echo from inside > out.txt")
        assert await stage.read("out.txt") == b"from inside\n"

    @staged
    async def test_commands_may_change_what_was_uploaded(self, stage: Stage) -> None:
        await stage.write("a.txt", b"1\n")
        assert (await stage.execute("echo 2 >> a.txt")).exit.exit_code == 0
        assert await stage.read("a.txt") == b"1\n2\n"

    @staged
    async def test_a_file_is_read_from_an_offset(self, stage: Stage) -> None:
        await stage.write("digits", b"0123456789")
        assert await stage.read("digits", 7) == b"789"
        assert await stage.read("digits", 10) == b""
        assert await stage.read("digits", 5000) == b""

    @staged
    async def test_a_reader_gives_no_more_than_asked(self, stage: Stage) -> None:
        await stage.write("digits", b"0123456789")
        reader = await stage.machine.open_read("digits")
        assert reader.size == 10
        assert [await reader.read(4), await reader.read(4), await reader.read(4)] == [b"0123", b"4567", b"89"]
        assert await reader.read(4) == b""
        await reader.aclose()

    @staged
    async def test_a_write_appears_whole_or_not_at_all(self, stage: Stage) -> None:
        writer = await stage.machine.open_write("new")
        await writer.write(b"half")
        assert "new" not in await stage.names()
        await writer.write(b" and half")
        await writer.commit()
        assert await stage.read("new") == b"half and half"
        assert await stage.names() == ["new"]

    @staged
    async def test_a_write_given_up_leaves_nothing(self, stage: Stage) -> None:
        await stage.write("kept", b"old")
        for name in ("kept", "new"):
            writer = await stage.machine.open_write(name)
            await writer.write(b"never")
            await writer.abort()
        assert await stage.names() == ["kept"]
        assert await stage.read("kept") == b"old"

    @staged
    async def test_a_reader_keeps_the_file_it_opened(self, stage: Stage) -> None:
        await stage.write("a", b"old content")
        reader = await stage.machine.open_read("a")
        await stage.write("a", b"new")
        assert await reader.read(100) == b"old content"
        await reader.aclose()
        assert await stage.read("a") == b"new"

    @staged
    async def test_many_writers_of_one_name_leave_one_whole_file(self, stage: Stage) -> None:
        contents = [bytes([65 + n]) * 50_000 for n in range(8)]
        await asyncio.gather(*(stage.write("same", data) for data in contents))
        assert await stage.read("same") in contents
        assert await stage.names() == ["same"]

    @staged
    async def test_a_file_gets_the_mode_asked_for(self, stage: Stage) -> None:
        await stage.write("script", b"#!/bin/bash\n", mode=0o755)
        await stage.write("plain", b"")
        assert (await stage.machine.stat("script"))["permissions"] == "-rwxr-xr-x"
        assert (await stage.machine.stat("plain"))["permissions"] == "-rw-r--r--"

    @staged
    async def test_missing_folders_are_made_when_asked(self, stage: Stage) -> None:
        with pytest.raises(SandboxFileNotFound):
            await stage.machine.open_write("a/b/c")
        assert await stage.names() == []
        await stage.write("a/b/c", b"deep", parents=True)
        await stage.write("a/b/d", b"there", parents=True)
        assert await stage.names(recursive=True) == ["a", "a/b", "a/b/c", "a/b/d"]

    # --- what is no file ---------------------------------------------------------------------------------------

    @staged
    async def test_a_missing_file_is_not_found(self, stage: Stage) -> None:
        for path in ("missing", "missing/below"):
            with pytest.raises(SandboxFileNotFound):
                await stage.machine.open_read(path)
            with pytest.raises(SandboxFileNotFound):
                await stage.machine.stat(path)

    @staged
    async def test_a_folder_is_no_file(self, stage: Stage) -> None:
        await stage.machine.mkdir("folder", parents=False)
        with pytest.raises(PathRejected):
            await stage.machine.open_read("folder")
        with pytest.raises((PathRejected, FileConflict)):
            await stage.write("folder", b"x")
        assert await stage.names(recursive=True) == ["folder"]

    @staged
    async def test_a_file_is_no_folder(self, stage: Stage) -> None:
        await stage.write("file", b"x")
        with pytest.raises(PathRejected):
            await stage.machine.open_read("file/below")
        with pytest.raises(PathRejected):
            await stage.machine.list("file", recursive=False, max_entries=10)

    @staged
    async def test_a_pipe_is_refused_at_once(self, stage: Stage) -> None:
        await stage.execute(scripts.LINKS)
        with pytest.raises(PathRejected):
            await stage.machine.open_read("pipe")
        assert (await stage.machine.stat("pipe"))["kind"] == "other"

    # --- paths -------------------------------------------------------------------------------------------------

    @staged
    async def test_no_text_leads_out(self, stage: Stage) -> None:
        await stage.machine.mkdir("a", parents=False)
        for path in ("../../etc/passwd", "..", "a/../../../etc/passwd", "/etc/passwd", "a\0b", "", "../files"):
            with pytest.raises((PathRejected, SandboxFileNotFound)):
                await stage.machine.open_read(path)
            with pytest.raises((PathRejected, SandboxFileNotFound)):
                await stage.write(path, b"x")

    @staged
    async def test_links_within_lead_on(self, stage: Stage) -> None:
        assert (await stage.execute(scripts.LINKS)).exit.exit_code == 0
        assert await stage.read("inner") == b"inside\n"
        assert await stage.read("inner_folder/file") == b"inside\n"

    @staged
    async def test_no_link_leads_out(self, stage: Stage) -> None:
        await stage.execute(scripts.LINKS)
        for path in ("out", "out_folder/passwd", "magic/etc/passwd", "magic", "circle", "dangling", "circle/x"):
            with pytest.raises((PathRejected, SandboxFileNotFound)):
                await stage.machine.open_read(path)
        for path in ("out_folder/new", "magic/workspace/new", "magic/tmp/new", "circle/new"):
            with pytest.raises((PathRejected, SandboxFileNotFound)):
                await stage.write(path, b"x")
        for path in ("out_folder", "magic", "magic/etc"):
            with pytest.raises((PathRejected, SandboxFileNotFound)):
                await stage.machine.list(path, recursive=True, max_entries=100)

    @staged
    async def test_a_write_never_goes_through_a_link(self, stage: Stage) -> None:
        await stage.execute(scripts.LINKS)
        for path in ("out", "dangling", "circle", "magic"):
            try:
                await stage.write(path, b"mine")
            except (PathRejected, FileConflict):
                continue
            assert await stage.read(path) == b"mine"  # it took the link's place
        assert not (await stage.execute("cat /etc/passwd")).stdout.startswith(b"mine")
        assert "nowhere" not in await stage.names()

    @staged
    async def test_odd_names_are_names(self, stage: Stage) -> None:
        await stage.execute(scripts.ODD_NAMES)
        odd = {"new\nline", "-rf", "\udcff\udcfe", "é ü", "n" * 255}
        assert set(await stage.names()) == odd
        for name in odd:
            await stage.write(name, name.encode("utf-8", "surrogateescape"))
            assert await stage.read(name) == name.encode("utf-8", "surrogateescape")
            await stage.machine.remove(name, recursive=False)
        assert await stage.names() == []

    @staged
    async def test_a_name_that_is_too_long_is_refused(self, stage: Stage) -> None:
        with pytest.raises(PathRejected):
            await stage.write("n" * 256, b"x")
        with pytest.raises(HutchError):
            await stage.machine.open_read("/".join(["d" * 200] * 40))

    # --- stat --------------------------------------------------------------------------------------------------

    @staged
    async def test_stat_tells_what_there_is(self, stage: Stage) -> None:
        await stage.write("sub/file.txt", b"12345", parents=True)
        info = await stage.machine.stat("sub/file.txt")
        assert (info["path"], info["name"], info["kind"], info["size_bytes"], info["target"]) == (
            "sub/file.txt",
            "file.txt",
            "file",
            5,
            None,
        )
        assert datetime.fromisoformat(info["modified"]).utcoffset() == timedelta(0)
        folder = await stage.machine.stat("sub")
        assert (folder["kind"], folder["permissions"][0]) == ("directory", "d")

    @staged
    async def test_stat_looks_at_a_link_not_through_it(self, stage: Stage) -> None:
        await stage.execute(scripts.LINKS)
        for name, target in (("inner", "real/file"), ("out", "/etc/passwd"), ("dangling", "nowhere")):
            info = await stage.machine.stat(name)
            assert (info["kind"], info["target"], info["permissions"][0]) == ("symlink", target, "l")
