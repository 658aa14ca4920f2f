"""Files of a workspace that have no name any more and are held open: no walk of names finds what they take."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from hutch.model.session import WORKSPACE_DIR

MOST_LOOKED_AT = 20_000  # descriptors; whoever has more is past every limit of open files together


def held_bytes(init_pid: int) -> int:
    """What the processes below `init_pid` hold, the sandbox's process 1. Blocks.

    They are told by the path that they had: what an overlay calls their device is not what it calls its folders'.
    """
    found: dict[tuple[int, int], int] = {}
    looked_at = 0
    for pid in _tree(init_pid):
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue  # it has ended
        for name in descriptors:
            looked_at += 1
            if looked_at > MOST_LOOKED_AT:
                return sum(found.values())
            path = f"/proc/{pid}/fd/{name}"
            try:
                info = os.stat(path)
                nameless = stat.S_ISREG(info.st_mode) and info.st_nlink == 0
                if not nameless or not os.readlink(path).startswith(f"{WORKSPACE_DIR}/"):
                    continue
            except OSError:
                continue
            found[info.st_dev, info.st_ino] = info.st_blocks * 512
    return sum(found.values())


def _tree(pid: int) -> Iterator[int]:
    """It and all below it; orphans are its own children."""
    left = [pid]
    while left:
        one = left.pop()
        yield one
        try:
            for thread in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{thread}/children") as told:
                    left += map(int, told.read().split())
        except OSError:
            continue
