"""What one sandbox may use. Limits belong to its template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LimitName = Literal["memory", "pids", "file_size", "workspace", "files", "output", "cpu"]

MIB = 1024 * 1024
MAX_COMMAND_BYTES = 131_071  # the kernel's longest single argument
OUTPUT_BYTES = 10 * MIB  # of each stream, in a result
SPOOL_COMMAND_BYTES = 64 * MIB  # of both streams of one command, to page through
SPOOL_SESSION_BYTES = 256 * MIB  # of all commands of one sandbox


@dataclass(frozen=True, slots=True)
class Limits:
    memory_bytes: int
    cpu_percent: int  # of one core; 0 = no quota
    pids: int
    file_bytes: int  # largest single file; 0 = only the workspace's
    workspace_bytes: int
    workspace_files: int
    tmp_bytes: int
    timeout: float  # default seconds of a command
    ptys: int = 32
    inotify_instances: int = 32
    inotify_watches: int = 8192
    open_files: int = 4096
