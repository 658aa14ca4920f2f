"""`hutch version`."""

from __future__ import annotations

from hutch.cli import options, show
from hutch.cli.place import Place


def version(as_json: options.Json = False, *, place: Place) -> None:
    """Print the version, and the server's."""
    from hutch import __version__

    server = place.ask("GET", "/v1/version") if place.server_if_known() is not None else None
    if as_json:
        show.document({"hutch": __version__} if server is None else {"hutch": __version__, "server": server})
        return
    show.line(f"hutch {__version__}")
    if server is not None:
        show.line(f"server {server['version']}, protocol {server['protocol']}")
