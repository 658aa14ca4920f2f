"""`hutch code`: Python in a sandbox, as a cell of a notebook."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hutch.cli import options, show
from hutch.cli.endings import FAILED
from hutch.cli.exec import FORGOTTEN_MINUTES
from hutch.cli.lease import Wanted, session
from hutch.cli.place import Place

if TYPE_CHECKING:
    from hutch.model.code import CodeEvent

TIMED_OUT = 124


def code(
    source: Annotated[
        str, typer.Argument(metavar="CODE", help="Python; - or nothing reads it from standard input.")
    ] = "-",
    thread: options.Thread = None,
    user: options.User = None,
    timeout: options.Timeout = None,
    as_json: options.Json = False,
    *,
    place: Place,
) -> None:
    """Run Python in an open sandbox, as in a cell of a notebook.

    What it defines stays for the thread's next code while the program that runs the sandbox lives: a server's does. The
    exit code is 1 when the code failed, 124 when its time was up.
    """
    from hutch.settings import read_settings

    text = sys.stdin.read() if source == "-" else source
    seconds = read_settings().default_command_timeout if timeout is None else timeout
    wanted = Wanted(thread, user, "open", None, place)
    with session(wanted, "code", FORGOTTEN_MINUTES) as client:
        result = client.code.run(text, timeout=seconds, on_output=None if as_json else _show)
    if as_json:
        show.document(result)
    if result["state_lost"] or result["context_restarted"]:
        show.note("what code defined before is gone: its interpreter ended")
    if result["timed_out"] or result["error"] is not None:
        raise typer.Exit(TIMED_OUT if result["timed_out"] else FAILED)


def _show(event: CodeEvent) -> None:
    """The bytes of streams as they are; of what is shown the plain text, or what it is."""
    kind, error, data = event["type"], event["error"], event["data"]
    if kind in ("stdout", "stderr"):
        show.write(show.STDOUT if kind == "stdout" else show.STDERR, event["text"].encode("utf-8", "surrogatepass"))
    elif data is not None:
        show.line(_visible(str(data.get("text/plain", f"({', '.join(sorted(data))})"))))
    elif error is not None:
        show.note(_visible(error["traceback"] or f"{error['name']}: {error['value']}"))


def _visible(text: str) -> str:
    return "\n".join(show.visible(line) for line in text.splitlines())
