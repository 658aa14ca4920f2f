"""Answers in pieces, which end when their reader goes, and leave nothing open."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from hutch.engine.loop import close_items
from hutch.server.calls import unless_gone


class Streamed(StreamingResponse):
    """Unlike the framework's, which leaves its pieces to the garbage collector when the reader goes first."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        close: Callable[[], Awaitable[None]],
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`close` runs at the end, however it comes, and also when no piece was ever asked for."""
        super().__init__(pieces, media_type=media_type, headers=headers)
        self._pieces = pieces
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            # A ConnectionError: the guard gave up a reader who does not read.
            with contextlib.suppress(ClientDisconnect, ConnectionError):
                await unless_gone(receive, self.stream_response(send))
        finally:
            try:
                await close_items(self._pieces)
            finally:
                await self._close()
