"""The contract, part five: folders, moving, removing, and watching."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from hutch.model.errors import FileConflict, HutchError, PathRejected, SandboxFileNotFound
from hutch.model.files import FileEvent
from hutch.testing import contract_scripts as scripts
from hutch.testing.contract_stage import ContractStage, Stage, staged, staged_with


class FolderContract(ContractStage):
    # --- list and mkdir ----------------------------------------------------------------------------------------

    @staged
    async def test_a_new_workspace_is_empty(self, stage: Stage) -> None:
        assert await stage.names(recursive=True) == []

    @staged
    async def test_a_list_shows_one_folder_or_all(self, stage: Stage) -> None:
        await stage.write("a/b/file", b"x", parents=True)
        await stage.write("top", b"xy")
        assert await stage.names() == ["a", "top"]
        assert await stage.names("a") == ["a/b"]
        assert await stage.names(recursive=True) == ["a", "a/b", "a/b/file", "top"]
        assert await stage.names("a", recursive=True) == ["a/b", "a/b/file"]

    @staged
    async def test_a_list_tells_kinds_and_follows_no_link(self, stage: Stage) -> None:
        await stage.execute(scripts.LINKS)
        entries = await stage.machine.list(".", recursive=True, max_entries=100)
        kinds = {entry["path"]: entry["kind"] for entry in entries}
        assert kinds["real"] == "directory"
        assert kinds["real/file"] == "file"
        assert kinds["pipe"] == "other"
        assert {kinds[name] for name in ("inner", "inner_folder", "out", "out_folder", "circle")} == {"symlink"}
        assert "inner_folder/file" not in kinds

    @staged
    async def test_a_list_stops_where_asked(self, stage: Stage) -> None:
        for n in range(20):
            await stage.write(f"f{n}", b"")
        assert len(await stage.machine.list(".", recursive=False, max_entries=7)) == 7
        assert len(await stage.machine.list(".", recursive=True, max_entries=20)) == 20

    @staged
    async def test_a_thousand_files_are_listed(self, stage: Stage) -> None:
        for n in range(1000):
            await stage.write(f"file-{n:04}", b"x")
        assert await stage.names() == [f"file-{n:04}" for n in range(1000)]

    @staged
    async def test_a_list_of_what_is_not_there(self, stage: Stage) -> None:
        with pytest.raises(SandboxFileNotFound):
            await stage.names("missing")

    @staged
    async def test_mkdir_makes_one_or_all(self, stage: Stage) -> None:
        with pytest.raises(SandboxFileNotFound):
            await stage.machine.mkdir("a/b/c", parents=False)
        await stage.machine.mkdir("a", parents=False)
        with pytest.raises(FileConflict):
            await stage.machine.mkdir("a", parents=False)
        await stage.machine.mkdir("a/b/c", parents=True)
        await stage.machine.mkdir("a/b/c", parents=True)
        assert await stage.names(recursive=True) == ["a", "a/b", "a/b/c"]

    @staged
    async def test_mkdir_over_a_file_is_refused(self, stage: Stage) -> None:
        await stage.write("file", b"x")
        for path, parents in (("file", False), ("file", True), ("file/below", True)):
            with pytest.raises((FileConflict, PathRejected)):
                await stage.machine.mkdir(path, parents=parents)
        assert await stage.read("file") == b"x"

    @staged
    async def test_commands_can_use_made_folders(self, stage: Stage) -> None:
        await stage.machine.mkdir("made", parents=False)
        assert (await stage.execute("echo hi > made/file")).exit.exit_code == 0
        assert await stage.read("made/file") == b"hi\n"

    # --- move --------------------------------------------------------------------------------------------------

    @staged
    async def test_files_and_folders_move(self, stage: Stage) -> None:
        await stage.write("a/file", b"1", parents=True)
        await stage.machine.move("a/file", "moved", overwrite=False)
        await stage.machine.move("a", "b", overwrite=False)
        await stage.machine.move("moved", "b/back", overwrite=False)
        assert await stage.names(recursive=True) == ["b", "b/back"]
        assert await stage.read("b/back") == b"1"

    @staged
    async def test_a_move_replaces_only_when_asked(self, stage: Stage) -> None:
        await stage.write("a", b"1")
        await stage.write("b", b"2")
        with pytest.raises(FileConflict):
            await stage.machine.move("a", "b", overwrite=False)
        assert [await stage.read("a"), await stage.read("b")] == [b"1", b"2"]
        await stage.machine.move("a", "b", overwrite=True)
        assert await stage.names() == ["b"]
        assert await stage.read("b") == b"1"

    @staged
    async def test_a_move_from_or_to_nowhere(self, stage: Stage) -> None:
        await stage.write("a", b"1")
        with pytest.raises(SandboxFileNotFound):
            await stage.machine.move("missing", "b", overwrite=False)
        with pytest.raises(SandboxFileNotFound):
            await stage.machine.move("a", "missing/b", overwrite=False)
        for target in ("../a", "/tmp/a", ".."):
            with pytest.raises((PathRejected, SandboxFileNotFound)):
                await stage.machine.move("a", target, overwrite=True)
        assert await stage.names() == ["a"]

    @staged
    async def test_a_folder_does_not_move_into_itself(self, stage: Stage) -> None:
        await stage.machine.mkdir("a/b", parents=True)
        with pytest.raises(HutchError):
            await stage.machine.move("a", "a/b/c", overwrite=False)
        assert await stage.names(recursive=True) == ["a", "a/b"]

    @staged
    async def test_a_link_moves_itself(self, stage: Stage) -> None:
        await stage.execute(scripts.LINKS)
        await stage.machine.move("out", "still_out", overwrite=False)
        assert (await stage.machine.stat("still_out"))["target"] == "/etc/passwd"

    # --- remove ------------------------------------------------------------------------------------------------

    @staged
    async def test_a_file_is_removed(self, stage: Stage) -> None:
        await stage.write("a", b"1")
        await stage.machine.remove("a", recursive=False)
        assert await stage.names() == []
        with pytest.raises(SandboxFileNotFound):
            await stage.machine.remove("a", recursive=False)

    @staged
    async def test_a_full_folder_is_removed_only_when_asked(self, stage: Stage) -> None:
        await stage.write("a/b/file", b"x", parents=True)
        with pytest.raises((FileConflict, PathRejected)):
            await stage.machine.remove("a", recursive=False)
        assert await stage.read("a/b/file") == b"x"
        await stage.machine.remove("a", recursive=True)
        assert await stage.names() == []

    @staged
    async def test_a_link_is_removed_not_what_it_points_to(self, stage: Stage) -> None:
        await stage.execute(scripts.LINKS)
        for name in ("inner", "inner_folder", "out", "out_folder", "magic", "circle", "dangling", "pipe"):
            await stage.machine.remove(name, recursive=True)
        assert await stage.names(recursive=True) == ["real", "real/file"]

    @staged
    async def test_locked_and_deep_folders_are_removed(self, stage: Stage) -> None:
        for text, name in ((scripts.LOCKED_FOLDERS, "locked"), (scripts.DEEP_FOLDERS, "d")):
            assert (await stage.execute(text)).stdout == b"made\n"
            await stage.machine.remove(name, recursive=True)
        assert await stage.names() == []

    @staged
    async def test_the_workspace_itself_stays(self, stage: Stage) -> None:
        await stage.write("a", b"1")
        for path in (".", "", "..", "/"):
            with pytest.raises(HutchError):
                await stage.machine.remove(path, recursive=True)
        assert await stage.names() == ["a"]

    # --- watch -------------------------------------------------------------------------------------------------

    @staged_with("watch")
    async def test_a_watch_sees_what_calls_do(self, stage: Stage) -> None:
        events = stage.machine.watch(".", recursive=False)
        await _first_event(events, stage)
        await stage.write("seen", b"x")
        await _until_seen(events, "seen", {"created", "modified", "moved_to"})
        await stage.machine.remove("seen", recursive=False)
        await _until_seen(events, "seen", {"removed"})

    @staged_with("watch")
    async def test_a_watch_sees_what_commands_do(self, stage: Stage) -> None:
        events = stage.machine.watch(".", recursive=False)
        await _first_event(events, stage)
        await stage.execute("echo hi > by_command")
        await _until_seen(events, "by_command", {"created", "modified"})
        await stage.machine.move("by_command", "renamed", overwrite=False)
        await _until_seen(events, "by_command", {"moved_from"})
        await _until_seen(events, "renamed", {"moved_to"})

    @staged_with("watch")
    async def test_a_recursive_watch_sees_below(self, stage: Stage) -> None:
        await stage.machine.mkdir("a/b", parents=True)
        events = stage.machine.watch(".", recursive=True)
        await _first_event(events, stage)
        await stage.write("a/b/deep", b"x")
        await _until_seen(events, "a/b/deep", {"created", "modified", "moved_to"})

    @staged_with("watch")
    async def test_a_watch_of_what_is_not_there(self, stage: Stage) -> None:
        with pytest.raises(SandboxFileNotFound):
            await anext(aiter(stage.machine.watch("missing", recursive=False)))

    @staged_with("watch")
    async def test_a_watch_ends_with_the_machine(self, stage: Stage) -> None:
        events = stage.machine.watch(".", recursive=False)
        await _first_event(events, stage)
        await stage.machine.stop()
        await _drained(events)


async def _first_event(events: AsyncIterator[FileEvent], stage: Stage) -> None:
    """Makes noise until the watch hears it: from then on it misses nothing."""
    heard = asyncio.ensure_future(anext(events))
    number = 0
    while not heard.done():
        number += 1
        await stage.write(f"noise{number}", b"")
        await asyncio.wait({heard}, timeout=0.05)
    await heard


async def _until_seen(events: AsyncIterator[FileEvent], path: str, kinds: set[str]) -> None:
    async for event in events:
        if event["path"] == path and event["kind"] in kinds:
            return
    raise AssertionError(f"the watch ended before it saw {kinds} of {path}")


async def _drained(events: AsyncIterator[FileEvent]) -> None:
    """A watch of an ended machine ends too: quietly or with an error, but it does not hang."""
    try:
        async for _ in events:
            pass
    except HutchError:
        return
