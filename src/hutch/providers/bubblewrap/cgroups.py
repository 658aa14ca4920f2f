"""Where this machine's cgroups may carry a sandbox's limits, and what to write there. Pure over a given root folder.

Version 2 first, version 1 too, and their mixture; per controller, because a machine may hand out some of them only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hutch.model.limits import LimitName, Limits

Controller = Literal["memory", "cpu", "pids"]
CONTROLLERS: tuple[Controller, ...] = ("memory", "cpu", "pids")
FOLDER = "hutch"
CPU_PERIOD_US = 40_000  # shorter than the usual 100 ms: a throttled command stalls for less at a time
COUNTERS: Mapping[int, Mapping[Controller, tuple[str, str]]] = {
    1: {"memory": ("memory.oom_control", "oom_kill"), "pids": ("pids.events", "max")},
    2: {"memory": ("memory.events", "oom_kill"), "pids": ("pids.events", "max")},
}
LIMIT_NAMES: Mapping[Controller, LimitName] = {"memory": "memory", "pids": "pids", "cpu": "cpu"}


@dataclass(frozen=True, slots=True)
class Discovery:
    """`bases`: controller -> the cgroup below which Hutch makes its own. `enable`: (file, text) to write first."""

    version: int = 0  # 0: none
    bases: Mapping[Controller, Path] = field(default_factory=dict[Controller, Path])
    enable: tuple[tuple[Path, str], ...] = ()
    gap: str = ""  # why a controller is missing, and what to do

    @property
    def missing(self) -> tuple[Controller, ...]:
        return tuple(name for name in CONTROLLERS if name not in self.bases)


def discover(root: Path, own: str) -> Discovery:
    """`root`: /sys/fs/cgroup. `own`: the text of /proc/self/cgroup."""
    paths = _own_paths(own)
    if (root / "cgroup.controllers").is_file():
        return _discover_v2(root, paths.get("", "/"))
    bases = {name: base for name in CONTROLLERS if (base := _v1_base(root, name, paths)) is not None}
    if bases:
        gap = "" if len(bases) == len(CONTROLLERS) else f"no writable cgroup v1 controller for {_absent(bases)}"
        return Discovery(1, bases, (), gap)
    return Discovery(
        gap=f"no writable cgroups below {root}: run as root, or under `systemd-run --user -p Delegate=yes`"
    )


def _own_paths(own: str) -> dict[str, str]:
    """Controller (empty for version 2) -> path."""
    found: dict[str, str] = {}
    for line in own.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        found.update(dict.fromkeys(names.split(","), path))
    return found


def _absent(bases: Mapping[Controller, Path]) -> str:
    return ", ".join(name for name in CONTROLLERS if name not in bases)


def _v1_base(root: Path, name: Controller, paths: Mapping[str, str]) -> Path | None:
    if name not in paths:
        return None
    mounted = next((root / folder for folder in (name, "cpu,cpuacct") if _holds(root / folder, name)), None)
    if mounted is None:
        return None
    # In a container the own path may be one the mount does not show: its root is then our own cgroup.
    own = mounted / paths[name].lstrip("/")
    base = own if (own / "cgroup.procs").is_file() else mounted
    return base if os.access(base, os.W_OK) and os.access(base / "cgroup.procs", os.W_OK) else None


def _holds(folder: Path, name: Controller) -> bool:
    marker = {"memory": "memory.limit_in_bytes", "cpu": "cpu.cfs_quota_us", "pids": "cgroup.procs"}[name]
    is_own = name != "pids" or folder.name == "pids"
    # The root cgroup of some controllers has no limit file of its own.
    return is_own and (
        (folder / marker).exists() or ((folder / "cgroup.procs").exists() and name in folder.name.split(","))
    )


def _discover_v2(root: Path, own: str) -> Discovery:
    start = root / own.lstrip("/")
    if not start.is_dir():
        start = root
    reason = "no cgroup that this user may write to"
    for base in (start, *start.parents):
        if not base.is_relative_to(root) or not _writable_v2(base):
            break  # a process can only be moved below a cgroup it may write to
        offered = _words(base / "cgroup.controllers")
        enabled = _words(base / "cgroup.subtree_control")
        wanted = [name for name in CONTROLLERS if name in offered]
        to_enable = [name for name in wanted if name not in enabled]
        if to_enable and base != root and (base / "cgroup.procs").read_text().strip():
            reason = f"{base} holds processes itself, so it cannot share out its controllers"
            continue
        if wanted:
            bases: dict[Controller, Path] = dict.fromkeys(wanted, base)
            texts = "".join(f"+{name} " for name in to_enable).strip()
            enable = ((base / "cgroup.subtree_control", texts),) if texts else ()
            gap = "" if len(bases) == len(CONTROLLERS) else f"{base} is not given the controllers {_absent(bases)}"
            return Discovery(2, bases, enable, gap)
        reason = f"{base} is given none of the controllers {', '.join(CONTROLLERS)}"
    return Discovery(gap=f"{reason}: run as root, or under `systemd-run --user -p Delegate=yes`")


def _writable_v2(base: Path) -> bool:
    return all(os.access(path, os.W_OK) for path in (base, base / "cgroup.procs", base / "cgroup.subtree_control"))


def _words(path: Path) -> set[str]:
    try:
        return set(path.read_text().split())
    except OSError:
        return set()


def limit_files(version: int, controller: Controller, limits: Limits) -> tuple[tuple[str, str, bool], ...]:
    """(file, text, needed) to write in a sandbox's cgroup, in this order. What is not needed may be missing."""
    memory, pids = str(limits.memory_bytes), str(limits.pids)
    quota = max(limits.cpu_percent * CPU_PERIOD_US // 100, 1000)
    if controller == "pids":
        return (("pids.max", pids, True),)
    if controller == "memory" and version == 2:
        return (("memory.max", memory, True), ("memory.swap.max", "0", False), ("memory.oom.group", "0", False))
    if controller == "memory":
        return (("memory.limit_in_bytes", memory, True), ("memory.memsw.limit_in_bytes", memory, False))
    if not limits.cpu_percent:
        return ()
    if version == 2:
        return (("cpu.max", f"{quota} {CPU_PERIOD_US}", True),)
    return (("cpu.cfs_period_us", str(CPU_PERIOD_US), True), ("cpu.cfs_quota_us", str(quota), True))


def counter(content: bytes, key: str) -> int:
    """The number after `key` in a file of `key number` lines; 0 when it is not there."""
    wanted = key.encode()
    for line in content.splitlines():
        name, _, number = line.partition(b" ")
        if name == wanted and number.strip().isdigit():
            return int(number)
    return 0


def grown(before: Mapping[Controller, int], after: Mapping[Controller, int]) -> LimitName | None:
    """Which limit was hit between two readings."""
    for controller in ("memory", "pids"):
        name: Controller = "memory" if controller == "memory" else "pids"
        if after.get(name, 0) > before.get(name, 0):
            return LIMIT_NAMES[name]
    return None
