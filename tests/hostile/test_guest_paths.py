"""Names and files that lead elsewhere, hang their reader, or break a program that thought it knew names (F1 to F11)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat

import pytest

from hutch.model.errors import FileConflict, HutchError, PathRejected, SandboxFileNotFound
from tests.guest_rig import Kept, RigMachine, needs_bubblewrap, request, rig, run
from tests.integration.test_guest_files import get, put

pytestmark = needs_bubblewrap
SECRET = b"outside"


async def refused(machine: RigMachine, path: str) -> None:
    """No door reads, writes, lists or changes anything through `path`."""
    for call in (
        machine.open_read(path),
        machine.list(path, recursive=True, max_entries=10),
        _write(machine, path + "/new"),
        machine.mkdir(path + "/new", parents=True),
        machine.remove(path + "/x", recursive=True),
        machine.move("here", path + "/moved", overwrite=True),
        anext(machine.watch(path, recursive=False)),
    ):
        with pytest.raises((PathRejected, SandboxFileNotFound, FileConflict)):
            await asyncio.wait_for(call, 5)


async def _write(machine: RigMachine, path: str) -> None:
    await put(machine, path, b"planted")


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/etc",
        "/tmp",
        "..",
        "../..",
        "/proc/self/root",
        "/proc/self/cwd/..",
        "/proc/1/root",
        "/dev/fd/0",
        "/nowhere",
    ],
)
def test_no_link_leads_out(target: str) -> None:
    """F1 final, F2 intermediate, F3 missing parent, F4 dangling, F7 /proc."""

    async def work() -> None:
        async with rig() as machine:
            (machine.workspace / "here").write_text("x")
            (machine.workspace / "link").symlink_to(target)
            (machine.workspace / "chain").symlink_to("link")
            await refused(machine, "link")
            await refused(machine, "chain")
            assert (await machine.stat("link"))["target"] == target
            await put(machine, "link", b"mine")  # takes the link's name; what it pointed at stays as it was
            assert (machine.workspace / "link").is_file()
            assert not (machine.workspace / "link").is_symlink()

    run(work())


@pytest.mark.parametrize("path", ["..", "../x", "a/../../x", "/etc/passwd", "/workspace/here", "//", "a/.."])
def test_no_name_leads_out(path: str) -> None:
    async def work() -> None:
        async with rig() as machine:
            (machine.workspace / "a").mkdir()
            (machine.workspace / "here").write_text("x")
            calls = [machine.open_read(path), machine.move("here", path, overwrite=True)]
            calls += [machine.remove(path, recursive=True), _write(machine, path), machine.mkdir(path, parents=False)]
            for call in calls:
                with pytest.raises(HutchError):
                    await call
            assert sorted(os.listdir(machine.workspace)) == ["a", "here"]

    run(work())


def test_links_inside_the_workspace_are_followed() -> None:
    async def work() -> None:
        async with rig() as machine:
            await put(machine, "d/f", b"data", parents=True)
            (machine.workspace / "link").symlink_to("d")
            (machine.workspace / "d" / "up").symlink_to("../d/f")
            assert await get(machine, "link/up") == b"data"
            await put(machine, "link/g", b"more")
            assert await get(machine, "d/g") == b"more"

    run(work())


def test_loops_end() -> None:
    async def work() -> None:
        async with rig() as machine:
            (machine.workspace / "a").symlink_to("b")
            (machine.workspace / "b").symlink_to("a")
            (machine.workspace / "d").mkdir()
            (machine.workspace / "d" / "self").symlink_to(".")
            with pytest.raises(PathRejected):
                await machine.open_read("a")
            assert len(await machine.list(".", recursive=True, max_entries=100)) == 4
            await machine.remove("d", recursive=True)
            await machine.remove("a", recursive=True)

    run(work())


def test_a_path_swapped_while_it_is_used_never_leads_out() -> None:
    """F5: the sandbox exchanges a folder for a link to the outside, as fast as it can."""

    async def work() -> None:
        async with rig() as machine:
            (machine.workspace / "real").mkdir()
            (machine.workspace / "real" / "passwd").write_text("inside")
            (machine.workspace / "evil").symlink_to("/etc")
            swap = (
                "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
                "while True: libc.renameat2(-100, b'real', -100, b'evil', 2)"  # exchange
            )
            process = await machine.spawn(request(f'exec python3 -c "{swap}"'), Kept())
            for _ in range(400):
                for call in (get(machine, "real/passwd"), _write(machine, "real/planted")):
                    with contextlib.suppress(HutchError):
                        assert await call in (b"inside", None)
            with contextlib.suppress(HutchError):
                await machine.remove("real", recursive=True)
            await process.kill()
            assert "planted" not in os.listdir("/etc")

    run(work())


def test_special_files_neither_hang_nor_are_read() -> None:
    """F8."""

    async def work() -> None:
        async with rig() as machine:
            os.mkfifo(machine.workspace / "fifo")
            with socket.socket(socket.AF_UNIX) as server:
                folder = os.open(machine.workspace, os.O_PATH)
                server.bind(f"/proc/self/fd/{folder}/socket")
                os.close(folder)
            (machine.workspace / "zero").symlink_to("/dev/zero")
            if os.geteuid() == 0:
                os.mknod(machine.workspace / "device", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
            for name in ("fifo", "socket", "zero", "device", "."):
                with pytest.raises((PathRejected, SandboxFileNotFound)):
                    await asyncio.wait_for(machine.open_read(name), 2)
            waiting = await machine.spawn(request("echo data > fifo; echo wrote"), Kept())
            await asyncio.sleep(0.1)
            with pytest.raises(PathRejected):
                await machine.open_read("fifo")
            assert waiting._exit is None, "looking at a pipe must not wake its writer"
            await waiting.kill()
            await put(machine, "fifo", b"now a file")
            assert await get(machine, "fifo") == b"now a file"

    run(work())


def test_a_huge_hole_is_read_as_asked_not_whole() -> None:
    async def work() -> None:
        async with rig() as machine:
            await machine.bash("truncate -s 1T sparse")
            reader = await machine.open_read("sparse", 1 << 39)
            assert reader.size == 1 << 40
            assert await reader.read(10) == bytes(10)
            await reader.aclose()

    run(work())


@pytest.mark.parametrize(
    "name",
    [
        b"new\nline",
        b"-rf",
        b"\xff\xfe",
        b"n" * 255,
        b" ",
        b"*",
        b"%2e%2e",
        b"..\xcc\x88",
        "ü".encode(),
        b"$(id)",
        b"a\\b",
    ],
)
def test_any_name_a_file_can_have(name: bytes) -> None:
    """F11 (and F9: no name is a pattern)."""

    async def work() -> None:
        async with rig() as machine:
            path = name.decode("utf-8", "surrogateescape")
            (machine.workspace / "other").write_text("stays")
            await put(machine, path, b"data")
            assert os.listdir(os.fsencode(machine.workspace)).count(name) == 1
            assert await get(machine, path) == b"data"
            assert path in [row["path"] for row in await machine.list(".", recursive=True, max_entries=9)]
            await machine.move(path, path[:100] + "2", overwrite=False)
            await machine.remove(path[:100] + "2", recursive=True)
            assert os.listdir(machine.workspace) == ["other"]

    run(work())


def test_names_that_no_file_can_have() -> None:
    async def work() -> None:
        async with rig() as machine:
            for path in ("a\0b", "n" * 256, "d/" * 2100 + "f"):
                for call in (machine.open_read(path), _write(machine, path), machine.mkdir(path, parents=True)):
                    with pytest.raises(PathRejected):
                        await call

    run(work())


def test_permissions_are_those_of_the_sandbox_and_removal_passes_them() -> None:
    """F10: nothing outside changes its mode."""

    async def work() -> None:
        async with rig() as machine:
            outside = machine.workspace.parent / "outside"
            outside.mkdir(mode=0o555)
            await machine.bash(
                "mkdir -p a/b/c/d; touch a/b/c/f; ln -s ../../outside a/b/link; chmod 0 a/b/c; chmod 555 a/b a"
            )
            await machine.remove("a", recursive=True)
            assert os.listdir(machine.workspace) == []
            assert stat.S_IMODE(outside.stat().st_mode) == 0o555

    run(work())


def test_very_deep_trees_are_listed_and_removed() -> None:
    async def work() -> None:
        async with rig() as machine:
            deep = (
                "import os\nfor _ in range(3000):\n"
                "    os.mkdir('folder'); open('file', 'w').close(); os.chdir('folder')\n"
                "os.mkdir('full'); open('full/x', 'w').close(); os.mkdir('empty')"
            )
            ended, kept = await machine.bash(f'exec python3 -c "{deep}"')
            assert ended.exit_code == 0, kept.stderr
            entries, cut = await machine.entries(".", recursive=True, max_entries=100_000)
            assert (len(entries), cut) == (6003, False)
            assert max(len(entry.path) for entry in entries) > 20_000
            await machine.remove("folder", recursive=True)
            assert os.listdir(machine.workspace) == ["file"]

    run(work())


def test_trees_too_deep_to_be_told_are_cut_but_removed() -> None:
    async def work() -> None:
        async with rig() as machine:
            name = "n" * 200
            deep = f"import os\nfor _ in range(500):\n    os.mkdir('{name}'); os.chdir('{name}')"
            assert (await machine.bash(f'exec python3 -c "{deep}"'))[0].exit_code == 0
            entries, cut = await machine.entries(".", recursive=True, max_entries=100_000)
            assert cut
            assert 300 < len(entries) < 500
            await machine.remove(name, recursive=True)
            assert os.listdir(machine.workspace) == []

    run(work())


def test_a_wide_tree_is_removed() -> None:
    async def work() -> None:
        async with rig() as machine:
            script = (
                "for i in $(seq 60); do mkdir -p t/$i/.hutch-0/x t/.hutch-$i/y; touch t/$i/f t/.hutch-$i/y/$i; done"
            )
            await machine.bash(script)
            await machine.remove("t", recursive=True)
            assert os.listdir(machine.workspace) == []

    run(work())
