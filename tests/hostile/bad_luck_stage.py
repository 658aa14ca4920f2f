"""What the tests of bad luck stand on: clients of the real provider, and a look at what is left on this machine."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hutch import SandboxClient
from hutch.engine.homes import HOMES
from hutch.settings import Settings

MB = 1024 * 1024


@contextmanager
def data_folder() -> Iterator[Path]:
    """A data folder that is gone at the end, with all that ran in it."""
    with tempfile.TemporaryDirectory(prefix="hutch-test-") as name:
        folder = Path(name)
        try:
            yield folder
        finally:
            HOMES.get(Settings(data_dir=folder)).close()


def client(folder: Path, thread: str, policy: str = "open") -> SandboxClient:
    """A handle that any thread may use."""
    return SandboxClient(policy=policy, data_dir=folder).for_thread("u", thread)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def processes_naming(text: str) -> list[int]:
    """Processes of this machine, not this one, whose command line, environment or working folder holds `text`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            seen = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            seen += os.fsencode(os.readlink(folder / "cwd"))
        except OSError:
            continue
        if pid != os.getpid() and os.fsencode(text) in seen:
            found.append(pid)
    return found


def descendants(pid: int) -> list[int]:
    children = [int(text) for path in Path(f"/proc/{pid}/task").glob("*/children") for text in path.read_text().split()]
    return children + [below for child in children for below in descendants(child)]


def mounts_below(folder: Path) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]


def cgroups_of(sandbox_ids: list[str]) -> list[Path]:
    root = Path("/sys/fs/cgroup")
    return [path for path in root.rglob("*") if path.is_dir() and any(name in path.name for name in sandbox_ids)]


def until_gone(pids: list[int], seconds: float = 20) -> list[int]:
    """Those that are still there after `seconds`. A zombie waits for its parent only, so it counts as gone."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if _lives(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
