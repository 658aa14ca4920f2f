"""What memory sandboxes take, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path

_KERNEL_KINDS = (
    "Slab",
    "KernelStack",
    "PageTables",
    "Percpu",
    "Shmem",
)  # Shmem: small tmpfs that hold /etc and the like


def descendants(pid: int, proc: Path = Path("/proc")) -> set[int]:
    """All processes below `pid`."""
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name, in parentheses, may hold anything; the parent follows the state behind it.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # it ended meanwhile
        children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def private_dirty_kib(pids: set[int], proc: Path = Path("/proc")) -> int:
    """Raises: PermissionError where another user's, or a guarded, process may not be looked into."""
    total = 0
    for pid in pids:
        try:
            text = (proc / str(pid) / "smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_Dirty:"))
    return total


def kernel_kib(meminfo: Path = Path("/proc/meminfo")) -> int:
    """What the kernel itself holds on behalf of processes, of the whole machine."""
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return sum(int(fields[kind].split()[0]) for kind in _KERNEL_KINDS if kind in fields)
