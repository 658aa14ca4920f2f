"""`hutch shell`: a living bash on a terminal; line by line where there is none."""

from __future__ import annotations

import os

import typer

from hutch.cli import lines, options, terminal
from hutch.cli.lease import Wanted, session
from hutch.cli.place import Place


def shell(
    thread: options.Thread = None,
    user: options.User = None,
    template: options.Template = None,
    policy: options.Policy = None,
    timeout: options.Timeout = None,
    *,
    place: Place,
) -> None:
    """Open a shell in a sandbox; its exit code becomes ours.

    On a terminal it is a bash of the sandbox, whose lines the policy does not judge; the walls hold as ever, and
    --timeout does not apply. Otherwise each line of standard input runs as a command of its own, as with exec: a line
    that is only `cd FOLDER` counts for the lines after it, `exit` or `quit` ends.
    """
    from hutch.settings import read_settings

    seconds = read_settings().default_command_timeout if timeout is None else timeout
    with session(Wanted(thread, user, template, policy, place), "shell") as client:
        if os.isatty(0) and os.isatty(1):
            code = terminal.interact(client)
        else:
            code = lines.run_lines(client, seconds)
    raise typer.Exit(code)
