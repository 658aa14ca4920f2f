"""`hutch egress`: which hosts a thread's sandbox may reach, and which it asked for."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hutch.cli import options, show
from hutch.cli.lease import existing
from hutch.cli.place import Place
from hutch.model.egress import LOG_KEPT, EgressRecord, HostRuleInfo
from hutch.model.errors import InvalidRequest

if TYPE_CHECKING:
    from hutch.client.sync_client import SandboxClient

LOOK_SECONDS = 1.0
STYLES = {"passed": "green", "refused": "red", "failed": "yellow"}
Thread = Annotated[str, typer.Option("--thread", "-t", metavar="THREAD", help="The thread whose sandbox is meant.")]


def build_app() -> typer.Typer:
    app = typer.Typer(
        help="Choose which hosts a sandbox may reach: none, unless they are named here.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    app.command("show")(options.at_a_place(show_rules))
    app.command("allow")(options.at_a_place(allow))
    app.command("set")(options.at_a_place(set_rules))
    app.command("clear")(options.at_a_place(clear))
    app.command("log")(options.at_a_place(log))
    return app


def show_rules(thread: Thread, as_json: options.Json = False, *, place: Place) -> None:
    """Show the rules. Of secret headers only the names are shown."""
    _print(_client(place, thread).egress.rules(), as_json=as_json)


def allow(
    hosts: Annotated[
        list[str],
        typer.Argument(metavar="HOST...", help="example.org, '*.example.com' for all below it, or '*' for all names."),
    ],
    thread: Thread,
    port: Annotated[
        list[int] | None, typer.Option("--port", "-p", metavar="PORT", help="Default: 80 and 443. May be repeated.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="It may lie in a private network, or on this machine.")
    ] = False,
    tls: Annotated[
        bool | None,
        typer.Option("--tls/--no-tls", help="Whether TLS is spoken to it. Default: in tunnels, and with headers."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="NAME=FILE",
            help="Add that header to each request; its value is what the file holds. It never enters the sandbox.",
        ),
    ] = None,
    as_json: options.Json = False,
    *,
    place: Place,
) -> None:
    """Let the sandbox reach these hosts, beside those it may reach already.

    A rule for a host that has one replaces it. Programs in the sandbox find the proxy by themselves (http_proxy and
    its like). For a host with --header they ask for http://HOST/…: TLS is spoken from the proxy on.
    """
    headers = dict(_header(text) for text in header or [])
    rules = [
        {"host": host, "ports": port, "private": private, "tls": tls, "headers": headers or None} for host in hosts
    ]
    _print(_client(place, thread).egress.allow(*rules), as_json=as_json)


def set_rules(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON: a list of rules. - is standard input.")],
    thread: Thread,
    as_json: options.Json = False,
    *,
    place: Place,
) -> None:
    """Let the sandbox reach the hosts of a file and no others: [{"host": "example.org", "ports": [443]}, …].

    A rule has a host, and may have ports, private, tls and headers.
    """
    try:
        rules = json.loads(_text(file))
    except ValueError as error:
        raise InvalidRequest(f"{file!r} holds no JSON: {error}.") from None
    if not isinstance(rules, list):
        raise InvalidRequest(f'{file!r} holds no list of rules, such as [{{"host": "example.org"}}].')
    _print(_client(place, thread).egress.set(rules), as_json=as_json)


def clear(thread: Thread, *, place: Place) -> None:
    """Let the sandbox reach nothing. Open connections are cut."""
    _client(place, thread).egress.set([])
    show.note("this sandbox reaches nothing any more")


def log(
    thread: Thread,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=LOG_KEPT, help="Most requests.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; with --follow one document a line.")] = False,
    *,
    place: Place,
) -> None:
    """Show what the sandbox asked for: when, which host, how it went. The newest is the last."""
    client = _client(place, thread)
    records = client.egress.log(limit=limit)
    if as_json and not follow:
        return show.document(records)
    if not follow:
        columns = ["AT", "METHOD", "HOST", "VERDICT", "STATUS", "OUT", "IN", "TIME", "WHY"]
        return show.table(columns, [_row(one) for one in records], STYLES)
    seen = 0
    while True:
        for one in records:
            seen = one["record_id"]
            if as_json:
                show.record(one)
            else:
                show.line("  ".join(show.visible(cell) for cell in _row(one)))
        time.sleep(LOOK_SECONDS)
        records = client.egress.log(after=seen, limit=LOG_KEPT)


def _client(place: Place, thread: str) -> SandboxClient:
    client = place.client()
    existing(client, thread)
    return client


def _text(file: str) -> str:
    """Raises: InvalidRequest."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file!r} cannot be read: {error}.") from None


def _header(text: str) -> tuple[str, str]:
    """Raises: typer.BadParameter, InvalidRequest."""
    name, equals, file = text.partition("=")
    if not equals or not name or not file:
        raise typer.BadParameter(f"{text!r} is not of the form NAME=FILE.", param_hint="--header")
    return name, _text(file).rstrip("\r\n")


def _print(rules: Sequence[HostRuleInfo], *, as_json: bool) -> None:
    if as_json:
        return show.document(rules)
    show.table(["HOST", "PORTS", "PRIVATE", "TLS", "HEADERS"], [_rule(one) for one in rules])


def _rule(one: HostRuleInfo) -> list[str]:
    words: dict[Any, str] = {None: "", True: "yes", False: "no"}
    ports = ", ".join(map(str, one["ports"]))
    return [one["host"], ports, words[one["private"]], words[one["tls"]], ", ".join(one["headers"])]


def _row(one: EgressRecord) -> list[str]:
    return [
        one["at"][:19].replace("T", " "),
        one["method"],
        f"{one['host']}:{one['port']}" if one["host"] else "-",
        one["verdict"],
        "" if one["status"] is None else str(one["status"]),
        show.size(one["sent_bytes"]),
        show.size(one["received_bytes"]),
        f"{one['duration_ms']:.0f} ms",
        one["reason"],
    ]
