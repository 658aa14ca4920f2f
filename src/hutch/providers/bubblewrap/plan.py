"""The plan of one sandbox: the steps hutch-launch carries out, and bubblewrap's arguments. Pure.

The steps build a *stage* below /sys of a mount namespace of their own: every folder the sandbox will see. bubblewrap
then only puts the pieces in their places. It never mounts anything below a folder that a sandbox could have written
to, because it would follow links there; and since all pieces come from the stage, the sandbox's mount table names
none of the host's paths.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from hutch.model.limits import Limits
from hutch.providers.base import TREES_DIR
from hutch.providers.bubblewrap.etc import GID, UID
from hutch.providers.bubblewrap.layers import HOSTNAME

NEWNS, NEWUSER = 0x0002_0000, 0x1000_0000
# There on every Linux, and nothing that is needed before a sandbox runs lies in it: a data folder, a Python environment
# with a bubblewrap of its own, may well lie below /tmp.
STAGE = "/sys"
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
MERGED = ("bin", "lib", "lib64", "lib32", "libx32", "sbin")  # links into /usr, where the host has them
NAMESPACES = {
    "user_namespace": "--unshare-user",
    "pid_namespace": "--unshare-pid",
    "net_namespace": "--unshare-net",
    "ipc_namespace": "--unshare-ipc",
    "uts_namespace": "--unshare-uts",
    "cgroup_namespace": "--unshare-cgroup-try",
}
SHM_SHARE = 4  # /dev/shm gets this part of what /tmp gets
TMPFS_BYTES_PER_INODE = 4096

# Numbers of descriptors in the launched process: what hutch-launch is handed, in this order, from 10 on …
ERRORS_FD, ARGS_FD, INFO_FD, LISTEN_FD = range(10, 14)
FIRST_EXTRA_FD = 14  # the filters, and in a test what leaks
# … and what it opens itself.
GUEST_FD, SHELL_FD, WARM_FD = 20, 21, 25
FOLDER_FD, LAYER_FD, BUBBLEWRAP_FD, TREES_FD = 22, 23, 24, 26  # of the host: closed before bubblewrap starts

Step = tuple[str, ...]


class Mount(IntFlag):
    READ_ONLY = 1
    NO_SUID = 2
    NO_DEVICES = 4
    NO_EXEC = 8
    REMOUNT = 32
    BIND = 4096


INERT = Mount.NO_SUID | Mount.NO_DEVICES


@dataclass(frozen=True, slots=True)
class Blueprint:
    """All that decides how a sandbox is built."""

    folder: Path
    layer: Path
    landlock_paths: tuple[str, ...]
    limits: Limits
    strict: bool
    bubblewrap: Path
    uid: int  # the host uid and gid of everything in the sandbox
    gid: int
    as_root: bool  # the launcher may mount without a user namespace and change its uid
    walls: frozenset[str]  # the walls to build
    overlay: bool = True  # the workspace's file system can carry an overlay
    cgroup: Path | None = None  # of version 2: the process is born there
    cgroup_files: tuple[Path, ...] = ()  # of version 1: each takes the process in
    merged: tuple[tuple[str, str], ...] = ()  # (target, name) of the links /bin, /lib …
    masked: tuple[str, ...] = ()  # files of /proc that tell of others
    trees: Path | None = None  # shown read-only

    def has(self, wall: str) -> bool:
        return wall in self.walls

    @property
    def flags(self) -> Mount:
        """Of everything that can be written to."""
        return INERT | Mount.NO_EXEC if self.strict and self.has("noexec") else INERT


def plan_words(steps: Iterable[Step]) -> bytes:
    """The packet for hutch-launch."""
    return b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for step in steps for word in step)


def steps(blue: Blueprint) -> Iterator[Step]:
    if blue.cgroup is not None:
        yield ("into", str(blue.cgroup))  # has to come first
    if blue.has("keyring"):
        yield ("keyring",)
    for file in blue.cgroup_files:
        yield ("write", str(file), "0")
    yield from _namespace(blue)
    yield from _stage(blue)
    yield from _devices(blue)
    yield ("open", str(GUEST_FD), f"{STAGE}/hidden/hutch-guest")
    yield ("open", str(SHELL_FD), f"{STAGE}/hidden/bash")
    yield ("open", str(WARM_FD), f"{STAGE}/hidden/hutch-warm.so")
    yield ("rlimit", str(resource.RLIMIT_CORE), "0", "0")
    yield from _identity(blue)
    guest = f"/proc/self/fd/{GUEST_FD}"
    bubblewrap = f"/proc/self/fd/{BUBBLEWRAP_FD}"
    yield ("exec", bubblewrap, "bwrap", "--args", str(ARGS_FD), guest, *guest_arguments(blue))


def guest_arguments(blue: Blueprint) -> tuple[str, ...]:
    arguments: tuple[str, ...] = ("--listen", str(LISTEN_FD), "--shell", str(SHELL_FD), "--warm", str(WARM_FD))
    if blue.strict and blue.has("landlock") and blue.landlock_paths:
        arguments += ("--landlock-exec", ":".join(blue.landlock_paths))
    return arguments


def _own_namespace(uid: int, gid: int) -> Iterator[Step]:
    """After an unshare: this process stays who it is, now as the only user of its namespace."""
    yield ("write", "/proc/self/setgroups", "deny")
    yield ("write", "/proc/self/uid_map", f"{uid} {uid} 1")
    yield ("write", "/proc/self/gid_map", f"{gid} {gid} 1")


def _namespace(blue: Blueprint) -> Iterator[Step]:
    yield ("unshare", str(NEWNS if blue.as_root else NEWNS | NEWUSER))
    if not blue.as_root:
        yield from _own_namespace(blue.uid, blue.gid)
    yield ("private",)


def _mount(source: str, target: str, kind: str, flags: Mount, data: str = "") -> Step:
    return ("mount", source, f"{STAGE}/{target}", kind, str(int(flags)), data)


def _tmpfs(blue: Blueprint, target: str, size_bytes: int, mode: str = "1777") -> Step:
    # The owner is whoever the sandbox is. Inodes cost memory of the host too.
    sized = f",size={size_bytes},nr_inodes={max(size_bytes // TMPFS_BYTES_PER_INODE, 1024)}"
    owner = f"mode={mode},uid={blue.uid},gid={blue.gid}"
    return _mount(target, target, "tmpfs", blue.flags, owner + (sized if blue.has("sized_tmpfs") else ""))


def _overlay(target: str, lower: str, flags: Mount) -> Step:
    return _mount("hutch", target, "overlay", flags, f"lowerdir={lower},userxattr")


def _stage(blue: Blueprint) -> Iterator[Step]:
    # Relative names keep the mount table silent, so each mount is made from inside its folder. What is needed of the
    # host is opened first: the stage may cover it.
    for number, path in (
        (FOLDER_FD, blue.folder),
        (LAYER_FD, blue.layer),
        (BUBBLEWRAP_FD, blue.bubblewrap),
        (TREES_FD, blue.trees),
    ):
        if path is not None:
            yield ("hold", str(number), str(path))
    yield ("chdir", f"/proc/self/fd/{LAYER_FD}")
    yield ("mount", "stage", STAGE, "tmpfs", str(int(INERT)), "size=256k,nr_inodes=128,mode=0755")
    for name in ("empty", "files", "usr", "etc", "tmp", "dev", "dev/pts", "dev/shm", "hidden", "trees"):
        yield ("mkdir", f"{STAGE}/{name}", "0755")
    yield ("touch", f"{STAGE}/nothing")
    yield _overlay("usr", "usr:/usr" if _layered(blue) else "empty:/usr", INERT | Mount.READ_ONLY)
    yield _overlay("etc", "etc:empty", INERT | Mount.READ_ONLY)
    yield _overlay("hidden", "hidden:empty", INERT | Mount.READ_ONLY)
    yield ("chdir", f"/proc/self/fd/{FOLDER_FD}")
    if blue.overlay and blue.has("hidden_paths"):
        # volatile: without it the kernel writes back the whole file system whenever a sandbox ends.
        data = f"lowerdir={STAGE}/empty,upperdir=files,workdir=work,userxattr,volatile"
        yield _mount("hutch", "files", "overlay", blue.flags, data)
    else:
        yield _mount("files", "files", "", Mount.BIND)
        yield _mount("files", "files", "", Mount.BIND | Mount.REMOUNT | blue.flags)
    if blue.trees is not None:
        yield ("chdir", f"/proc/self/fd/{TREES_FD}")
        yield _overlay("trees", f".:{STAGE}/empty", INERT | Mount.READ_ONLY)
    yield ("chdir", "/")
    yield _tmpfs(blue, "tmp", blue.limits.tmp_bytes)


def _layered(blue: Blueprint) -> bool:
    return blue.has("program_folder") or not blue.strict


def _devices(blue: Blueprint) -> Iterator[Step]:
    for name in DEVICES:
        yield ("touch", f"{STAGE}/dev/{name}")
        yield _mount(f"/dev/{name}", f"dev/{name}", "", Mount.BIND)
    # A devpts of its own, with a cap: the host's terminals are one pool for everybody.
    yield _mount(
        "devpts",
        "dev/pts",
        "devpts",
        Mount.NO_SUID | Mount.NO_EXEC,
        f"newinstance,max={blue.limits.ptys},ptmxmode=0666,mode=620",
    )
    yield _tmpfs(blue, "dev/shm", max(blue.limits.tmp_bytes // SHM_SHARE, 1))
    for target, name in (
        ("pts/ptmx", "ptmx"),
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
    ):
        yield ("symlink", target, f"{STAGE}/dev/{name}")


def _identity(blue: Blueprint) -> Iterator[Step]:
    # Without a user namespace (a test) only root can build the others.
    if blue.as_root and blue.has("host_uid") and blue.has("user_namespace"):
        yield ("setids", str(blue.uid), str(blue.gid))
    if blue.has("user_namespace"):
        # Limits on a user count in each user namespace up the line: this one is the sandbox's alone.
        if blue.as_root:
            yield ("unshare", str(NEWUSER))
            yield from _own_namespace(blue.uid, blue.gid)
        yield ("write", "/proc/sys/user/max_inotify_instances", str(blue.limits.inotify_instances))
        yield ("write", "/proc/sys/user/max_inotify_watches", str(blue.limits.inotify_watches))


def bubblewrap_arguments(blue: Blueprint) -> tuple[str, ...]:
    """Read by bubblewrap from a descriptor, so that no process list shows them."""
    arguments = ["--die-with-parent", "--new-session", "--info-fd", str(INFO_FD)]
    arguments += [option for wall, option in NAMESPACES.items() if blue.has(wall)]
    if blue.has("user_namespace"):
        arguments += ["--uid", str(UID), "--gid", str(GID)]
        arguments += ["--disable-userns"] if blue.has("disable_userns") else []
    if blue.has("pid_namespace"):
        arguments += ["--as-pid-1"]
    if blue.has("uts_namespace"):
        arguments += ["--hostname", HOSTNAME]
    if blue.has("clean_environment"):
        arguments += ["--clearenv"]
    arguments += ["--cap-drop", "ALL"] if blue.has("no_capabilities") else ["--cap-add", "ALL"]
    extra = FIRST_EXTRA_FD
    if blue.has("seccomp"):
        arguments += ["--add-seccomp-fd", str(extra), "--add-seccomp-fd", str(extra + 1)]
        extra += 2
    if not blue.has("no_descriptors"):
        arguments += ["--json-status-fd", str(extra)]  # bubblewrap keeps it open
    arguments += _tree(blue)
    return tuple(arguments)


def _tree(blue: Blueprint) -> list[str]:
    arguments = [] if blue.has("mount_namespace") else ["--ro-bind", "/", "/host"]
    bind_system = "--ro-bind" if blue.has("read_only_root") else "--bind"
    arguments += [bind_system, f"{STAGE}/usr", "/usr", bind_system, f"{STAGE}/etc", "/etc"]
    for target, name in blue.merged:
        arguments += ["--symlink", target, f"/{name}"]
    arguments += ["--proc", "/proc", "--dev-bind", f"{STAGE}/dev", "/dev"]
    for path in blue.masked:
        arguments += ["--ro-bind", f"{STAGE}/nothing", path]
    if blue.has("read_only_root"):
        arguments += ["--remount-ro", "/dev"]
    arguments += ["--bind", f"{STAGE}/tmp", "/tmp", "--bind", f"{STAGE}/files", "/workspace"]
    arguments += ["--dir", "/run", "--dir", "/var", "--symlink", "/tmp", "/var/tmp", "--chdir", "/workspace"]
    if blue.trees is not None:
        arguments += ["--ro-bind", f"{STAGE}/trees", TREES_DIR]
    if blue.has("read_only_root"):
        arguments += ["--remount-ro", "/"]
    return arguments
