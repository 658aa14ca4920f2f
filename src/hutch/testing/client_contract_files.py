"""The client contract: files."""

from __future__ import annotations

import os

import pytest

from hutch.model.errors import FileConflict, InvalidRequest, LimitExceeded, PathRejected, SandboxFileNotFound
from hutch.model.limits import MIB
from hutch.testing.client_contract_stage import ClientContractStage, Stage, staged


class ClientFileContract(ClientContractStage):
    @staged
    async def test_a_file_goes_there_and_back(self, stage: Stage) -> None:
        client = await stage.bound()
        for size in (0, 1, 3 * MIB + 1):
            data = os.urandom(size)
            source, target = stage.folder / "source.bin", stage.folder / "target.bin"
            source.write_bytes(data)
            assert await client.upload_file(str(source), remote_name="in.bin") == {
                "status": "uploaded",
                "filename": "in.bin",
                "path": "/workspace/in.bin",
                "size_bytes": size,
            }
            assert await client.download_file("in.bin", local_path=str(target)) == str(target)
            assert target.read_bytes() == data
            assert await client.download_file_to_bytes("/workspace/in.bin") == data
        assert sorted(path.name for path in stage.folder.iterdir()) == ["source.bin", "target.bin"]

    @staged
    async def test_names_have_defaults(self, stage: Stage) -> None:
        client = await stage.bound()
        source = stage.folder / "plain.txt"
        source.write_text("x")
        assert (await client.upload_file(source))["filename"] == "plain.txt"
        os.chdir(stage.folder)
        await client.upload_file_from_bytes("sub/deep.txt", b"deep")
        assert await client.download_file("sub/deep.txt") == "deep.txt"
        assert (stage.folder / "deep.txt").read_text() == "deep"

    @staged
    async def test_bytes_and_texts_are_written(self, stage: Stage) -> None:
        client = await stage.bound()
        assert (await client.upload_file_from_bytes("a.bin", b"\x00\xff"))["size_bytes"] == 2
        await client.files.write("b.txt", "grün", mode=0o600)
        assert await client.files.read("b.txt") == "grün".encode()
        assert (await client.files.stat("b.txt"))["permissions"] == "-rw-------"
        with pytest.raises(FileConflict):
            await client.files.write("b.txt", "", overwrite=False)
        with pytest.raises(InvalidRequest):
            await client.files.write("c.txt", "", mode=0o4755)

    @staged
    async def test_ranges_and_pieces(self, stage: Stage) -> None:
        client = await stage.bound()
        data = os.urandom(2 * MIB + 7)
        await client.upload_file_from_bytes("a", data)
        assert await client.files.read("a", offset=100, length=50) == data[100:150]
        assert await client.files.read("a", offset=len(data) + 1) == b""
        pieces = [piece async for piece in client.files.read_pieces("a", offset=1)]
        assert (b"".join(pieces), len(pieces) > 1) == (data[1:], True)
        items = client.files.read_pieces("a")
        async for _ in items:
            break
        await items.aclose()  # type: ignore[attr-defined]

    @staged
    async def test_list_files_is_as_promised(self, stage: Stage) -> None:
        client = await stage.bound()
        await client.upload_file_from_bytes("a.txt", b"12345")
        await client.files.mkdir("folder")
        listing = await client.list_files()
        assert set(listing) == {"session_id", "workspace_dir", "files", "total_files", "total_size_bytes"}
        assert (listing["session_id"], listing["workspace_dir"]) == (client.session_id, "/workspace")
        assert (listing["total_files"], listing["total_size_bytes"]) == (1, 5)
        (row,) = listing["files"]
        assert set(row) == {"name", "size_bytes", "modified", "permissions"}
        assert (row["name"], row["size_bytes"], row["permissions"]) == ("a.txt", 5, "-rw-r--r--")

    @staged
    async def test_folders(self, stage: Stage) -> None:
        client = await stage.bound()
        files = client.files
        await files.mkdir("a/b", parents=True)
        await files.write("a/b/c", b"x")
        await files.move("a/b", "d")
        assert sorted(row["path"] for row in await files.list(recursive=True)) == ["a", "d", "d/c"]
        assert sorted(row["path"] for row in await files.list()) == ["a", "d"]
        assert [row["name"] for row in await files.list("d")] == ["c"]
        with pytest.raises(FileConflict):
            await files.mkdir("a")
        with pytest.raises(SandboxFileNotFound):
            await files.mkdir("no/parent")
        await files.write("e", b"")
        with pytest.raises(FileConflict):
            await files.move("e", "d/c")
        await files.move("e", "d/c", overwrite=True)
        with pytest.raises(FileConflict):
            await files.remove("d")
        await files.remove("d", recursive=True)
        assert sorted(row["path"] for row in await files.list(recursive=True)) == ["a"]

    @staged
    async def test_a_file_moves_into_another_folder_of_a_strict_sandbox(self, stage: Stage) -> None:
        client = await stage.bound(policy="strict")
        await client.files.write("a", b"content")
        await client.files.mkdir("deep/er", parents=True)
        await client.files.move("a", "deep/er/b")
        assert await client.files.read("deep/er/b") == b"content"
        await client.files.move("deep/er", "up")
        assert await client.files.read("up/b") == b"content"

    @staged
    async def test_what_is_not_there(self, stage: Stage) -> None:
        client = await stage.bound()
        for call in (
            client.download_file_to_bytes("missing"),
            client.download_file("missing", stage.folder / "x"),
            client.files.stat("missing"),
            client.files.remove("missing"),
            client.files.move("missing", "b"),
            client.upload_file(stage.folder / "missing"),
            client.set_cwd("missing"),
        ):
            with pytest.raises(SandboxFileNotFound):
                await call
        assert issubclass(SandboxFileNotFound, FileNotFoundError)
        assert list(stage.folder.iterdir()) == []

    @staged
    async def test_paths_stay_below_the_workspace(self, stage: Stage) -> None:
        client = await stage.bound()
        await client.execute("ln -s /etc/passwd link")
        for path in ("../x", "/etc/passwd", "a/../../x", "", "a\0b", "x" * 256, "link"):
            with pytest.raises(PathRejected):
                await client.download_file_to_bytes(path)
        for path in ("../x", "/etc/passwd", "", "a\0b"):
            with pytest.raises(PathRejected):
                await client.upload_file_from_bytes(path, b"x")
        info = await client.files.stat("link")
        assert (info["kind"], info["target"]) == ("symlink", "/etc/passwd")

    @staged
    async def test_what_is_no_regular_file_here(self, stage: Stage) -> None:
        client = await stage.bound()
        os.mkfifo(stage.folder / "pipe")
        for path in (stage.folder, stage.folder / "pipe", "/dev/zero"):
            with pytest.raises(PathRejected):
                await client.upload_file(path, "x")
        await client.upload_file_from_bytes("a", b"x")
        for target in (stage.folder, stage.folder / "no" / "such" / "folder"):
            with pytest.raises(PathRejected):
                await client.download_file("a", target)
        assert [path.name for path in stage.folder.iterdir()] == ["pipe"]

    @staged
    async def test_a_file_over_the_limit(self, stage: Stage) -> None:
        client = await stage.bound(policy="strict")
        big = stage.folder / "big"
        with big.open("wb") as file:
            file.truncate(101 * MIB)
        with pytest.raises(LimitExceeded, match="File size exceeds maximum") as caught:
            await client.upload_file(big)
        assert isinstance(caught.value, ValueError)
        assert caught.value.details["limit"] == "file_size"
        assert (await client.list_files())["total_files"] == 0
