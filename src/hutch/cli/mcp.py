"""`hutch mcp`: a sandbox for a program that speaks the Model Context Protocol with us on standard input and output."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import logging
import os
import secrets
import select
import signal
import sys
from typing import Annotated

import typer

from hutch.cli import options, show
from hutch.cli.place import Place
from hutch.model.errors import NotSupported

PATH = "/mcp"  # of a server


def absent() -> str | None:
    """What is not to be had here, and how to have it."""
    if importlib.util.find_spec("mcp") is not None:
        return None
    return f"hutch mcp and {PATH} of hutch serve are off: they need a library. To have it: pip install 'hutch[mcp]'"


def mcp(
    thread: options.Thread = None,
    user: options.User = None,
    template: Annotated[
        str,
        typer.Option(
            "--template", metavar="NAME", help="open (the default), or bash (26 programs, commands are judged)."
        ),
    ] = "open",
    *,
    place: Place,
) -> None:
    """Serve a sandbox to an MCP client, on standard input and output, until the input ends.

    For the configuration of a client: command "hutch", arguments ["mcp"]. Without --thread the sandbox and its files go
    at the end; with it a later start finds them again. Nothing but the protocol is written to standard output.
    """
    if (why := absent()) is not None:
        raise NotSupported(why)
    logging.basicConfig(level=logging.WARNING, format="hutch: %(message)s")
    raise typer.Exit(asyncio.run(_serve(thread, user, template, place)))


async def _serve(thread: str | None, user: str | None, template: str, place: Place) -> int:
    from hutch.client.async_client import AsyncSandboxClient
    from hutch.tools.mcp.stdio import serve

    ended_by = 0
    given = Input(os.dup(0))

    def end(signum: int) -> None:
        nonlocal ended_by
        ended_by = 128 + signum
        given.end()

    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) != signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(signum, end, signum)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(given), encoding="utf-8")
    if os.isatty(0):
        show.note("speaking MCP with this terminal; it is meant for a client's configuration. Ctrl-D ends it")
    client = AsyncSandboxClient(**place.arguments(), template=template)
    name = thread if thread is not None else f"mcp_{secrets.token_hex(8)}"
    await serve(client, name, user, temporary=thread is None)
    return ended_by


class Input(io.RawIOBase):
    """A descriptor whose end can be brought about, even while a thread waits for more."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._read_end, self._write_end = os.pipe()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # it is what callers give
        ready, _, _ = select.select([self._descriptor, self._read_end], [], [])
        if self._read_end in ready:
            return 0
        data = os.read(self._descriptor, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def end(self) -> None:
        os.write(self._write_end, b"e")
