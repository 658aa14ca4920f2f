"""Which process runs a sandbox: the one that holds the lock on its folder.

Several processes may share a data folder. The kernel drops a lock when its holder dies, kill -9 included, so a free
lock means that nobody runs the sandbox, without clocks or leases.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

LOCK_NAME = "owner"


class FolderLock:
    """A held lock. It must not outlive its process in a forked child; `forget` is for that child."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    forget = release  # closing a forked copy leaves the parent's lock as it is


def try_lock(folder: Path) -> FolderLock | None:
    """The lock of `folder`, or None when another process holds it or the folder is gone."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The folder may have been removed, or made anew, between the two calls: then this is no lock of anything.
        if os.fstat(descriptor).st_ino == os.stat(folder / LOCK_NAME).st_ino:
            return FolderLock(descriptor)
    except (BlockingIOError, FileNotFoundError):
        pass
    with contextlib.suppress(OSError):
        os.close(descriptor)
    return None
