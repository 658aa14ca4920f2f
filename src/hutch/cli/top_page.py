"""What `hutch top` shows, made from a server's own numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hutch.cli import show
from hutch.model.session import SandboxInfo

COLUMNS = ["THREAD", "USER", "TEMPLATE", "STATE", "PROCESSES", "LAST USED", "EXPIRES"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Of the whole server, since it started."""

    sessions: int
    running: int
    spare: int
    most: int
    processes: int
    created: int
    reused: int
    commands: int
    failed: int  # could not run, or lost their sandbox
    refused: int
    timed_out: int
    limit_hits: int
    command_seconds: float
    bytes_up: int
    bytes_down: int
    workspace_bytes: int
    memory_bytes: int  # of the server itself
    cpu_seconds: float


def totals(samples: Sequence[dict[str, Any]]) -> Totals:
    """From the samples of /metrics. One that is missing counts as 0: another version may not have it."""

    def total(name: str, **labels: str) -> float:
        found = (one for one in samples if one["name"] == name)
        return sum(float(one["value"]) for one in found if labels.items() <= dict(one["labels"]).items())

    def whole(name: str, **labels: str) -> int:
        return round(total(name, **labels))

    return Totals(
        sessions=whole("hutch_sessions_active"),
        running=whole("hutch_sandboxes_running"),
        spare=whole("hutch_sandboxes_spare"),
        most=whole("hutch_sandboxes_max"),
        processes=whole("hutch_processes_running"),
        created=whole("hutch_sessions_total", outcome="created") + whole("hutch_sessions_total", outcome="renewed"),
        reused=whole("hutch_sessions_total", outcome="reused"),
        commands=whole("hutch_commands_total"),
        failed=whole("hutch_commands_total", outcome="failed"),
        refused=whole("hutch_commands_total", outcome="refused"),
        timed_out=whole("hutch_commands_total", outcome="timed_out"),
        limit_hits=whole("hutch_limit_hits_total"),
        command_seconds=total("hutch_command_seconds_sum", kind="command"),
        bytes_up=whole("hutch_transferred_bytes_total", direction="up"),
        bytes_down=whole("hutch_transferred_bytes_total", direction="down"),
        workspace_bytes=whole("hutch_workspace_bytes"),
        memory_bytes=whole("process_resident_memory_bytes"),
        cpu_seconds=total("process_cpu_seconds_total"),
    )


def document(now: Totals, sessions: Sequence[SandboxInfo]) -> dict[str, Any]:
    return {"server": asdict(now), "sessions": list(sessions)}


def headlines(now: Totals, before: Totals | None, seconds: float) -> list[str]:
    """With `before`, `seconds` earlier, also what happens each second; a server that started anew has no before."""
    asked = now.created + now.reused
    hold, memory = show.size(now.workspace_bytes), show.size(now.memory_bytes)
    lines = [
        f"{now.sessions} sessions; {now.running} of {now.most} sandboxes run, {now.spare} of them spare",
        f"{asked} sessions asked for, {_share(now.reused, asked)} reused; {now.processes} processes run",
        f"{now.commands} commands: {now.failed} failed, {now.refused} refused, {now.timed_out} timed out",
        f"{now.limit_hits} limit hits; {show.size(now.bytes_up)} up, {show.size(now.bytes_down)} down",
        f"workspaces hold {hold}, the server's memory is {memory}",
    ]
    if before is None or seconds <= 0 or now.cpu_seconds < before.cpu_seconds:
        return lines
    commands = now.commands - before.commands
    mean = (now.command_seconds - before.command_seconds) / commands * 1000 if commands else 0.0
    up, down = (now.bytes_up - before.bytes_up) / seconds, (now.bytes_down - before.bytes_down) / seconds
    lines.append(
        f"now: {commands / seconds:.1f} commands/s of {mean:.1f} ms, {show.size(round(up))}/s up, "
        f"{show.size(round(down))}/s down, {(now.cpu_seconds - before.cpu_seconds) / seconds:.0%} of a core"
    )
    return lines


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "none"


def rows(sessions: Sequence[SandboxInfo]) -> list[list[str]]:
    """The latest used first."""
    latest = sorted(sessions, key=lambda info: info["last_activity"], reverse=True)
    return [
        [
            info["thread_id"],
            info["user_id"],
            info["template"],
            info["state"],
            str(info["processes"]),
            show.when(info["last_activity"]),
            show.when(info["expires_at"]),
        ]
        for info in latest
    ]
