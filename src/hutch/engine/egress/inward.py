"""The sandbox's side of a connection to the proxy: h11 over a byte stream, with bounds. Everything here is hostile."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import h11

from hutch.providers.base import ByteStream

HEAD_SECONDS = 60.0  # until a request's head is there, from the moment it may come
PIECE_SECONDS = 120.0  # between two pieces of a body
SEND_SECONDS = 120.0  # for a piece to be taken
MOST_HEAD = 32 * 1024
PIECE = 16 * 1024  # parsed at one go: what arrives in crumbs must not hold up the loop
LINGER_SECONDS = 2.0
LINGER_BYTES = 1024 * 1024


class Inward:
    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)

    async def request(self) -> h11.Request | None:
        """The next one; None when there is none any more.

        Raises: h11.RemoteProtocolError, TimeoutError, OSError.
        """
        async with asyncio.timeout(HEAD_SECONDS):
            while (event := self.http.next_event()) is h11.NEED_DATA:
                self.http.receive_data(await self.stream.receive(PIECE))
        return event if isinstance(event, h11.Request) else None

    async def piece(self) -> bytes | None:
        """Of the request's body; None at its end. Raises: h11.RemoteProtocolError, TimeoutError, OSError."""
        while True:
            event = self.http.next_event()
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if event is not h11.NEED_DATA:
                return None
            async with asyncio.timeout(PIECE_SECONDS):
                self.http.receive_data(await self.stream.receive(PIECE))

    async def send(self, *events: Any) -> None:
        """Raises: TimeoutError, OSError, h11.LocalProtocolError (an answer that is none)."""
        data = b"".join(self.http.send(event) or b"" for event in events)
        async with asyncio.timeout(SEND_SECONDS):
            await self.stream.send(data)

    @property
    def begun(self) -> bool:
        """Whether an answer is on its way: then no other one can be given."""
        return self.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE)

    async def refuse(self, status: int, reason: str, text: str) -> None:
        """Answer with a text, and end the connection in a way that lets it be read. Raises: TimeoutError, OSError."""
        body = f"hutch: {text}\n".encode()
        head = h11.Response(
            status_code=status,
            reason=reason.encode(),
            headers=[
                ("content-type", "text/plain; charset=utf-8"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ],
        )
        await self.send(head, h11.Data(data=body), h11.EndOfMessage())
        await self.linger()

    async def linger(self) -> None:
        """What the other side still sends would, unread, make the kernel take the answer back. Raises: OSError."""
        if self.http.their_state is h11.DONE:
            return
        left = LINGER_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                await self.stream.send_eof()
                while left > 0 and (piece := await self.stream.receive(PIECE)):
                    left -= len(piece)

    def next_request(self) -> bool:
        """Whether the connection can be used again; then it is ready for that."""
        if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
            return False
        self.http.start_next_cycle()
        return True
