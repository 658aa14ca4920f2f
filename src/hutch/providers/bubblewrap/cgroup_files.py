"""The cgroups of one machine: made before it starts, read while it runs, removed when it has ended."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from hutch.model.errors import SandboxUnavailable
from hutch.model.limits import Limits
from hutch.providers.bubblewrap.cgroups import COUNTERS, FOLDER, Controller, Discovery, counter, limit_files

COUNTER_BYTES = 1024
REMOVE_SECONDS = 5.0
FIRST_PAUSE = 0.001


class MachineCgroups:
    """Keeps the counter files open: they are read before and after every command."""

    def __init__(self, discovery: Discovery, name: str) -> None:
        self._version = discovery.version
        self.folders: dict[Controller, Path] = {
            controller: base / FOLDER / name for controller, base in discovery.bases.items()
        }
        self._counters: dict[Controller, tuple[int, str]] = {}

    @classmethod
    def existing(cls, folders: Mapping[Controller, Path]) -> MachineCgroups:
        """Those of a machine that another process made: to read only."""
        found = cls(Discovery(), "")
        found.folders = dict(folders)
        found._version = 2 if any((path / "cgroup.controllers").exists() for path in folders.values()) else 1
        try:
            found._open_counters()
        except OSError:
            found.close()  # the machine is ending
        return found

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(self.folders.values()))

    @property
    def born_in(self) -> Path | None:
        """The one cgroup of version 2."""
        return self.paths[0] if self._version == 2 else None

    @property
    def join_files(self) -> tuple[Path, ...]:
        """Of version 1: where a process writes 0 to come in. `tasks` takes a process of one thread without waiting for
        every processor of the machine to take notice, which `cgroup.procs` does (20 ms)."""
        return tuple(path / "tasks" for path in self.paths) if self._version == 1 else ()

    def make(self, discovery: Discovery, limits: Limits) -> None:
        """Raises: OSError when the machine does not let us after all."""
        for file, text in discovery.enable:
            file.write_text(text)
        for path in self.paths:
            _make_folder(path, sorted(discovery.bases) if self._version == 2 else ())
        for controller, folder in self.folders.items():
            for name, text, needed in limit_files(self._version, controller, limits):
                if needed or (folder / name).exists():
                    (folder / name).write_text(text)
        self._open_counters()

    def _open_counters(self) -> None:
        for controller, (name, key) in COUNTERS.get(self._version, {}).items():
            if controller in self.folders and (self.folders[controller] / name).exists():
                descriptor = os.open(self.folders[controller] / name, os.O_RDONLY | os.O_CLOEXEC)
                self._counters[controller] = (descriptor, key)

    def read(self) -> Mapping[Controller, int]:
        found: dict[Controller, int] = {}
        for controller, (descriptor, key) in self._counters.items():
            found[controller] = counter(os.pread(descriptor, COUNTER_BYTES, 0), key)
        return found

    def close(self) -> None:
        for descriptor, _ in self._counters.values():
            os.close(descriptor)
        self._counters.clear()


def _make_folder(path: Path, controllers: Iterable[str]) -> None:
    """Two servers may make the parent, or remove it when it is empty, at the same moment."""
    for _ in range(20):
        try:
            path.parent.mkdir(exist_ok=True)
            if controllers:
                (path.parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
            path.mkdir(exist_ok=True)
            return
        except FileNotFoundError:
            time.sleep(FIRST_PAUSE)
    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def kill_members(paths: Iterable[Path], seconds: float = REMOVE_SECONDS) -> None:
    """End every process in these cgroups, and below. Blocks until they are gone.

    Raises: SandboxUnavailable when some do not go.
    """
    deadline = time.monotonic() + seconds
    for path in paths:
        pause = FIRST_PAUSE
        while members := _members(path):
            _kill(path, members)
            if time.monotonic() > deadline:
                raise SandboxUnavailable(f"Processes {members} in {path} do not end. Look for their state in `ps`.")
            time.sleep(pause)
            pause = min(pause * 2, 0.05)


def _kill(path: Path, members: list[int]) -> None:
    try:
        (path / "cgroup.kill").write_text("1")
        return
    except OSError:
        pass  # version 1, or a kernel before 5.14
    for pid in members:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _members(path: Path) -> list[int]:
    try:
        return [int(word) for word in (path / "cgroup.procs").read_text().split() if word != "0"]
    except OSError:
        return []


def remove(paths: Iterable[Path], seconds: float = REMOVE_SECONDS) -> None:
    """Remove cgroups whose processes have ended; the kernel needs a moment to let go of them.

    Raises: SandboxUnavailable.
    """
    deadline = time.monotonic() + seconds
    for path in paths:
        pause = FIRST_PAUSE
        while not _removed(path):
            if time.monotonic() > deadline:
                raise SandboxUnavailable(f"The cgroup {path} cannot be removed: something still runs in it.")
            time.sleep(pause)
            pause = min(pause * 2, 0.05)


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError as failure:
        if failure.errno in (errno.EBUSY, errno.ENOTEMPTY):
            return False
        raise SandboxUnavailable(f"The cgroup {path} cannot be removed: {failure.strerror}.") from failure
    return True


def remove_if_empty(discovery: Discovery) -> None:
    """Hutch's own parent cgroup, when the last sandbox of this machine has gone."""
    for base in dict.fromkeys(discovery.bases.values()):
        try:
            (base / FOLDER).rmdir()
        except OSError:
            pass  # another server's sandboxes live there
