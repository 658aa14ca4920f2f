"""One command in a session: its output as it comes, our input for it, and its end whatever happens to us."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from hutch.cli import show
from hutch.cli.feed import Feeder
from hutch.model.errors import HutchError, SandboxUnavailable
from hutch.model.process import ExecResult, OutputEvent

if TYPE_CHECKING:
    from hutch.client.sync_client import SandboxClient

Printer = Callable[[OutputEvent], None]


@dataclass(frozen=True, slots=True)
class Job:
    command: str
    timeout: float
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: bool = False  # feed it our standard input


def run(client: SandboxClient, job: Job, printer: Printer) -> ExecResult:
    """Raises: what `SandboxClient.start` raises; then the command does not run."""
    process_id = client.start(job.command, cwd=job.cwd, env=job.env, stdin=job.stdin, timeout=job.timeout, tag="cli")[
        "process_id"
    ]
    feeder: Feeder | None = None
    try:
        if job.stdin:
            feeder = Feeder(lambda data: client.send_input(process_id, data), lambda: client.close_input(process_id))
        return _follow(client, process_id, printer)
    except BaseException:
        with suppress(HutchError):
            client.kill(process_id)
        raise
    finally:
        if feeder is not None:
            feeder.stop()


def _follow(client: SandboxClient, process_id: str, printer: Printer) -> ExecResult:
    walk = cast("Generator[OutputEvent, None, None]", client.attach(process_id))
    with closing(walk) as events:
        for event in events:
            if event["result"] is not None:
                return event["result"]
            printer(event)
    raise SandboxUnavailable("The sandbox ended before the command did.")


def pass_through(event: OutputEvent) -> None:
    """The command's bytes to our own streams, unchanged."""
    show.write(show.STDOUT if event["type"] == "stdout" else show.STDERR, event["data"])


def discard(event: OutputEvent) -> None:
    """For those who print the result instead."""


def remarks(result: ExecResult, timeout: float) -> list[str]:
    """What the output and the exit code do not say."""
    said: list[str] = []
    if result["session_recreated"]:
        kept = "its files were kept" if result["files_kept"] else "its files are gone"
        said.append(f"session_recreated: the sandbox had ended and was started again; {kept}")
    if result["timed_out"]:
        said.append(f"timed_out: ended after {timeout:g} s, with all it had started (--timeout allows more)")
    printed = result["stdout_bytes"] + result["stderr_bytes"]
    if result["limit"] is not None and result["limit"] != "output":
        said.append(f"limit: the command reached its sandbox's limit of {result['limit']}")
    if result["spooled_bytes"] < printed:
        said.append(f"truncated: of {printed} bytes printed, {result['spooled_bytes']} were kept")
    if killed := result["killed_processes"]:
        names = ", ".join(show.visible(process["name"]) for process in killed[:5])
        said.append(f"left_running: {len(killed)} ended with the command: {names}{', …' if killed[5:] else ''}")
    return said
