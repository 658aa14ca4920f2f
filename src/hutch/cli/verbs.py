"""The verbs and their options, as typer has them."""

from __future__ import annotations

from typing import Annotated

import typer

from hutch.cli import (
    audit,
    batch,
    code,
    doctor,
    drive,
    egress,
    files,
    keys,
    mcp,
    options,
    preview,
    serve,
    sessions,
    shell,
    top,
    trees,
    version,
)
from hutch.cli.exec import ExecRequest, execute
from hutch.cli.place import Place

# A verb that runs a command leaves the command's own options to it.
PASS_ON = {"allow_interspersed_args": False, "ignore_unknown_options": True}


def build_app() -> typer.Typer:
    """Plain help, without boxes: it reads the same in a pipe, and rich need not be loaded for it."""
    app = typer.Typer(
        name="hutch",
        help="Computers of their own for AI agents, on this machine.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    app.command("exec", context_settings=PASS_ON, no_args_is_help=True)(options.at_a_place(exec_verb))
    app.command("batch")(options.at_a_place(batch.batch))
    app.command("code")(options.at_a_place(code.code))
    app.command("shell")(options.at_a_place(shell.shell))
    app.add_typer(sessions.build_app(), name="sessions")
    app.add_typer(files.build_app(), name="files")
    app.add_typer(drive.build_app(), name="drive")
    app.add_typer(egress.build_app(), name="egress")
    app.command("serve")(serve.serve)
    app.command("mcp")(options.at_a_place(mcp.mcp))
    app.command("preview")(options.at_a_place(preview.preview))
    app.add_typer(keys.build_app(), name="keys")
    app.command("top")(options.at_a_place(top.top))
    app.command("audit")(options.at_a_place(audit.audit))
    app.add_typer(trees.build_app(), name="trees")
    app.command("doctor")(options.at_a_place(doctor.doctor))
    app.command("version")(options.at_a_place(version.version))
    return app


def root(
    show_traceback: Annotated[bool, typer.Option("--traceback", help="Show where a fault of Hutch came from.")] = False,
) -> None:
    pass


def exec_verb(
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="One word is bash text; several are quoted and joined."),
    ],
    thread: options.Thread = None,
    user: options.User = None,
    template: options.Template = None,
    policy: options.Policy = None,
    timeout: options.Timeout = None,
    cwd: Annotated[
        str | None, typer.Option("--cwd", metavar="FOLDER", help="Run there, instead of in the session's folder.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE", help="Set a variable. May be repeated.")
    ] = None,
    stdin: Annotated[
        bool | None,
        typer.Option("--stdin/--no-stdin", help="Feed it our standard input. Default: when that is not a terminal."),
    ] = None,
    as_json: options.Json = False,
    *,
    place: Place,
) -> None:
    """Run one command in a sandbox; its exit code becomes ours.

    Output is passed on byte for byte as it comes. What was piped to us is the command's input; as with ssh, that is
    read even if the command never asks for it: say --no-stdin in loops that read the same input, and where standard
    input is a pipe that never ends (a service, some CI) but the command would wait for it. A time-out gives 124, a
    signal 128 + its number. With --json the result is printed as one document instead.
    """
    request = ExecRequest(
        tuple(command),
        thread,
        user,
        template,
        policy,
        timeout,
        cwd,
        _variables(env or []),
        stdin,
        as_json,
        place.url,
        place.api_key,
    )
    raise typer.Exit(execute(request))


def _variables(pairs: list[str]) -> dict[str, str]:
    """Raises: typer.BadParameter."""
    split = [pair.partition("=") for pair in pairs]
    for pair, (name, equals, _) in zip(pairs, split, strict=True):
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r} is not of the form NAME=VALUE.", param_hint="--env")
    return {name: value for name, _, value in split}
