"""`hutch preview`: addresses at which a browser sees what listens in a sandbox of a server."""

from __future__ import annotations

from typing import Annotated

import typer

from hutch.cli import options, show
from hutch.cli.lease import existing
from hutch.cli.place import Place


def preview(
    port: Annotated[int, typer.Argument(metavar="PORT", help="The port that something in the sandbox listens on.")],
    place: Place,
    thread: Annotated[
        str, typer.Option("--thread", "-t", metavar="THREAD", help="The thread whose sandbox it is, on the server.")
    ],
    expires_in: Annotated[
        float | None,
        typer.Option("--expires", metavar="SECONDS", help="How long it opens. Default: an hour; at most a week."),
    ] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Close the previews of that port instead.")] = False,
    as_json: options.Json = False,
) -> None:
    """Make an address at which a browser sees a port of a sandbox.

    The address holds a token that opens this one port until it expires or is revoked; whoever has it gets in. Without
    --url and HUTCH_URL it is the server at http://localhost:8000.
    """
    client = place.served().client()
    existing(client, thread)
    if revoke:
        client.revoke_preview(port)
        show.note(f"no preview of port {port} opens any more")
        return
    made = client.preview(port, expires_in=expires_in)
    if as_json:
        show.document(made)
    else:
        show.line(made["url"])
        show.note(f"it opens until {show.when(made['expires_at'])}, for whoever has it")
