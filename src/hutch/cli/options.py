"""Options that several verbs share, each declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from hutch.cli.place import Place

Thread = Annotated[
    str | None,
    typer.Option(
        "--thread",
        "-t",
        metavar="THREAD",
        help="Use this thread's session, and leave it there. Without it, a session that is removed at the end.",
    ),
]
NeededThread = Annotated[
    str, typer.Option("--thread", "-t", metavar="THREAD", help="The thread whose files are meant.")
]
User = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="USER",
        help="The user the session belongs to: cli for a new one. A thread of another user is refused; "
        "without this option it is used whoever it belongs to.",
    ),
]
Template = Annotated[
    str | None,
    typer.Option("--template", metavar="NAME", help="bash (26 programs, commands are judged; the default) or open."),
]
Policy = Annotated[
    str | None,
    typer.Option("--policy", metavar="POLICY", help="strict, open, or the file of a profile of your own."),
]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", help="Then a command is ended. Default: DEFAULT_COMMAND_TIMEOUT, 30."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Act on that server. Default: HUTCH_URL, or with SANDBOX_MODE=remote what SANDBOX_URL says; "
        "without either, this machine's data folder.",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        help="The server's key. Others on this machine can read it here; HUTCH_API_KEY they cannot. "
        "Default: that, or for a server on this machine the key in the data folder.",
    ),
]


def at_a_place(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with the options --url and --api-key, which reach it as its parameter `place`."""
    hints = get_type_hints(verb, include_extras=True)
    signature = inspect.signature(verb)
    own = [one.replace(annotation=hints[one.name]) for one in signature.parameters.values() if one.name != "place"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in (("url", Url), ("api_key", ApiKey))
    ]

    @functools.wraps(verb)
    def run(*, url: str | None, api_key: str | None, **rest: Any) -> None:
        verb(place=Place(url, api_key), **rest)

    run.__annotations__ = {one.name: one.annotation for one in [*own, *added]}
    run.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]  # as inspect reads it
    return run
