"""What stays open towards a server: event streams, and byte streams over WebSockets."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from hutch.client.http_calls import CONNECT_SECONDS, Call, Caller, is_loopback, unreachable
from hutch.engine.connections import BROKEN
from hutch.model.errors import HutchError, PortUnreachable, ServerUnreachable
from hutch.model.wire import SseReader, unpack_error

QUIET_SECONDS = 45.0  # a stream is kept alive every ten
LONGEST_LINE = 64 * 1024 * 1024  # the result of a command holds two streams of 10 MiB, escaped
PIECE_BYTES = 64 * 1024
END_OF_INPUT = "eof"


async def events(caller: Caller, call: Call) -> AsyncIterator[tuple[str, Any]]:
    """Kind and fields of each event. Raises: HutchError, those that come as events included."""
    call = Call(
        call.method,
        call.path,
        call.query,
        call.json,
        headers={"accept": "text/event-stream"},
        seconds=QUIET_SECONDS,
        repeat=call.repeat,
    )
    reader = SseReader(LONGEST_LINE)
    async with caller.answer(call) as response:
        try:
            async for data in response.aiter_stream():
                for kind, text in reader.feed(data):
                    fields = json.loads(text)
                    if kind == "error":
                        raise unpack_error(fields)
                    yield kind, fields
        except (*BROKEN, ValueError) as error:
            if isinstance(error, HutchError):  # many of ours are ValueErrors, too
                raise
            raise unreachable(caller.url, error, sent=True) from error


async def open_stream(caller: Caller, path: str) -> RemoteStream:
    """Raises: HutchError."""
    scheme, _, rest = caller.url.partition("://")
    address = f"{'wss' if scheme == 'https' else 'ws'}://{rest}{path}"
    try:
        websocket = await connect(
            address,
            additional_headers=caller.headers,
            open_timeout=CONNECT_SECONDS + 30,
            compression=None,
            max_size=16 * 1024 * 1024,
            proxy=None if is_loopback(caller.url) else True,
        )
    except InvalidStatus as error:
        raise _refused(caller.url, error) from error
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise unreachable(caller.url, error, sent=False) from error
    return RemoteStream(websocket)


def _refused(url: str, error: InvalidStatus) -> HutchError:
    try:
        return unpack_error(json.loads(error.response.body or b""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServerUnreachable(f"The server at {url} refused a WebSocket ({error}).", sent=False)


class RemoteStream:
    """A port's bytes in messages. Implements `transport.Connection`."""

    def __init__(self, websocket: ClientConnection) -> None:
        self._websocket = websocket
        self._rest = b""
        self._ended = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while not self._rest and not self._ended:
            try:
                message = await self._websocket.recv()
            except ConnectionClosed:
                self._ended = True
                break
            if isinstance(message, bytes):
                self._rest = message
            elif message == END_OF_INPUT:
                self._ended = True
            else:
                self._ended = True
                with contextlib.suppress(ValueError, KeyError):
                    raise unpack_error(json.loads(message))
        piece, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return piece

    async def send(self, data: bytes) -> None:
        try:
            for start in range(0, len(data), PIECE_BYTES):
                await self._websocket.send(data[start : start + PIECE_BYTES])
        except ConnectionClosed as error:
            raise PortUnreachable("The other side of this connection is gone.") from error

    async def send_eof(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            await self._websocket.send(END_OF_INPUT)

    async def aclose(self) -> None:
        await self._websocket.close()
