"""The `lock` file of a sandbox's folder: who runs the machine, and what to end if that process is no more."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hutch.model.errors import SandboxUnavailable

NAME = "lock"


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process for sure: a pid alone may be given to another one later."""

    pid: int
    started: int  # clock ticks after boot, field 22 of /proc/<pid>/stat
    boot: str

    def alive(self) -> bool:
        return self == process_id(self.pid)


@dataclass(frozen=True, slots=True)
class Record:
    owner: ProcessId
    monitor: ProcessId | None = None  # bubblewrap, outside
    init: ProcessId | None = None  # the guest, as the host sees it
    cgroups: Mapping[str, str] | None = None  # controller -> folder


def process_id(pid: int) -> ProcessId | None:
    """None when there is no such process (a zombie is none)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else ProcessId(pid, int(fields[19]), boot)


def read(folder: Path) -> Record | None:
    """None when there is no record, or none that can be read: then there is nothing to go by."""
    try:
        data = json.loads((folder / NAME).read_text())
        return Record(
            owner=ProcessId(**data["owner"]),
            monitor=ProcessId(**data["monitor"]) if data["monitor"] else None,
            init=ProcessId(**data["init"]) if data["init"] else None,
            cgroups={str(name): str(path) for name, path in (data["cgroups"] or {}).items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def is_blank(folder: Path) -> bool:
    """No machine runs from that folder, and the last one was cleared up after: an ended lock is left empty."""
    try:
        return (folder / NAME).stat().st_size == 0
    except FileNotFoundError:
        return True


class Lock:
    """Held by the process that runs the machine, for as long as the machine lives."""

    def __init__(self, folder: Path) -> None:
        """Raises: SandboxUnavailable when another process runs this machine."""
        self._path = folder / NAME
        self._descriptor = self._take(folder)
        owner = process_id(os.getpid())
        if owner is None:
            os.close(self._descriptor)
            raise SandboxUnavailable("/proc cannot be read: mount it.")
        self.record = Record(owner)

    def _take(self, folder: Path) -> int:
        for _ in range(2):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                os.close(descriptor)
            found = read(folder)
            if found is None or found.owner.alive():
                owner = f"process {found.owner.pid}" if found else "another process"
                raise SandboxUnavailable(f"The sandbox in {folder} already runs in {owner}.")
            self._path.unlink(missing_ok=True)  # its owner died; a fork of it, which knows nothing, holds the lock
        raise SandboxUnavailable(f"The sandbox in {folder} is being started by another process.")

    def write(self, **changes: object) -> None:
        self.record = replace(self.record, **changes)  # type: ignore[arg-type]  # the fields of Record
        text = json.dumps(asdict(self.record)).encode()
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))

    def release(self) -> None:
        """Twice is fine. The record goes, too: there is nothing left to end."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1
