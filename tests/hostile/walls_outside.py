"""Looking at a sandbox from its host, for the tests of the walls."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from tests.hostile.walls_rig import AS_ROOT

CLONE_NEWUSER = 0x1000_0000


def unshare_inside(pid: int, uid: int) -> int:
    """The errno of making a user namespace inside the sandbox's, without its filter in the way."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            os.setegid(uid) if AS_ROOT else None
            os.seteuid(uid) if AS_ROOT else None
            library = ctypes.CDLL(None, use_errno=True)
            namespace = os.pidfd_open(pid)
            if library.setns(namespace, CLONE_NEWUSER) == 0:
                code = 0 if library.unshare(CLONE_NEWUSER) == 0 else ctypes.get_errno()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def launchers_of(pid: int) -> list[int]:
    """Launchers that this process started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if stat.rpartition(")")[2].split()[1] == str(pid) and "hutch-launch" in stat:
                found.append(int(entry.name))
    return found


def open_in(pid: int) -> list[tuple[str, os.stat_result]]:
    """(name, what it is) of each open descriptor."""
    try:
        return [(os.readlink(entry), entry.stat()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except PermissionError:
        return []  # only root may look there
