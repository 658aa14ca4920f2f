"""`hutch audit`: who did what, by the server of this data folder, or by another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Annotated

import typer

from hutch.cli import show
from hutch.cli.place import Place
from hutch.engine.access import open_access
from hutch.model.audit import AuditEntry, AuditFilter
from hutch.settings import read_server_settings, read_settings

LOOK_SECONDS = 1.0
PAGE = 1000
STYLES = {"ok": "green"}


def audit(
    sandbox: Annotated[str | None, typer.Option("--sandbox", metavar="ID", help="Only of that sandbox.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only by that key (its id).")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Only of that user's sessions.")] = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="ACTION", help="Only that, such as command_executed.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only what did not go well.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=PAGE, help="Most entries.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; with --follow one document a line.")] = False,
    *,
    place: Place,
) -> None:
    """Show what was done through a server: when, by which key, what, how it ended. The newest is the last.

    Secrets are hidden by their looks. On the data folder entries of all tenants are shown; a server shows those of the
    key's tenant, which needs a key that may admin.
    """
    wanted = AuditFilter(
        sandbox_id=sandbox, key_id=key, user_id=user, action=action, failed=failed, after=None, limit=limit
    )
    entries = _page(place, wanted)
    if as_json and not follow:
        show.document(entries)
    elif not follow:
        show.table(["AT", "KEY", "ACTION", "OUTCOME", "EXIT", "TIME", "WHAT"], [_row(one) for one in entries], STYLES)
    else:
        for one in _followed(place, wanted, entries):
            if as_json:
                show.record(one)
            else:
                show.line("  ".join(show.visible(cell) for cell in _row(one)))


def _page(place: Place, wanted: AuditFilter) -> list[AuditEntry]:
    """The oldest first."""
    if place.server() is None:
        return asyncio.run(_of_data_folder(wanted))[::-1]
    query = {name: value for name, value in asdict(wanted).items() if name != "tenant"}
    found: list[AuditEntry] = place.ask("GET", "/v1/audit", query)
    return found[::-1]


async def _of_data_folder(wanted: AuditFilter) -> list[AuditEntry]:
    async with open_access(read_settings().data_dir, read_server_settings().database_url) as access:
        return await access.audit.list(wanted)


def _followed(place: Place, wanted: AuditFilter, entries: list[AuditEntry]) -> Iterator[AuditEntry]:
    seen = 0
    while True:
        yield from entries
        seen = max([seen, *(one["entry_id"] for one in entries)])
        time.sleep(LOOK_SECONDS)
        entries = list(_since(place, replace(wanted, after=seen, limit=PAGE)))


def _since(place: Place, wanted: AuditFilter) -> list[AuditEntry]:
    """All of them, in as many pages as it takes."""
    found = page = _page(place, wanted)
    while len(page) == PAGE:
        page = _page(place, replace(wanted, before=page[0]["entry_id"]))
        found = page + found
    return found


def _row(one: AuditEntry) -> list[str]:
    return [
        one["at"][:19].replace("T", " "),
        one["key_id"] or "-",
        one["action"],
        one["outcome"],
        "" if one["exit_code"] is None else str(one["exit_code"]),
        f"{one['duration_ms']:.0f} ms",
        one["detail"],
    ]
