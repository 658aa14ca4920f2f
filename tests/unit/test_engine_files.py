"""Files through the engine: whole or not at all, within the limits, never beside the workspace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from hutch.engine.files import WriteRequest
from hutch.model.errors import (
    FileConflict,
    HutchError,
    InvalidRequest,
    LimitExceeded,
    PathRejected,
    PortUnreachable,
    SandboxFileNotFound,
    SandboxUnavailable,
)
from hutch.model.limits import MIB
from hutch.testing.fake_files import File
from hutch.testing.fake_ports import FakeStream
from tests.unit.engine_stage import TENANT, Stage, pieces, play, until

MB = 1024 * 1024


@pytest.mark.parametrize("size", [0, 1, MB - 1, MB, MB + 1, 3 * MB])
def test_bytes_come_back_as_they_went(tmp_path: Path, size: int) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        data = bytes(range(256)) * (size // 256 + 1)
        await stage.write(sandbox, "sub/a.bin", data[:size])
        assert await stage.read(sandbox, "/workspace/sub/a.bin") == data[:size]
        assert await stage.read(sandbox, "sub/a.bin", offset=100, length=50) == data[:size][100:150]
        assert await stage.read(sandbox, "sub/a.bin", offset=size + 9) == b""

    play(tmp_path, body)


def test_the_result_of_a_write_is_as_promised(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        request = WriteRequest("/workspace/a.txt", 5)
        assert await stage.engine.files.write(TENANT, sandbox, request, pieces(b"hello")) == {
            "status": "uploaded",
            "filename": "a.txt",
            "path": "/workspace/a.txt",
            "size_bytes": 5,
        }

    play(tmp_path, body)


def test_a_file_over_its_limit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session(template="bash")
        await stage.write(sandbox, "exact", b"x" * MB)
        for known in (True, False):
            data = b"x" * (MB + 1)
            request = WriteRequest("big", len(data) if known else None)
            with pytest.raises(LimitExceeded, match=r"File size exceeds maximum.*MAX_FILE_SIZE_MB") as caught:
                await stage.engine.files.write(TENANT, sandbox, request, pieces(data))
            assert caught.value.details["limit"] == "file_size"
        assert [row["name"] for row in (await stage.engine.files.list_files(TENANT, sandbox))["files"]] == ["exact"]

    play(tmp_path, body, max_file_size_mb=1)


def test_a_workspace_has_its_size_and_its_number_of_files(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session(template="bash")
        await stage.write(sandbox, "a", b"x" * MB)
        with pytest.raises(LimitExceeded, match="MAX_WORKSPACE_SIZE_MB"):
            await stage.write(sandbox, "b", b"x" * (MB + 1))
        await stage.write(sandbox, "b", b"")
        await stage.write(sandbox, "c", b"")
        with pytest.raises(LimitExceeded, match="files") as caught:
            await stage.write(sandbox, "d", b"")
        assert caught.value.details["limit"] == "files"
        with pytest.raises(LimitExceeded):
            await stage.engine.files.mkdir(TENANT, sandbox, "folder", parents=False)
        await stage.write(sandbox, "c", b"over itself")  # no new file

    play(tmp_path, body, max_file_size_mb=10, max_workspace_size_mb=2, max_total_files=3)


def test_a_sender_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        await stage.write(sandbox, "a.txt", b"old")
        closed: list[bool] = []

        async def broken() -> AsyncIterator[bytes]:
            try:
                yield b"new"
                raise SandboxUnavailable("the sender went away")
            finally:
                closed.append(True)

        with pytest.raises(SandboxUnavailable):
            await stage.engine.files.write(TENANT, sandbox, WriteRequest("a.txt", None), broken())
        assert closed == [True]
        assert await stage.read(sandbox, "a.txt") == b"old"
        assert stage.live(sandbox).busy == 0

    play(tmp_path, body)


def test_a_reader_that_leaves_early_lets_go(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        await stage.write(sandbox, "a", b"x" * (3 * MB))
        async with aclosing(stage.engine.files.read(TENANT, sandbox, "a")) as data:  # type: ignore[type-var]
            async for _ in data:
                break
        assert stage.live(sandbox).busy == 0

    play(tmp_path, body)


def test_without_overwrite_a_file_stays(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        await stage.write(sandbox, "a", b"old")
        with pytest.raises(FileConflict):
            await stage.engine.files.write(TENANT, sandbox, WriteRequest("a", 3, overwrite=False), pieces(b"new"))
        await stage.engine.files.mkdir(TENANT, sandbox, "folder", parents=False)
        with pytest.raises(PathRejected):
            await stage.write(sandbox, "folder", b"")
        assert await stage.read(sandbox, "a") == b"old"

    play(tmp_path, body)


@pytest.mark.parametrize("mode", [-1, 0o1000, 0o4755, 0o100644])
def test_modes_have_nine_bits(tmp_path: Path, mode: int) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        with pytest.raises(InvalidRequest, match="mode"):
            await stage.engine.files.write(TENANT, sandbox, WriteRequest("a", 0, mode=mode), pieces(b""))

    play(tmp_path, body)


@pytest.mark.parametrize("path", ["..", "../x", "/etc/passwd", "a/../../x", "", "a\0b", ".", "x" * 256])
def test_bad_paths_are_refused_by_every_call(tmp_path: Path, path: str) -> None:
    async def body(stage: Stage) -> None:
        sandbox, files = await stage.session(), stage.engine.files
        await stage.write(sandbox, "good", b"x")
        calls: list[Any] = [
            stage.write(sandbox, path, b""),
            stage.read(sandbox, path),
            files.mkdir(TENANT, sandbox, path, parents=True),
            files.move(TENANT, sandbox, path, "y", overwrite=True),
            files.move(TENANT, sandbox, "good", path, overwrite=True),
            files.remove(TENANT, sandbox, path, recursive=True),
        ]
        if path != ".":
            calls += [
                files.stat(TENANT, sandbox, path),
                files.list(TENANT, sandbox, path, recursive=True),
                stage.engine.context.set(TENANT, sandbox, cwd=path, env=None),
            ]
        for call in calls:
            with pytest.raises(PathRejected):
                await call
        assert await stage.read(sandbox, "good") == b"x"

    play(tmp_path, body)


def test_a_sparse_giant_is_not_read_out(tmp_path: Path) -> None:
    class Sparse(bytes):
        def __len__(self) -> int:
            return 10**15

    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        stage.machine(sandbox).tree.put("giant", File(Sparse(b"start")))
        with pytest.raises(LimitExceeded, match="offset and length"):
            await stage.read(sandbox, "giant")
        assert await stage.read(sandbox, "giant", length=5) == b"start"

    play(tmp_path, body)


@pytest.mark.parametrize("bounds", [{"offset": -1}, {"length": -1}])
def test_ranges_are_not_negative(tmp_path: Path, bounds: dict[str, int]) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        await stage.write(sandbox, "a", b"x")
        with pytest.raises(InvalidRequest):
            await stage.read(sandbox, "a", **bounds)

    play(tmp_path, body)


def test_list_files_is_the_top_level_newest_first(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        for name in ("one", "two", "sub/three"):
            await stage.write(sandbox, name, b"12")
            await asyncio.sleep(0.005)
        await stage.run(sandbox, "ln -s one link")
        listing = await stage.engine.files.list_files(TENANT, sandbox)
        assert [row["name"] for row in listing["files"]] == ["two", "one"]
        assert set(listing["files"][0]) == {"name", "size_bytes", "modified", "permissions"}
        assert listing["files"][0]["permissions"] == "-rw-r--r--"
        assert listing["files"][0]["modified"].endswith("Z")
        assert (listing["total_files"], listing["total_size_bytes"]) == (2, 4)
        assert (listing["workspace_dir"], bool(listing["session_id"])) == ("/workspace", True)

    play(tmp_path, body)


def test_folders_are_made_moved_removed_and_told(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox, files = await stage.session(), stage.engine.files
        await files.mkdir(TENANT, sandbox, "a/b/", parents=True)
        await stage.write(sandbox, "a/b/c", b"123")
        await files.move(TENANT, sandbox, "a/b", "d", overwrite=False)
        assert (await files.stat(TENANT, sandbox, "d/c"))["size_bytes"] == 3
        paths = [row["path"] for row in await files.list(TENANT, sandbox, ".", recursive=True)]
        assert sorted(paths) == ["a", "d", "d/c"]
        with pytest.raises(FileConflict):
            await files.remove(TENANT, sandbox, "d/", recursive=False)
        await files.remove(TENANT, sandbox, "d/", recursive=True)
        with pytest.raises(SandboxFileNotFound):
            await files.stat(TENANT, sandbox, "d/c")

    play(tmp_path, body)


def test_a_watch_tells_until_it_is_closed(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        seen: list[str] = []

        async def watch() -> None:
            async for event in stage.engine.files.watch(TENANT, sandbox, ".", recursive=True):
                seen.append(f"{event['kind']} {event['path']}")

        watcher = asyncio.create_task(watch())
        await until(lambda: stage.live(sandbox).busy == 1)
        await asyncio.sleep(0.02)
        await stage.write(sandbox, "a.txt", b"x")
        await until(lambda: any("a.txt" in event for event in seen))
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
        assert stage.live(sandbox).busy == 0

    play(tmp_path, body)


def test_file_calls_after_a_crash_wake_the_machine(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        await stage.write(sandbox, "a", b"kept")
        stage.machine(sandbox).die("power cut")
        assert await stage.read(sandbox, "a") == b"kept"

    play(tmp_path, body)


def test_ports_carry_bytes_both_ways(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()

        async def echo(stream: FakeStream) -> None:
            while data := await stream.receive():
                await stream.send(data.upper())

        stage.machine(sandbox).serve(8080, echo)
        connection = await stage.engine.ports.connect(TENANT, sandbox, 8080)
        await connection.send(b"hello")
        assert await connection.receive() == b"HELLO"
        await connection.send_eof()
        assert await connection.receive() == b""
        await connection.aclose()
        with pytest.raises(PortUnreachable):
            await stage.engine.ports.connect(TENANT, sandbox, 8081)
        for bad in (0, -1, 65536):
            with pytest.raises(InvalidRequest):
                await stage.engine.ports.connect(TENANT, sandbox, bad)
        assert stage.live(sandbox).busy == 0

    play(tmp_path, body)


def test_errors_of_the_provider_pass_through(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        for call in ("open_write", "usage"):
            stage.provider.faults.fail_next(call, SandboxUnavailable("it went away"))
            with pytest.raises(HutchError, match="it went away"):
                await stage.write(sandbox, "a", b"x", size_known=False)
        assert stage.live(sandbox).busy == 0

    play(tmp_path, body)


def test_small_uploads_soon_after_a_count_are_not_counted_again(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session()
        await stage.write(sandbox, "a", b"x", size_known=False)
        stage.provider.faults.fail_next("usage", SandboxUnavailable("it was counted"))
        await stage.write(sandbox, "b", b"x")
        with pytest.raises(HutchError, match="it was counted"):
            await stage.write(sandbox, "c", b"x", size_known=False)

    play(tmp_path, body)


def test_a_workspace_that_may_be_half_full_is_counted(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        sandbox = await stage.session(template="bash")
        await stage.write(sandbox, "a", b"x", size_known=False)
        stage.provider.faults.fail_next("usage", SandboxUnavailable("it was counted"))
        for number in range(498):
            await stage.write(sandbox, f"{number}", b"x")
        with pytest.raises(HutchError, match="it was counted"):
            await stage.write(sandbox, "one-more", b"x")

    play(tmp_path, body)


@pytest.mark.parametrize("size_known", [True, False])
def test_many_uploads_at_once_share_the_room(tmp_path: Path, size_known: bool) -> None:
    """Each is refused or fits; together they never take more than there is."""

    async def body(stage: Stage) -> None:
        sandbox = await stage.session(template="bash")
        data = bytes(900_000)
        wanted = [stage.write(sandbox, f"f{number}", data, size_known=size_known) for number in range(20)]
        outcomes = await asyncio.gather(*wanted, return_exceptions=True)
        assert {type(one) for one in outcomes} <= {type(None), LimitExceeded}
        listed = await stage.engine.files.list_files(TENANT, sandbox)
        assert 0 < listed["total_size_bytes"] <= 2 * MIB
        assert stage.live(sandbox).gauge.promised == 0

    play(tmp_path, body, max_workspace_size_mb=2, max_file_size_mb=1)
