"""Walking a workspace from the host: by descriptor, following no link, leaving no file system, of any depth.

One descriptor at a time: down by name, up by "..". A running sandbox may move folders while we look; going up checks
that it leads where we came from.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from hutch.providers.base import Usage

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
OWNER_ALL = 0o700
TRIES = 3
# Allocated beyond its size by more than this, a file holds space that its size hides (fallocate --keep-size).
ROUNDING_BYTES = 65_536


class TreeMoved(Exception):
    """The tree changed under us, so that the way back up is lost. Never leaves this package."""


class _Descent:
    """Where we are in a tree: one open folder, and the identities of those above it."""

    def __init__(self, root: int) -> None:
        self.here = os.dup(root)
        self._above: list[tuple[int, int]] = []
        self.device = os.fstat(root).st_dev

    @property
    def depth(self) -> int:
        return len(self._above)

    def down(self, name: str) -> bool:
        """False when it is no folder of this file system any more, or cannot be opened."""
        try:
            below = self._open(name)
        except OSError:
            return False
        info, here = os.fstat(below), os.fstat(self.here)
        if info.st_dev != self.device:
            os.close(below)
            return False
        self._above.append((here.st_dev, here.st_ino))
        os.close(self.here)
        self.here = below
        return True

    def _open(self, name: str) -> int:
        try:
            return os.open(name, FOLDER_FLAGS, dir_fd=self.here)
        except PermissionError:
            # A sandbox of an ordinary user may lock us out of its folders, which are ours all the same. A link put
            # in its place meanwhile must not be followed: O_PATH holds the folder itself.
            held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.here)
            try:
                os.chmod(f"/proc/self/fd/{held}", stat.S_IMODE(os.fstat(held).st_mode) | OWNER_ALL)
                return os.open(f"/proc/self/fd/{held}", FOLDER_FLAGS & ~os.O_NOFOLLOW)
            finally:
                os.close(held)

    def up(self) -> None:
        expected = self._above.pop()
        above = os.open("..", FOLDER_FLAGS, dir_fd=self.here)
        info = os.fstat(above)
        os.close(self.here)
        self.here = above
        if (info.st_dev, info.st_ino) != expected:
            raise TreeMoved

    def close(self) -> None:
        os.close(self.here)


def usage(root: int, max_files: int, max_bytes: int) -> Usage:
    """What lies below the folder `root`, hard links once. Stops when past either number. Blocks.

    Raises: OSError.
    """
    most = Usage(0, 0, complete=False)
    for _ in range(TRIES):
        counted = _Count(max_files, max_bytes)
        try:
            _visit(root, counted.entry)
        except TreeMoved:
            if counted.files > most.files:
                most = Usage(counted.bytes, counted.files, counted.largest, complete=False)
            continue
        return Usage(counted.bytes, counted.files, counted.largest, complete=not counted.full)
    return most


class _Count:
    def __init__(self, max_files: int, max_bytes: int) -> None:
        self.files = 0
        self.bytes = 0
        self.largest = (0, 0.0)
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._linked: set[int] = set()

    @property
    def full(self) -> bool:
        return self.files > self._max_files or self.bytes > self._max_bytes

    def entry(self, info: os.stat_result) -> bool:
        self.files += 1
        if not stat.S_ISDIR(info.st_mode) and (info.st_nlink == 1 or info.st_ino not in self._linked):
            self.bytes += _held(info)
            self.largest = max(self.largest, (info.st_size, info.st_mtime))
            if info.st_nlink > 1:
                self._linked.add(info.st_ino)
        return not self.full


def _held(info: os.stat_result) -> int:
    """Bytes that count: holes do not, the rounding up to blocks does not, space hidden behind the end does."""
    allocated = info.st_blocks * 512
    return allocated if allocated > info.st_size + ROUNDING_BYTES else min(info.st_size, allocated)


def _visit(root: int, seen: Callable[[os.stat_result], bool]) -> None:
    """Show every entry to `seen`, until it says False."""
    place = _Descent(root)
    pending: list[list[str]] = []
    try:
        names, going = _entries(place.here, seen)
        pending.append(names)
        while going and pending:
            if not pending[-1]:
                pending.pop()
                if pending:
                    place.up()
            elif place.down(pending[-1].pop()):
                names, going = _entries(place.here, seen)
                pending.append(names)
    finally:
        place.close()


def _entries(folder: int, seen: Callable[[os.stat_result], bool]) -> tuple[list[str], bool]:
    """(folders to enter, go on?)"""
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone meanwhile
            if not seen(info):
                return folders, False
            if stat.S_ISDIR(info.st_mode):
                folders.append(entry.name)
    return folders, True


def remove(parent: int, name: str) -> None:
    """Remove a file, or a folder with all it holds. What is not there is fine. Blocks.

    Raises: OSError, TreeMoved (nothing may run in the tree any more).
    """
    try:
        os.unlink(name, dir_fd=parent)
        return
    except FileNotFoundError:
        return
    except OSError as failure:
        if not isinstance(failure, (IsADirectoryError, PermissionError)):
            raise
    place = _Descent(parent)
    try:
        _remove_folder(place, name)
    finally:
        place.close()


def _remove_folder(place: _Descent, name: str) -> None:
    path = [name]
    if not place.down(name):
        os.rmdir(name, dir_fd=place.here)
        return
    pending = [_empty(place.here)]
    while pending:
        if pending[-1]:
            folder = pending[-1].pop()
            path.append(folder)
            if place.down(folder):
                pending.append(_empty(place.here))
                continue
        else:
            pending.pop()
            place.up()
        os.rmdir(path.pop(), dir_fd=place.here)


def _empty(folder: int) -> list[str]:
    """Remove all that is no folder; answers the folders that remain."""
    os.fchmod(folder, OWNER_ALL)
    folders: list[str] = []
    with os.scandir(folder) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in names:
        if is_folder:
            folders.append(name)
        else:
            os.unlink(name, dir_fd=folder)
    return folders
