"""The Chrome DevTools Protocol over a byte stream to a port of a sandbox.

What arrives was written by a browser inside a sandbox: it is bounded and checked like any other input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidURI
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from hutch.client.async_shell import AsyncConnection
from hutch.model.errors import HutchError, InvalidRequest, PortMisbehaved
from hutch.model.limits import MIB

MAX_MESSAGE = 32 * MIB  # a screenshot of a long page
MAX_ANSWER = MIB  # of the HTTP side, which lists pages
CALL_SECONDS = 30.0
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]{1,9})\r?$", re.IGNORECASE | re.MULTILINE)
Connect = Callable[[], Awaitable[AsyncConnection]]


@contextlib.asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """Raises: PortMisbehaved when the time is up."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise PortMisbehaved(f"{what} within {seconds:g} s.") from error


async def ask(connect: Connect, path: str) -> Any:
    """What the browser's HTTP side says. Raises: PortUnreachable, PortMisbehaved."""
    async with within(CALL_SECONDS, "The browser did not tell its pages"), await connect() as stream:
        await stream.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = b""
        while (body := _body(answer)) is None:
            piece = await stream.receive()
            answer += piece
            if not piece or len(answer) > MAX_ANSWER:
                raise PortMisbehaved("What listens on the browser's port is no browser.")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise PortMisbehaved("The browser's answer is no JSON.") from error


def _body(answer: bytes) -> bytes | None:
    """None until it is all there. A browser answers with a Content-Length, and keeps the connection open."""
    head, end, body = answer.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if not end or length is None or not head.startswith(b"HTTP/1.1 200 "):
        return None
    return body[: int(length[1])] if len(body) >= int(length[1]) else None


class Cdp:
    """One page of a browser. `open` connects; calls may run side by side."""

    def __init__(self, stream: AsyncConnection, protocol: ClientProtocol) -> None:
        self._stream = stream
        self._protocol = protocol
        self._number = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._watchers: dict[str, list[asyncio.Future[dict[str, Any]]]] = {}
        self._fragments = bytearray()
        self._reader: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()

    @classmethod
    async def open(cls, connect: Connect, url: str) -> Cdp:
        """Raises: PortUnreachable, PortMisbehaved."""
        try:
            protocol = ClientProtocol(parse_uri(url), max_size=MAX_MESSAGE)
        except InvalidURI as error:
            raise PortMisbehaved("The browser gave a page's address that is none.") from error
        made = cls(await connect(), protocol)
        try:
            async with within(CALL_SECONDS, "The browser did not take the connection"):
                await made._handshake()
        except BaseException:
            await made._stream.aclose()
            raise
        made._reader = asyncio.create_task(made._read())
        return made

    @property
    def closed(self) -> bool:
        return self._reader is None or self._reader.done()

    async def call(self, method: str, seconds: float = CALL_SECONDS, **params: Any) -> dict[str, Any]:
        """Raises: PortMisbehaved when the browser is gone or does not answer, InvalidRequest when it refuses."""
        if self.closed:
            raise PortMisbehaved("The browser has gone.")
        self._number += 1
        number = self._number
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            async with within(seconds, f"The browser did not answer {method}"):
                await self._send(json.dumps({"id": number, "method": method, "params": params}).encode())
                answer = await future
        finally:
            self._waiting.pop(number, None)
        if "error" in answer:
            raise InvalidRequest(f"The browser refused {method}: {str(answer['error'])[:500]}")
        result = answer.get("result")
        return result if isinstance(result, dict) else {}

    def event(self, method: str) -> asyncio.Future[dict[str, Any]]:
        """The next event of that name; ask before what causes it."""
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._watchers.setdefault(method, []).append(future)
        return future

    async def aclose(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        await self._stream.aclose()

    async def _handshake(self) -> None:
        self._protocol.send_request(self._protocol.connect())
        await self._flush()
        while self._protocol.state is State.CONNECTING:
            await self._feed()
            self._protocol.events_received()  # the response
            if self._protocol.handshake_exc is not None:
                raise PortMisbehaved("The browser refused the connection.") from self._protocol.handshake_exc

    async def _read(self) -> None:
        try:
            while self._protocol.state is State.OPEN:
                await self._feed()
                for event in self._protocol.events_received():
                    if isinstance(event, Frame):
                        self._take(event)
                await self._flush()  # pongs
        except (HutchError, OSError, InvalidHandshake):
            pass
        finally:
            for future in [*self._waiting.values(), *(one for all_ in self._watchers.values() for one in all_)]:
                if not future.done():
                    future.set_exception(PortMisbehaved("The browser has gone."))
                    future.exception()  # an event may have nobody who waits for it

    async def _feed(self) -> None:
        data = await self._stream.receive()
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()

    def _take(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.CONT):
            return
        self._fragments += frame.data
        if not frame.fin:
            return
        text, self._fragments = bytes(self._fragments), bytearray()
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(message, dict):
            self._tell(message)

    def _tell(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        waiting = self._waiting.pop(number, None) if isinstance(number, int) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(message)
        params = message.get("params")
        for watcher in self._watchers.pop(str(message.get("method")), []):
            if not watcher.done():
                watcher.set_result(params if isinstance(params, dict) else {})

    async def _send(self, text: bytes) -> None:
        async with self._sending:
            self._protocol.send_text(text)
            await self._flush_now()

    async def _flush(self) -> None:
        async with self._sending:
            await self._flush_now()

    async def _flush_now(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                await self._stream.send(data)
