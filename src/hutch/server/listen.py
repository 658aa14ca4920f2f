"""A listening server around an app, with the settings that protect it. Signals are its caller's to heed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from hutch.model.errors import SettingsInvalid
from hutch.server.connection import HttpConnection, WebSocketConnection
from hutch.server.guard import MAX_JSON_BYTES, PIECE_SECONDS
from hutch.server.noting import Noting

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 65  # of a connection without a call: longer than clients and proxies keep one for later


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """Raises: SettingsInvalid when the address is taken, or is none of this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Named TCP, or asyncio does not know it for one, and each answer waits 40 ms for more to send.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # A peer that takes nothing of what is sent, though it lives, is let go by the kernel: accepted ones inherit it.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(PIECE_SECONDS * 1000))
        listener.bind(address)
        return listener
    except OSError as error:
        raise SettingsInvalid(
            f"The server cannot listen on {host} port {port}: {error.strerror}. "
            "End what listens there (ss -ltnp shows it), or choose another with --port, --preview-port and --host."
        ) from error


def make_server(
    app: ASGIApp, drain_seconds: float, cert: Path | None = None, key: Path | None = None
) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        http=HttpConnection,
        ws=WebSocketConnection,
        ws_max_size=MAX_JSON_BYTES,
        ws_per_message_deflate=False,  # costs memory for each connection, and a small message may unpack to a large one
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,  # nothing here asks where a call comes from but for the peer's own address
        backlog=BACKLOG,
        timeout_graceful_shutdown=round(drain_seconds) or 1,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
    return _Server(config)


@contextlib.asynccontextmanager
async def serving(server: uvicorn.Server, listener: socket.socket) -> AsyncIterator[None]:
    """Serves on `listener` meanwhile; at the end calls under way get their time, then are ended."""
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
        yield
    finally:
        server.should_exit = True
        try:
            await task
        finally:
            listener.close()
            if isinstance(server.config.app, Noting):
                await server.config.app.aclose()
