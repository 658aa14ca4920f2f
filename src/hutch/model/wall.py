"""Walls: the closed table of what stands between a sandbox and its host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WallNeed = Literal["required", "strict", "best_effort"]
WallState = Literal["up", "down", "tolerated", "off"]  # tolerated: HUTCH_ALLOW_MISSING; off: by a test


@dataclass(frozen=True, slots=True)
class Wall:
    name: str
    need: WallNeed
    keeps: str  # what it keeps from happening


WALLS: tuple[Wall, ...] = (
    Wall("user_namespace", "required", "being a user of the host"),
    Wall("pid_namespace", "required", "seeing or signalling processes outside"),
    Wall("mount_namespace", "required", "seeing the host's files"),
    Wall("net_namespace", "required", "reaching any network"),
    Wall("ipc_namespace", "required", "sharing memory or queues with others"),
    Wall("uts_namespace", "required", "seeing or changing the host's name"),
    Wall("disable_userns", "required", "making namespaces of its own, and the kernel code they open"),
    Wall("no_capabilities", "required", "holding any privilege in its namespaces"),
    Wall("no_new_privs", "required", "gaining privilege from setuid programs"),
    Wall("seccomp", "required", "calling kernel functions no sandbox needs"),
    Wall("keyring", "required", "reading keys of the host or of a neighbour"),
    Wall("read_only_root", "required", "changing system files or filling memory through them"),
    Wall("sized_tmpfs", "required", "filling the host's memory with files"),
    Wall("clean_environment", "required", "reading the server's secrets from environment or command line"),
    Wall("no_descriptors", "required", "using files the server has open"),
    Wall("host_uid", "required", "sharing a user id, and its quotas, with the server or a neighbour (root only)"),
    Wall("program_folder", "strict", "running programs outside the list"),
    Wall("noexec", "strict", "running programs it wrote itself"),
    Wall("memfd", "strict", "running programs from anonymous memory"),
    Wall("cgroup_namespace", "best_effort", "seeing where it stands in the host's cgroups"),
    Wall("cgroup_limits", "best_effort", "using more memory, CPU or processes than its share"),
    Wall("landlock", "best_effort", "executing files outside the list, a second time"),
    Wall("hidden_paths", "best_effort", "reading host paths in its mount table"),
)


@dataclass(frozen=True, slots=True)
class WallReport:
    name: str
    state: WallState
    detail: str  # how it stands, or why not and what to do
