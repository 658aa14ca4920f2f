"""`hutch sessions`: what is there, whichever process made it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hutch.cli import options, show
from hutch.cli.lease import existing
from hutch.cli.place import Place
from hutch.model.errors import HutchError, NoActiveSession
from hutch.model.session import SandboxInfo

if TYPE_CHECKING:
    from hutch.client.sync_client import SandboxClient

Threads = Annotated[list[str] | None, typer.Argument(metavar="THREAD", help="Threads whose sessions to close.")]
ENDED = ("removing", "removed")
STYLES = {"running": "green"}


def build_app() -> typer.Typer:
    app = typer.Typer(help="Sessions: list them, look at one, close them.", no_args_is_help=True, rich_markup_mode=None)
    app.command("list")(options.at_a_place(list_sessions))
    app.command("show")(options.at_a_place(show_session))
    app.command("close")(options.at_a_place(close_sessions))
    return app


def list_sessions(as_json: options.Json = False, *, place: Place) -> None:
    """List the sessions that are there."""
    found = _there(place.client())
    if as_json:
        show.document(found)
    elif not found:
        show.note("there are no sessions")
    else:
        rows = [
            [
                info["thread_id"],
                info["user_id"],
                info["template"],
                info["state"],
                show.when(info["last_activity"]),
                show.when(info["expires_at"]),
            ]
            for info in found
        ]
        show.table(["THREAD", "USER", "TEMPLATE", "STATE", "LAST USED", "EXPIRES"], rows, STYLES)


def show_session(
    thread: Annotated[str, typer.Argument(metavar="THREAD", help="The thread whose session it is.")],
    as_json: options.Json = False,
    *,
    place: Place,
) -> None:
    """Show one session."""
    client = place.client()
    existing(client, thread)
    info = client.info()
    if as_json:
        show.document(info)
    else:
        show.table(["FIELD", "VALUE"], [[name, str(value)] for name, value in info.items()])


def close_sessions(
    threads: Threads = None,
    close_all: Annotated[bool, typer.Option("--all", help="Close every session.")] = False,
    as_json: options.Json = False,
    *,
    place: Place,
) -> None:
    """End sessions and delete their files.

    A session that is not there is an error, after the others were closed.
    """
    if bool(threads) == close_all:
        raise typer.BadParameter("Name threads, or say --all.")
    client = place.client()
    there = [info["thread_id"] for info in _there(client)]
    wanted = there if close_all else list(dict.fromkeys(threads or []))
    closed = [thread for thread in wanted if thread in there]
    for thread in closed:
        client.thread_id = thread
        client.close_session()
    left = {info["thread_id"] for info in _there(client)}.intersection(closed)
    if as_json:
        show.document({"closed": [thread for thread in closed if thread not in left]})
    _complain(missing=[thread for thread in wanted if thread not in there], left=sorted(left))


def _complain(missing: list[str], left: list[str]) -> None:
    if left:
        raise HutchError(f"Could not be closed: {', '.join(left)}. They go when they expire; hutch doctor may say why.")
    if missing:
        raise NoActiveSession(f"No session for: {', '.join(missing)}. hutch sessions list shows those there are.")


def _there(client: SandboxClient) -> list[SandboxInfo]:
    return [info for info in client.sessions() if info["state"] not in ENDED]
