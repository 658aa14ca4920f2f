"""Templates: what a sandbox is made like. `bash` is strict, `open` is everything else's start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from hutch.model.limits import MIB, Limits


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    policy: str  # name of the command policy profile
    strict: bool  # only the allowed programs exist, and nothing the sandbox wrote can be executed
    limits: Limits


ALLOWED_PROGRAMS: tuple[str, ...] = tuple(
    "jq awk grep sed sort uniq head tail wc cut tr cat echo date find ls python3 python bc comm diff basename "
    "dirname file stat tee".split()
)
# Bash has no built-in for these two, which agents ask first of all; they reveal nothing but the sandbox's own user.
STRICT_PROGRAMS: tuple[str, ...] = (*ALLOWED_PROGRAMS, "id", "whoami")

BASH = Template(
    name="bash",
    policy="strict",
    strict=True,
    limits=Limits(
        memory_bytes=256 * MIB,
        cpu_percent=25,
        pids=128,
        file_bytes=100 * MIB,
        workspace_bytes=500 * MIB,
        workspace_files=1000,
        tmp_bytes=64 * MIB,
        timeout=30.0,
    ),
)

OPEN = Template(
    name="open",
    policy="open",
    strict=False,
    limits=Limits(
        memory_bytes=4096 * MIB,
        cpu_percent=200,
        pids=1024,
        file_bytes=0,
        workspace_bytes=10_240 * MIB,
        workspace_files=200_000,
        tmp_bytes=1024 * MIB,
        timeout=30.0,
    ),
)


class TemplateInfo(TypedDict):
    """What holds for sandboxes of a template here, for people and models to read."""

    name: str
    policy: str
    programs: list[str]  # that may run; empty: any
    timeout: float  # seconds of a command, if the call does not say
    memory_bytes: int
    file_bytes: int  # 0: only the workspace's
    workspace_bytes: int
    workspace_files: int
