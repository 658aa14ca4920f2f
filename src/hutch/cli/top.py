"""`hutch top`: what a server does, as it does it."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from hutch.cli import options, show
from hutch.cli.place import Place
from hutch.cli.top_page import COLUMNS, Totals, document, headlines, rows, totals
from hutch.model.session import SandboxInfo
from hutch.settings import read_settings

if TYPE_CHECKING:
    from rich.console import Group

    from hutch.client.http_calls import Caller


def top(
    place: Place,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, max=3600, metavar="SECONDS", help="Look so often.")
    ] = 2,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show what a server does, until Ctrl-C: its numbers, and the sessions of the key's tenant.

    Without a terminal it looks once. With --json each look is a line. Without --url and HUTCH_URL it is the server at
    http://localhost:8000.
    """
    asyncio.run(_watch(_caller(place), interval, once=once, as_json=as_json))


def _caller(place: Place) -> Caller:
    """Raises: InvalidRequest, SettingsInvalid."""
    from hutch.client.open_transport import caller_of

    there = place.served()
    return caller_of(read_settings(), there.url, there.api_key)


async def _watch(caller: Caller, interval: float, *, once: bool, as_json: bool) -> None:
    try:
        if as_json:
            while True:
                now, sessions = await _look(caller)
                show.record(document(now, sessions))
                if once:
                    return
                await asyncio.sleep(interval)
        elif once or not os.isatty(show.STDOUT):
            now, sessions = await _look(caller)
            for text in headlines(now, None, 0):
                show.line(text)
            if sessions:
                show.line()
                show.table(COLUMNS, rows(sessions))
        else:
            await _live(caller, interval)
    finally:
        await caller.aclose()


async def _look(caller: Caller) -> tuple[Totals, list[SandboxInfo]]:
    """Raises: HutchError."""
    from hutch.client.http_calls import Call

    samples = await caller.json(Call("GET", "/metrics", headers={"accept": "application/json"}))
    sessions: list[SandboxInfo] = await caller.json(Call("GET", "/v1/sessions"))
    return totals(samples), sessions


async def _live(caller: Caller, interval: float) -> None:
    from rich.live import Live

    before, at = None, time.monotonic()
    with Live(screen=True, auto_refresh=False) as live:
        while True:
            now, sessions = await _look(caller)
            seen = time.monotonic()
            live.update(_page(headlines(now, before, seen - at), sessions), refresh=True)
            before, at = now, seen
            await asyncio.sleep(interval)


def _page(lines: list[str], sessions: list[SandboxInfo]) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        table.add_column(column, no_wrap=True)
    for row in rows(sessions):
        table.add_row(*(Text(show.visible(cell)) for cell in row))
    return Group(*(Text(line) for line in lines), Text(), table)
