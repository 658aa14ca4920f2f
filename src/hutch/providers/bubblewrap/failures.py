"""What a failed start says, and which wall it is about. Pure."""

from __future__ import annotations

import re

from hutch.model.errors import SandboxUnavailable, WallMissing

NAMESPACE_REMEDY = (
    "User namespaces are forbidden here. As root: `sysctl -w kernel.unprivileged_userns_clone=1` (older Debian), "
    "`sysctl -w user.max_user_namespaces=10000`, or on Ubuntu "
    "`sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`; "
    "in a container allow the system calls unshare, clone, mount and pivot_root."
)
OVERLAY_REMEDY = "Use Linux 5.11 or newer with the overlay module (`modprobe overlay`)."
# (what the launcher or bubblewrap printed, wall, remedy). The first that matches counts.
CAUSES: tuple[tuple[str, str, str], ...] = (
    (r"hutch-launch: keyring", "keyring", "Allow the system call keyctl for the server."),
    (r"hutch-launch: write /proc/self/(uid_map|gid_map|setgroups)", "user_namespace", NAMESPACE_REMEDY),
    (r"hutch-launch: unshare", "user_namespace", NAMESPACE_REMEDY),
    (r"hutch-launch: write /proc/sys/user/", "user_namespace", "Mount /proc read-write for the server."),
    (r"hutch-launch: write \S*cgroup\S*", "cgroup_limits", "Give the server write access to its cgroup."),
    (r"hutch-launch: setids", "host_uid", "As root, keep the capabilities CAP_SETUID and CAP_SETGID."),
    (r"hutch-launch: mount /sys/files", "hidden_paths", OVERLAY_REMEDY),
    (r"hutch-launch: mount /sys/(usr|etc|hidden)", "read_only_root", OVERLAY_REMEDY),
    (r"hutch-launch: mount /sys/(tmp|dev/shm|dev/pts)", "sized_tmpfs", NAMESPACE_REMEDY),
    (r"hutch-launch: (mount|private)", "mount_namespace", NAMESPACE_REMEDY),
    (r"No permissions to create a? ?new namespace|Creating new namespace failed", "user_namespace", NAMESPACE_REMEDY),
    (r"setting up uid map|Can't mount proc|Failed to make / slave|loopback", "user_namespace", NAMESPACE_REMEDY),
    (r"max_user_namespaces|disable.userns", "disable_userns", "Mount /proc read-write, and use Linux 5.11 or newer."),
    (r"seccomp|PR_SET_SECCOMP", "seccomp", "Use a kernel with CONFIG_SECCOMP_FILTER."),
    (r"Unknown option (\S+)", "user_namespace", "Use bubblewrap 0.8.0 or newer."),
)
LONGEST_TEXT = 500


def start_failure(text: str) -> SandboxUnavailable:
    """The error for a machine that ended before it answered; `text` is what it printed."""
    cause = " / ".join(line.strip() for line in text.splitlines() if line.strip())[:LONGEST_TEXT]
    for pattern, wall, remedy in CAUSES:
        if re.search(pattern, cause):
            return wall_missing(wall, cause, remedy)
    return SandboxUnavailable(f"The sandbox ended while it was starting: {cause or 'it gave no reason'}.")


def wall_missing(wall: str, cause: str, remedy: str) -> WallMissing:
    return WallMissing(f"The wall '{wall}' cannot be built: {cause}. {remedy}", walls=[wall], remedy=remedy)
