"""`hutch batch`: commands one after the other in one session."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hutch.cli import options, show
from hutch.cli.endings import FAILED
from hutch.cli.place import Place
from hutch.model.errors import PathRejected
from hutch.model.process import ExecResult

STYLES = {"ok": "green", "failed": "bold red"}


def batch(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE|-", help="Commands, one a line; empty lines and # lines are skipped."),
    ] = None,
    command: Annotated[
        list[str] | None, typer.Option("--command", "-c", metavar="COMMAND", help="A command. May be repeated.")
    ] = None,
    template: options.Template = None,
    policy: options.Policy = None,
    timeout: options.Timeout = None,
    as_json: options.Json = False,
    *,
    place: Place,
) -> None:
    """Run commands one after the other in a session of their own.

    A failure does not stop the rest. A command that could not run at all has exit code -1 and the reason as its errors.
    Exits with 1 when one failed.
    """
    if (file is None) == (not command):
        raise typer.BadParameter("Give a file (- is standard input) or --command, one of the two.")
    commands = command or commands_in(_read(str(file)))
    from hutch.client.sync_client import BatchSandboxClient

    results = BatchSandboxClient(**place.arguments(), policy=policy, template=template).execute_batch(commands, timeout)
    if as_json:
        show.document([{"command": text, **result} for text, result in zip(commands, results, strict=True)])
    else:
        _table(commands, results)
    if any(result["exit_code"] != 0 for result in results):
        raise typer.Exit(FAILED)


def commands_in(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _read(name: str) -> str:
    """Raises: PathRejected."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise PathRejected(f"{name!r} cannot be read: {error.strerror}.", path=name) from error
    return data.decode("utf-8", "surrogateescape")


def _table(commands: list[str], results: list[ExecResult]) -> None:
    rows = [
        [
            "ok" if result["exit_code"] == 0 else "failed",
            str(result["exit_code"]),
            f"{result['execution_time_ms']} ms",
            text,
            summary(result),
        ]
        for text, result in zip(commands, results, strict=True)
    ]
    show.table(["", "EXIT", "TIME", "COMMAND", "OUTPUT"], rows, STYLES)


def summary(result: ExecResult) -> str:
    """The first line of what it printed, and how much more there is; a failure's errors come first."""
    out, err = result["stdout"], result["stderr"]
    text = err if (result["exit_code"] != 0 and err.strip()) or not out.strip() else out
    lines = text.strip().splitlines()
    if not lines:
        return ""
    return lines[0] if len(lines) == 1 else f"{lines[0]}  (+{len(lines) - 1} lines)"
