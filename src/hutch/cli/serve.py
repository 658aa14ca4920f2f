"""`hutch serve`: what the client does in a program, for a whole team over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hutch.cli import mcp, show
from hutch.model.principal import KEY_FILE
from hutch.settings import ServerSettings, Settings, read_server_settings, read_settings
from hutch.settings.reading import check_server

if TYPE_CHECKING:
    from hutch.server.roles import Role
    from hutch.tools.mcp.http import McpHttp

PREVIEW_DRAIN_SECONDS = 1.0  # pages hold connections open for as long as they are shown
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def serve(
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Listen there. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Port of the API. Default: 8000.")
    ] = None,
    preview_port: Annotated[
        int | None,
        typer.Option("--preview-port", min=0, max=65535, help="Port of the previews; 0: none. Default: 8001."),
    ] = None,
    role: Annotated[
        str | None, typer.Option("--role", metavar="ROLE", help="all (the default), coordinator or worker.")
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option("--log-format", metavar="FORMAT", help="How the log is written: json (the default) or text."),
    ] = None,
    plain_http: Annotated[
        bool | None,
        typer.Option("--plain-http", help="Serve other machines without TLS: keys can be read on the way."),
    ] = None,
    mypa_open: Annotated[
        bool | None,
        typer.Option(
            "--mypa-open", help="Programs on this machine may use the flat routes of older clients without a key."
        ),
    ] = None,
) -> None:
    """Serve the API until Ctrl-C.

    Settings come from the environment (docs/reference/settings.md). The first start makes an API key in the data
    folder, which hutch and SandboxClient on this machine find by themselves. SIGTERM and Ctrl-C let running commands
    end, for up to HUTCH_DRAIN_SECONDS; files stay.
    """
    given = {
        "log_format": log_format,
        "host": host,
        "port": port,
        "preview_port": preview_port,
        "role": role,
        "plain_http": plain_http,
        "mypa_open": mypa_open,
    }
    flags: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    server = replace(read_server_settings(), **flags)
    check_server(server)
    from hutch.server.logs import logging_to

    with logging_to(server.log_format, debug=server.debug):
        try:
            asyncio.run(_serve(read_settings(), server))
        except asyncio.CancelledError:
            show.note("ended at once, as told")
            raise typer.Exit(1) from None


async def _serve(settings: Settings, server: ServerSettings) -> None:
    from hutch.server.listen import bind
    from hutch.server.preview.address import front

    if server.preview_port:
        front(server.preview_address() or "")  # a name that cannot be used is refused at once
    # Before anything is started: two servers on one port is a common slip.
    listeners = [bind(server.host, port) for port in (server.preview_port, server.port) if port]
    over = asyncio.Event()
    us = asyncio.current_task()
    assert us is not None
    _on_signals(us.cancel)  # while it starts, which may have to wait for others
    async with _running(settings, server, listeners) as role:
        _on_signals(over.set)
        await over.wait()
        show.note(f"ending; running commands have {server.drain_seconds:g} s (another Ctrl-C ends them at once)")
        _on_signals(us.cancel)
        await role.before_end()


def _on_signals(act: Callable[[], object]) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, act)


@contextlib.asynccontextmanager
async def _running(settings: Settings, server: ServerSettings, listeners: list[socket.socket]) -> AsyncIterator[Role]:
    from hutch.server.listen import make_server, serving
    from hutch.server.mounts import NO_MOUNTS
    from hutch.server.roles import playing

    url = f"{'https' if server.tls else 'http'}://{_own_name(server)}:{server.port}"
    async with contextlib.AsyncExitStack() as running:
        beside = None if server.role == "worker" else _mcp()
        mounts = NO_MOUNTS if beside is None else {mcp.PATH: beside.mount}
        role = await running.enter_async_context(playing(settings, server, url, mounts))
        if beside is not None:
            await running.enter_async_context(beside.running())
        apps = [] if role.previews is None else [(role.previews, PREVIEW_DRAIN_SECONDS)]
        apps.append((role.app, server.drain_seconds))
        for (app, drain), listener in zip(apps, listeners, strict=True):
            served = make_server(app, drain, server.tls_cert, server.tls_key)
            await running.enter_async_context(serving(served, listener))
        await role.begin()
        _announce(server, url, settings.data_dir / KEY_FILE, made=role.made_key)
        yield role


def _mcp() -> McpHttp | None:
    """Where its library is not installed, everything else is served."""
    if (why := mcp.absent()) is not None:
        show.note(why)
        return None
    from hutch.tools.mcp.http import McpHttp

    return McpHttp()


def _own_name(server: ServerSettings) -> str:
    return "localhost" if server.host in LOCAL_NAMES | {"0.0.0.0", "::"} else server.host


def _announce(server: ServerSettings, url: str, key_file: Path, *, made: bool) -> None:
    if server.role == "worker":
        show.note(f"worker {server.worker_id} on {url}; coordinators pass calls on to it")
        return
    show.note(f"serving on {url}" + (f", previews below {server.preview_address()}" if server.preview_port else ""))
    if made:
        show.note(f"made the first API key, for everything: {key_file}")
    if key_file.exists():
        show.note(f'try: curl -H "Authorization: Bearer $(cat {key_file})" {url}/v1/sessions')
    show.note(f'or:  HUTCH_URL={url} with SandboxClient(mode="remote")')
