"""Processes in a sandbox: what to run, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from hutch.model.limits import LimitName

StreamName = Literal["stdout", "stderr"]
Leftovers = Literal["kill", "keep"]
SignalScope = Literal["process", "group", "tree"]


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """Shell text (`bash -c`) or an argument vector; exactly one of the two."""

    command: str | None = None
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])  # over the sandbox's own
    cwd: str | None = None  # None: the sandbox's
    user: str | None = None  # None: the sandbox's only user
    stdin: Literal["empty", "pipe"] = "empty"
    pty: tuple[int, int] | None = None  # rows, columns
    timeout: float | None = None  # None: no end (background processes, shells)
    leftovers: Leftovers = "kill"
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class KilledProcess:
    pid: int  # as the sandbox saw it
    name: str


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended. `exit_code` is 128+n after signal n."""

    exit_code: int
    signal: int | None = None
    killed: tuple[KilledProcess, ...] = ()  # still running when the command ended
    cpu_ms: int = 0
    max_rss_bytes: int = 0
    tasks_left: int = 0  # threads, of all processes that were still running
    limit: LimitName | None = None  # what the provider itself saw being hit (memory, pids, cpu, file_size)
    lost: bool = False  # the machine died under it


class KilledProcessInfo(TypedDict):
    pid: int
    name: str


class ExecResult(TypedDict):
    exit_code: int
    stdout: str
    stderr: str
    execution_time_ms: int
    timed_out: bool
    limit: LimitName | None
    truncated: bool  # stdout or stderr holds less than was printed
    stdout_bytes: int  # printed in all
    stderr_bytes: int
    spooled_bytes: int  # kept for `logs(process_id)`
    killed_processes: list[KilledProcessInfo]
    session_recreated: bool
    files_kept: bool
    process_id: str


class OutputEvent(TypedDict):
    """One piece of a process's output, or its end (`type` "exit")."""

    type: Literal["stdout", "stderr", "exit"]
    data: bytes  # empty for "exit"
    text: str  # decoded; a character is never cut in two
    offset: int  # of `data` in its stream
    result: ExecResult | None  # only for "exit"


class ProcessInfo(TypedDict):
    process_id: str
    pid: int
    command: str
    tag: str | None
    status: Literal["running", "exited"]
    exit_code: int | None
    limit: LimitName | None
    started_at: str
    ended_at: str | None
    pty: bool
    stdout_bytes: int
    stderr_bytes: int


class LogChunk(TypedDict):
    data: bytes
    text: str
    offset: int  # where `data` starts
    next_offset: int  # ask for this one next
    first_offset: int  # the oldest byte still kept
    total_bytes: int  # printed so far
    complete: bool  # the process has ended and nothing lies behind `next_offset`
