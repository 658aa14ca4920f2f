"""What a probe sandbox shows of its own walls, judged. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Parts of the output are told apart by these lines.
SECTIONS = ("status", "mounts", "namespaces", "descriptors", "programs", "environment")
COMMAND = "; ".join(
    f"echo '== {name}'; {command}"
    for name, command in (
        ("status", "cat /proc/self/status"),
        ("mounts", "cat /proc/self/mountinfo"),
        ("namespaces", "ls -l /proc/self/ns"),
        ("descriptors", "ls /proc/self/fd"),
        ("programs", "ls /usr/bin"),
        ("environment", "cat /proc/1/environ 2>&1"),
    )
)
NAMESPACE_OF = {
    "user_namespace": "user",
    "pid_namespace": "pid",
    "mount_namespace": "mnt",
    "net_namespace": "net",
    "ipc_namespace": "ipc",
    "uts_namespace": "uts",
    "cgroup_namespace": "cgroup",
}
WRITABLE = ("/workspace", "/tmp", "/dev/shm")


@dataclass(frozen=True, slots=True)
class Finding:
    up: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Host:
    """What the probe is compared with."""

    namespaces: Mapping[str, str]  # name -> what the link of this process says
    secret_paths: tuple[str, ...]  # must not be in the mount table
    allowed_programs: frozenset[str]


def sections(output: str) -> dict[str, str]:
    parts = re.split(r"^== (\w+)\n", output, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=False))


def judge(output: str, host: Host) -> dict[str, Finding]:
    """Wall -> how it stands, for those walls that can be seen from inside."""
    seen = sections(output)
    found = _namespaces(seen.get("namespaces", ""), host)
    found.update(_status(seen.get("status", "")))
    found.update(_mounts(seen.get("mounts", ""), host))
    extra = sorted(set(seen.get("descriptors", "").split()) - {"0", "1", "2", "3"})  # 3 is the listed folder itself
    found["no_descriptors"] = Finding(
        "descriptors" in seen and not extra, f"extra descriptors: {', '.join(extra)}" if extra else "0, 1, 2 only"
    )
    programs = set(seen.get("programs", "").split())
    strangers = sorted(programs - host.allowed_programs)[:5]
    found["program_folder"] = Finding(
        bool(programs) and not strangers,
        f"also there: {', '.join(strangers)}" if strangers else f"{len(programs)} programs",
    )
    environment = seen.get("environment", "=")
    hidden = "=" not in environment
    found["clean_environment"] = Finding(hidden, "the init's cannot be read" if hidden else "the init's can be read")
    return found


def _namespaces(text: str, host: Host) -> dict[str, Finding]:
    inside = dict(re.findall(r"(\w+) -> (\w+:\[\d+\])", text))
    found: dict[str, Finding] = {}
    for wall, name in NAMESPACE_OF.items():
        own = name in inside and inside[name] != host.namespaces.get(name)
        found[wall] = Finding(own, "its own" if own else "the host's")
    return found


def _status(text: str) -> dict[str, Finding]:
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    value = {name: content.strip() for name, content in lines.items()}
    held = [name for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb") if int(value.get(name, "1"), 16)]
    filters = value.get("Seccomp_filters", "2")  # older kernels do not count them
    return {
        "no_capabilities": Finding(not held, f"not empty: {', '.join(held)}" if held else "none, and none to be had"),
        "no_new_privs": Finding(value.get("NoNewPrivs") == "1", f"NoNewPrivs is {value.get('NoNewPrivs')}"),
        "seccomp": Finding(value.get("Seccomp") == "2" and int(filters) >= 2, f"{filters} filters"),
    }


def _mounts(text: str, host: Host) -> dict[str, Finding]:
    mounts: dict[str, tuple[set[str], str]] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) > 5:
            mounts[fields[4]] = (set(fields[5].split(",")), right)
    read_only = [path for path in ("/", "/usr", "/etc", "/dev") if "ro" not in mounts.get(path, (set(), ""))[0]]
    unsized = [
        path
        for path, (flags, right) in mounts.items()
        if right.startswith("tmpfs") and "rw" in flags and "size=" not in right
    ]
    executable = [path for path in WRITABLE if "noexec" not in mounts.get(path, (set(), ""))[0]]
    shown = [path for path in host.secret_paths if path in text]
    return {
        "read_only_root": Finding(
            not read_only, f"can be written: {', '.join(read_only)}" if read_only else "read-only"
        ),
        "sized_tmpfs": Finding(
            bool(mounts) and not unsized, f"without a size: {', '.join(unsized)}" if unsized else "all have a size"
        ),
        "noexec": Finding(
            not executable, f"can execute: {', '.join(executable)}" if executable else "on all it can write"
        ),
        "hidden_paths": Finding(
            bool(mounts) and not shown, f"shows {', '.join(shown)}" if shown else "no host path in the mount table"
        ),
    }
