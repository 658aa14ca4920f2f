"""Files, watches and ports of a real sandbox through the real guest binary."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from contextlib import aclosing

import pytest

from hutch.model.errors import (
    FileConflict,
    InvalidRequest,
    PathRejected,
    PortUnreachable,
    SandboxFileNotFound,
    SandboxUnavailable,
)
from hutch.model.files import FileEvent
from hutch.providers.base import FileReader
from hutch.providers.guest.streams import GuestStream
from tests.guest_rig import Kept, RigMachine, needs_bubblewrap, request, rig, run

pytestmark = needs_bubblewrap


async def put(machine: RigMachine, path: str, data: bytes, *, parents: bool = False) -> None:
    writer = await machine.open_write(path, parents=parents)
    await writer.write(data)
    await writer.commit()


async def get(machine: RigMachine, path: str, *, offset: int = 0, step: int = 65536) -> bytes:
    reader = await machine.open_read(path, offset)
    data = await rest_of(reader, step)
    await reader.aclose()
    return data


async def rest_of(reader: FileReader, step: int) -> bytes:
    pieces: list[bytes] = []
    while piece := await reader.read(step):
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize("size", [0, 1, 65_536, 1_000_000, 20_000_000])
def test_bytes_come_back_as_they_were(size: int) -> None:
    async def work() -> None:
        async with rig() as machine:
            data = os.urandom(min(size, 1 << 20)) * (size // (1 << 20) or 1)
            await put(machine, "a/b/file", data, parents=True)
            assert await get(machine, "a/b/file", step=1 << 22) == data
            assert await get(machine, "a/b/file", offset=size // 2, step=4096) == data[size // 2 :]
            _, kept = await machine.bash("stat -c '%a %u %s' a/b/file")
            assert kept.stdout == f"644 1000 {len(data)}\n"
            assert sorted(os.listdir(machine.workspace / "a/b")) == ["file"]

    run(work())


def test_a_file_appears_whole_or_not_at_all() -> None:
    async def work() -> None:
        async with rig() as machine:
            await put(machine, "f", b"old")
            writer = await machine.open_write("f", mode=0o755)
            await writer.write(b"new")
            assert await get(machine, "f") == b"old"
            await writer.abort()
            await writer.abort()
            assert os.listdir(machine.workspace) == ["f"]
            with pytest.raises(InvalidRequest):
                await writer.write(b"more")
            writer = await machine.open_write("f", mode=0o755)
            await writer.write(b"newer")
            await writer.commit()
            assert await get(machine, "f") == b"newer"
            assert stat.S_IMODE((machine.workspace / "f").stat().st_mode) == 0o755

    run(work())


def test_a_commit_that_fails_leaves_nothing() -> None:
    async def work() -> None:
        async with rig() as machine:
            writer = await machine.open_write("f")
            (machine.workspace / "f").mkdir()
            with pytest.raises(PathRejected):
                await writer.commit()
            assert os.listdir(machine.workspace) == ["f"]
            with pytest.raises(PathRejected, match="folder"):
                await machine.open_write("f")

    run(work())


def test_stat_list_and_their_limits() -> None:
    async def work() -> None:
        async with rig() as machine:
            await machine.bash("mkdir -p d/e; echo 12345 > d/f; ln -s ../f d/e/link; mkfifo d/p")
            rows = await machine.list("d", recursive=True, max_entries=100)
            assert [(row["path"], row["kind"], row["target"]) for row in rows] == [
                ("d/e", "directory", None),
                ("d/e/link", "symlink", "../f"),
                ("d/f", "file", None),
                ("d/p", "other", None),
            ]
            assert [row["path"] for row in await machine.list("", recursive=False, max_entries=9)] == ["d"]
            assert len(await machine.list("d", recursive=True, max_entries=2)) == 2
            assert await machine.entries("d", recursive=True, max_entries=2) != ([], False)
            assert (await machine.entries("d", recursive=True, max_entries=4))[1] is False
            assert (await machine.entries("d", recursive=True, max_entries=3))[1] is True
            row = await machine.stat("d/e/link")
            assert (row["kind"], row["target"], row["name"]) == ("symlink", "../f", "link")
            assert (await machine.stat("d/f"))["size_bytes"] == 6
            assert (await machine.stat("."))["kind"] == "directory"
            with pytest.raises(SandboxFileNotFound):
                await machine.list("none", recursive=False, max_entries=9)
            with pytest.raises(PathRejected):
                await machine.list("d/f", recursive=False, max_entries=9)

    run(work())


def test_a_large_folder_is_listed_whole() -> None:
    async def work() -> None:
        async with rig() as machine:
            for number in range(12_000):
                (machine.workspace / f"file-with-a-longer-name-{number:05}").touch()
            rows = await machine.list(".", recursive=False, max_entries=20_000)
            assert [row["path"] for row in rows] == sorted(os.listdir(machine.workspace))
            assert len(await machine.list(".", recursive=False, max_entries=5000)) == 5000

    run(work())


def test_names_are_changed_as_asked() -> None:
    async def work() -> None:
        async with rig() as machine:
            await machine.mkdir("a/b/c", parents=True)
            await machine.mkdir("a/b/c", parents=True)
            with pytest.raises(FileConflict):
                await machine.mkdir("a", parents=False)
            with pytest.raises(SandboxFileNotFound):
                await machine.mkdir("x/y", parents=False)
            await put(machine, "a/f", b"1")
            with pytest.raises((FileConflict, PathRejected)):
                await machine.mkdir("a/f/g", parents=True)
            await put(machine, "g", b"2")
            with pytest.raises(FileConflict):
                await machine.move("g", "a/f", overwrite=False)
            await machine.move("g", "a/f", overwrite=True)
            assert await get(machine, "a/f") == b"2"
            with pytest.raises(SandboxFileNotFound, match="none"):
                await machine.move("none", "b", overwrite=True)
            with pytest.raises(FileConflict):
                await machine.remove("a", recursive=False)
            await machine.remove("a/f", recursive=False)
            await machine.remove("a/b/c", recursive=False)
            await machine.remove("a", recursive=True)
            with pytest.raises(SandboxFileNotFound):
                await machine.remove("a", recursive=True)
            assert os.listdir(machine.workspace) == []

    run(work())


def test_a_file_takes_the_place_of_another() -> None:
    async def work() -> None:
        async with rig() as machine:
            await machine.bash("echo old > b; ln b other; echo new > a; mkdir d; ln a twin")
            await machine.move("a", "b", overwrite=True)
            assert (await get(machine, "b"), await get(machine, "other")) == (b"new\n", b"old\n")
            await machine.move("twin", "b", overwrite=True)  # two names of one file: both stay, as rename(2) has it
            with pytest.raises((PathRejected, FileConflict)):
                await machine.move("b", "d", overwrite=True)
            await put(machine, "b", b"newest")
            assert await get(machine, "b") == b"newest"
            # Where the folder may not be written neither name changes.
            await machine.bash("mkdir e; echo x > e/x; echo y > y; chmod 555 e")
            with pytest.raises(PathRejected):
                await machine.move("e/x", "y", overwrite=True)
            assert await get(machine, "y") == b"y\n"
            assert sorted(os.listdir(machine.workspace)) == ["b", "d", "e", "other", "twin", "y"]

    run(work())


def test_a_hundred_calls_at_once() -> None:
    async def work() -> None:
        async with rig() as machine:

            async def one(number: int) -> bool:
                await put(machine, f"f{number}", b"%d" % number)
                return await get(machine, f"f{number}") == b"%d" % number

            assert all(await asyncio.gather(*(one(number) for number in range(100))))

    run(work())


def test_reading_goes_on_after_the_caller_gave_up() -> None:
    async def work() -> None:
        async with rig() as machine:
            await put(machine, "f", b"x" * 5_000_000)
            for _ in range(20):
                reader = await machine.open_read("f")
                task = asyncio.create_task(reader.read(5_000_000))
                await asyncio.sleep(0)
                task.cancel()
                await reader.aclose()
            with pytest.raises(InvalidRequest):
                await reader.read(1)

    run(work())


async def events_until(
    machine: RigMachine, script: str, last: str, *, recursive: bool, path: str = "."
) -> list[FileEvent]:
    found: list[FileEvent] = []
    async with aclosing(machine.watch(path, recursive=recursive)) as events:  # type: ignore[type-var]
        task = asyncio.create_task(_collect(events, found, last))
        await asyncio.sleep(0.2)
        await machine.bash(script)
        await task
    return found


async def _collect(events: object, found: list[FileEvent], last: str) -> None:
    async for event in events:  # type: ignore[attr-defined]
        found.append(event)
        if event["path"] == last:
            return


def test_changes_are_seen() -> None:
    async def work() -> None:
        async with rig() as machine:
            script = "echo 1 > a; mv a b; mkdir d; rm b; echo > end"
            found = await events_until(machine, script, "end", recursive=False)
            assert [(event["kind"], event["path"]) for event in found] == [
                ("created", "a"),
                ("modified", "a"),
                ("moved_from", "a"),
                ("moved_to", "b"),
                ("created", "d"),
                ("removed", "b"),
                ("created", "end"),
            ]
            assert found[4]["is_directory"]

    run(work())


def test_changes_in_new_folders_are_seen() -> None:
    async def work() -> None:
        async with rig() as machine:
            script = "mkdir -p x/y/z; echo > x/y/z/f; sleep 0.2; echo > x/y/z/g; echo > end"
            found = await events_until(machine, script, "end", recursive=True)
            created = {event["path"] for event in found if event["kind"] == "created"}
            assert created == {"x", "x/y", "x/y/z", "x/y/z/f", "x/y/z/g", "end"}

    run(work())


def test_no_folder_falls_between_listing_and_watching() -> None:
    """A tree that grows while its watches are being set: each of its folders and files is told of."""

    async def work() -> None:
        async with rig() as machine:
            trees = 40
            script = f"for i in $(seq {trees}); do mkdir -p t$i/a/b/c; echo > t$i/a/b/c/f; done; sleep 0.5; echo > end"
            found = await events_until(machine, script, "end", recursive=True)
            created = {event["path"] for event in found if event["kind"] == "created"}
            parts = ("", "/a", "/a/b", "/a/b/c", "/a/b/c/f")
            assert created == {f"t{i}{part}" for i in range(1, trees + 1) for part in parts} | {"end"}

    run(work())


def test_a_watch_ends_with_its_folder_or_machine() -> None:
    async def work() -> None:
        async with rig() as machine:
            (machine.workspace / "d").mkdir()
            found = await events_until(machine, "rmdir d", "d", recursive=True, path="d")
            assert [(event["kind"], event["path"]) for event in found] == [("removed", "d")]
            with pytest.raises(SandboxFileNotFound):
                await anext(machine.watch("none", recursive=False))
            waiting = asyncio.create_task(_first(machine))
            await asyncio.sleep(0.1)
            machine.running.kill()
            with pytest.raises(SandboxUnavailable):
                await waiting

    run(work())


async def _first(machine: RigMachine) -> FileEvent:
    return await anext(machine.watch(".", recursive=False))


SERVER = """
import socket
s = socket.create_server((HOST, 8080), family=FAMILY)
while True:
    c, _ = s.accept()
    data = b""
    while piece := c.recv(65536):
        data += piece
    c.sendall(data[::-1])
    c.close()
"""


@pytest.mark.parametrize(("host", "family"), [("'127.0.0.1'", "socket.AF_INET"), ("'::1'", "socket.AF_INET6")])
def test_ports_are_reached(host: str, family: str) -> None:
    async def work() -> None:
        async with rig() as machine:
            with pytest.raises(PortUnreachable, match="8080"):
                await machine.connect(8080)
            (machine.workspace / "s.py").write_text(SERVER.replace("HOST", host).replace("FAMILY", family))
            server = await machine.spawn(request("exec /usr/bin/python3 s.py"), Kept())
            stream = None
            while stream is None:
                try:
                    stream = await machine.connect(8080)
                except PortUnreachable:
                    await asyncio.sleep(0.02)
            data = os.urandom(1_000_000)
            await stream.send(data)
            await stream.send_eof()
            received = b""
            while piece := await stream.receive():
                received += piece
            assert received == data[::-1]
            await stream.aclose()
            with pytest.raises(PortUnreachable):
                await stream.receive()
            for port in (0, 65536, -1):
                with pytest.raises(InvalidRequest):
                    await machine.connect(port)
            await server.kill()

    run(work())


def test_a_flood_leaves_the_loop_to_others() -> None:
    """What is there already is read without waiting, so reading it must not be all that the loop does."""

    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            here = socket.create_connection(listener.getsockname())
            there, _ = listener.accept()
        stream = GuestStream(here.detach())
        with there:
            there.sendall(bytes(1000))
            await stream.receive(1)
            turns = 0

            async def another() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(another())
            for _ in range(500):
                await stream.receive(1)
            task.cancel()
            await stream.aclose()
        assert turns >= 400

    run(work())
