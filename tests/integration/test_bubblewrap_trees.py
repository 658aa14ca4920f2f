"""Counting and removing whatever a sandbox may leave in its workspace."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hutch.providers.bubblewrap import trees, workspace

MIB = 1024 * 1024


def count(folder: Path, max_files: int = 10**9, max_bytes: int = 1 << 60) -> tuple[int, int, bool]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        found = trees.usage(descriptor, max_files, max_bytes)
    finally:
        os.close(descriptor)
    return found.files, found.bytes, found.complete


def make_deep(folder: Path, depth: int) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 200, dir_fd=descriptor)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("end", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)


def test_files_folders_and_links_count(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b").write_bytes(b"x" * 5000)
    (tmp_path / "link").symlink_to("/usr")
    files, size, complete = count(tmp_path)
    assert (files, complete) == (4, True)
    assert 5010 <= size < 6000


def test_hard_links_hold_their_bytes_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * MIB)
    for number in range(5):
        os.link(tmp_path / "a", tmp_path / str(number))
    assert count(tmp_path)[:2] == (6, MIB)


def test_holes_take_nothing_and_hidden_blocks_do(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert count(tmp_path)[1] == 0
    descriptor = os.open(tmp_path / "hidden", os.O_CREAT | os.O_WRONLY)
    os.posix_fallocate(descriptor, 0, 2 * MIB)
    os.ftruncate(descriptor, 1)  # gives the space back
    os.close(descriptor)
    assert count(tmp_path)[1] == 1


def test_counting_stops_past_the_ceiling(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).write_bytes(b"x" * 100)
    assert count(tmp_path, max_files=10) == (11, 1100, False)
    assert count(tmp_path, max_bytes=250)[2] is False
    assert count(tmp_path) == (50, 5000, True)


def test_no_link_is_followed_and_no_file_system_left(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    for number in range(20):
        (outside / str(number)).write_bytes(b"x" * 1000)
    (inside / "link").symlink_to(outside)
    (inside / "proc").symlink_to("/proc")
    assert count(inside)[0] == 2


def test_a_tree_deeper_than_any_path(tmp_path: Path) -> None:
    place = tmp_path / "tree"
    place.mkdir()
    make_deep(place, 100)  # 20,000 bytes of path
    assert count(place)[0] == 101
    workspace.destroy(place)
    assert not place.exists()


def test_folders_that_are_locked_are_counted_and_removed(tmp_path: Path) -> None:
    place = tmp_path / "tree"
    (place / "locked" / "more").mkdir(parents=True)
    (place / "locked" / "more" / "f").write_bytes(b"x" * 100)
    (place / "locked" / "more").chmod(0)
    (place / "locked").chmod(0)
    assert count(place)[:2] == (3, 100)
    (place / "locked" / "more").chmod(0)
    (place / "locked").chmod(0o500)
    workspace.destroy(place)
    assert not place.exists()


def test_odd_names_and_odd_kinds_are_removed(tmp_path: Path) -> None:
    place, outside = tmp_path / "tree", tmp_path / "outside"
    place.mkdir()
    outside.mkdir()
    (outside / "f").write_text("kept")
    for name in (b"new\nline", b"-rf", b"\xff\xfe", b"x" * 255, b" ", b"*"):
        os.close(os.open(os.path.join(os.fsencode(place), name), os.O_CREAT | os.O_WRONLY))
    os.mkfifo(place / "fifo")
    (place / "to a folder").symlink_to(outside)
    (place / "dangling").symlink_to("/nowhere")
    os.mknod(place / "socket", stat.S_IFSOCK | 0o600)
    workspace.destroy(place)
    assert not place.exists()
    assert (outside / "f").read_text() == "kept"


def test_what_is_missing_or_a_link_is_no_trouble(tmp_path: Path) -> None:
    workspace.destroy(tmp_path / "missing")
    workspace.destroy(tmp_path / "missing" / "deeper")
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "link").symlink_to(target)
    workspace.destroy(tmp_path / "link")
    assert target.is_dir()


def test_a_folder_that_moves_while_it_is_counted_ends_the_count(tmp_path: Path) -> None:
    """Going up by ".." must lead where we came from, or a moved folder would show us the rest of the host."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    descriptor = os.open(tmp_path / "a", os.O_RDONLY)
    place = trees._Descent(descriptor)
    try:
        assert place.down("b")
        (tmp_path / "a" / "b").rename(tmp_path / "elsewhere" / "b")
        with pytest.raises(trees.TreeMoved):
            place.up()
    finally:
        place.close()
        os.close(descriptor)
