"""The client contract: files between a drive and a sandbox."""

from __future__ import annotations

import os

import pytest

from hutch.model.errors import (
    DriveFileNotFound,
    FileConflict,
    InvalidRequest,
    PathRejected,
    SandboxFileNotFound,
)
from hutch.model.limits import MIB
from hutch.testing.client_contract_stage import ClientContractStage, Stage, staged


class PlacingContract(ClientContractStage):
    @staged
    async def test_files_of_the_drive_come_into_the_sandbox(self, stage: Stage) -> None:
        client = await stage.bound()
        data = os.urandom(2 * MIB)
        await client.drive.write_file("/data-exports/a.json", data)
        await client.drive.write_file("/scripts/run.py", "print(1)")
        placed = await client.place(["/data-exports/a.json", "/scripts/run.py", "/scripts/run.py"])
        assert placed == [
            {
                "drive_path": "/data-exports/a.json",
                "path": "/workspace/a.json",
                "name": "a.json",
                "size_bytes": 2 * MIB,
                "sent": True,
            },
            {
                "drive_path": "/scripts/run.py",
                "path": "/workspace/run.py",
                "name": "run.py",
                "size_bytes": 8,
                "sent": True,
            },
        ]
        assert await client.files.read("a.json") == data
        assert await client.files.read("run.py") == b"print(1)"

    @staged
    async def test_what_is_there_unchanged_is_not_sent_again(self, stage: Stage) -> None:
        client = await stage.bound()

        async def sent() -> bool:
            return (await client.place(["/f"]))[0]["sent"]

        await client.drive.write_file("/f", "one")
        assert [await sent(), await sent()] == [True, False]
        await client.drive.write_file("/f", "two")
        assert [await sent(), await sent()] == [True, False]
        await client.files.write("f", "2wo")  # the same size, but another file
        assert [await sent(), await sent()] == [True, False]
        await client.files.remove("f")
        assert await sent()
        assert await client.files.read("f") == b"two"
        assert (await client.place_bytes([("/f", b"two")]))[0]["sent"]
        assert not (await client.place_bytes([("/f", b"two")]))[0]["sent"]
        assert (await client.place_bytes([("/f", b"six")]))[0]["sent"]
        assert await client.files.read("f") == b"six"
        assert await sent()

    @staged
    async def test_names_that_are_shared_go_to_their_folders(self, stage: Stage) -> None:
        client = await stage.bound()
        for path in ("/x/a.json", "/y/a.json", "/z/b"):
            await client.drive.write_file(path, path)
        placed = await client.place(["/x/a.json", "/y/a.json", "/z/b"])
        assert [one["path"] for one in placed] == ["/workspace/x/a.json", "/workspace/y/a.json", "/workspace/b"]
        assert await client.files.read("y/a.json") == b"/y/a.json"
        await client.drive.write_file("/a.json/b", "1")
        await client.drive.write_file("/q/a.json", "2")
        with pytest.raises(FileConflict):
            await client.place_bytes([("/p/s", b""), ("/s/s", b""), ("/t/p", b"")])

    @staged
    async def test_all_is_checked_before_anything_is_sent(self, stage: Stage) -> None:
        client = await stage.bound(policy="strict")
        await client.drive.write_file("/ok", "ok")
        with pytest.raises(DriveFileNotFound, match="/missing"):
            await client.place(["/ok", "/missing"])
        await client.drive.write_file("/folder/x", "")
        with pytest.raises(PathRejected, match="folder"):
            await client.place(["/ok", "/folder"])
        for bad in ("../x", "/a/../b", "x\0y"):
            with pytest.raises(PathRejected):
                await client.place(["/ok", bad])
            with pytest.raises(PathRejected):
                await client.place_bytes([("ok", b""), (bad, b"")])
        for wrong in ("/ok", b"/ok", 7, None):
            with pytest.raises(InvalidRequest):
                await client.place(wrong)  # type: ignore[arg-type]  # that is the point
        with pytest.raises(InvalidRequest):
            await client.place_bytes([("a", "text")])  # type: ignore[list-item]  # that is the point
        await client.files.mkdir("taken")
        await client.drive.write_file("/taken", "")
        with pytest.raises(PathRejected, match="folder"):
            await client.place(["/ok", "/taken"])
        assert [one["name"] for one in await client.files.list()] == ["taken"]

    @staged
    async def test_a_file_of_the_sandbox_is_saved_to_the_drive(self, stage: Stage) -> None:
        client = await stage.bound()
        data = os.urandom(MIB + 3)
        await client.upload_file_from_bytes("out/result.bin", data)
        saved = await client.save_to_drive("out/result.bin", "/data-exports/result.bin")
        assert (saved["path"], saved["size_bytes"]) == ("/data-exports/result.bin", len(data))
        assert await client.drive.read_file("/data-exports/result.bin") == data
        with pytest.raises(SandboxFileNotFound):
            await client.save_to_drive("nope", "/x")
        with pytest.raises(PathRejected):
            await client.save_to_drive("out/result.bin", "relative")
        with pytest.raises(DriveFileNotFound):
            await client.drive.stat("/x")
