"""One WebSocket through a preview: a handshake and messages of our own on each side, so frames of neither can cheat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.types import Message, Receive, Scope, Send
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from hutch.engine.ports import ByteStream
from hutch.model.errors import HutchError, PortMisbehaved, PortUnreachable
from hutch.server.answers import internal, refusal
from hutch.server.preview.upstream import PIECE_SECONDS
from hutch.server.preview.visit import Visit
from hutch.server.routes.streams import both

HANDSHAKE_SECONDS = 30.0
FRAMES_BYTES = 16 * 1024  # read at once: of the smallest frames more than anybody should wait for would fit into more
LONGEST_MESSAGE = 4 * 1024 * 1024  # held whole, so that it can be passed on as one
_FAILED = 1011
_NEVER_SENT = frozenset({1005, 1006, 1015})  # codes that no frame carries
_TEXT = {Opcode.TEXT: True, Opcode.BINARY: False}


async def relay(visit: Visit, scope: Scope, receive: Receive, send: Send, over: Callable[[], Awaitable[None]]) -> None:
    """Until either side closes, or `over`. Takes over the visit's stream."""
    inner = _Inner(visit.stream, visit.place.port, [Subprotocol(one) for one in scope.get("subprotocols", [])])
    accepted = False
    try:
        await receive()  # websocket.connect
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            response = await inner.shake_hands(visit, scope)
        if response.status_code != 101:
            return await _deny(visit, response, send)
        accepted = True
        headers = [(name, value) for name, value in _passed(visit, response) if name == b"set-cookie"]
        await send({"type": "websocket.accept", "subprotocol": inner.subprotocol, "headers": headers})
        async with both(_outwards(inner, send), _inwards(receive, inner), over()):
            pass
        await _close(send, inner.close_code, inner.close_reason)
    except TimeoutError:
        error = PortMisbehaved(f"Port {visit.place.port} did not answer within {HANDSHAKE_SECONDS:g} s.")
        await _refuse(error, scope, receive, send, accepted=accepted)
    except HutchError as error:
        await _refuse(error, scope, receive, send, accepted=accepted)
    except (OSError, RuntimeError):  # the visitor is gone
        pass
    except Exception as error:  # noqa: BLE001 - whatever a sandbox can provoke ends one connection
        await _refuse(internal(error), scope, receive, send, accepted=accepted)
    finally:
        await visit.stream.aclose()


async def _refuse(error: HutchError, scope: Scope, receive: Receive, send: Send, *, accepted: bool) -> None:
    if accepted:
        await _close(send, _FAILED, error.code)
    else:
        await refusal(error)(scope, receive, send)


async def _close(send: Send, code: int, reason: str) -> None:
    try:
        await send({"type": "websocket.close", "code": code, "reason": reason})
    except (RuntimeError, OSError):
        pass  # it is closed


def _passed(visit: Visit, response: Response) -> list[tuple[bytes, bytes]]:
    raw = [
        (name.lower().encode("ascii"), value.encode("latin-1", "replace"))
        for name, value in response.headers.raw_items()
    ]
    return visit.answer_headers(raw)


async def _deny(visit: Visit, response: Response, send: Send) -> None:
    """The sandbox wants no WebSocket there, and says so as it likes."""
    status = response.status_code if 200 <= response.status_code <= 599 else 502
    await send({"type": "websocket.http.response.start", "status": status, "headers": _passed(visit, response)})
    await send({"type": "websocket.http.response.body", "body": bytes(response.body or b"")})


async def _inwards(receive: Receive, inner: _Inner) -> None:
    """Ends when the visitor is gone."""
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            await inner.close(message.get("code") or 1000)
            return
        text = message.get("text")
        await inner.send(text.encode() if text is not None else message["bytes"], text=text is not None)


async def _outwards(inner: _Inner, send: Send) -> None:
    async for text, data in inner.messages():
        await send({"type": "websocket.send", "text": data.decode()} if text else _binary(data))


def _binary(data: bytes) -> Message:
    return {"type": "websocket.send", "bytes": data}


class _Inner:
    """The WebSocket client that the sandbox sees."""

    def __init__(self, stream: ByteStream, port: int, subprotocols: list[Subprotocol]) -> None:
        uri = WebSocketURI(secure=False, host="localhost", port=port, path="/", query="")
        self._stream = stream
        self._port = port
        self._protocol = ClientProtocol(uri, subprotocols=subprotocols or None, max_size=LONGEST_MESSAGE)
        self._early: list[object] = []  # frames that came with the handshake
        self.close_code = _FAILED
        self.close_reason = ""

    @property
    def subprotocol(self) -> str | None:
        return self._protocol.subprotocol

    async def shake_hands(self, visit: Visit, scope: Scope) -> Response:
        """Raises: PortMisbehaved, PortUnreachable."""
        headers = self._protocol.connect().headers
        del headers["Host"]
        for name, value in visit.headers(scope):
            headers[name.decode("latin-1")] = value.decode("latin-1")
        self._protocol.send_request(Request(visit.target.decode("ascii"), headers))
        await self._flush()
        while True:
            events = await self._received()
            if self._protocol.handshake_exc is not None:
                break
            if events and isinstance(events[0], Response):
                self._early = events[1:]
                return events[0]
        error = self._protocol.handshake_exc
        if isinstance(error, InvalidStatus):
            return error.response
        why = f"{error!s:.200}" if isinstance(error, InvalidHandshake) else type(error).__name__
        raise PortMisbehaved(f"What listens on port {self._port} does not speak WebSocket as it should: {why}.")

    async def messages(self) -> AsyncIterator[tuple[bool, bytes]]:
        """Whole ones, and whether each is text; until the sandbox closes. Raises: PortUnreachable."""
        text, parts = False, list[bytes]()
        while self._early or self._protocol.state is OPEN:
            events, self._early = self._early or await self._received(), []
            for frame in events:
                if not isinstance(frame, Frame) or frame.opcode not in (*_TEXT, Opcode.CONT):
                    continue
                if frame.opcode is not Opcode.CONT:
                    text = _TEXT[frame.opcode]
                if frame.data:
                    parts.append(bytes(frame.data))
                if frame.fin:
                    whole, parts = b"".join(parts), []
                    yield text, whole
        said = self._protocol.close_rcvd
        if said is not None:
            self.close_reason = said.reason
            self.close_code = CloseCode.NORMAL_CLOSURE if said.code in _NEVER_SENT else said.code

    async def _received(self) -> list[object]:
        data = await self._stream.receive(FRAMES_BYTES)
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        events: list[object] = list(self._protocol.events_received())
        await self._flush()
        return events

    async def send(self, data: bytes, *, text: bool) -> None:
        if self._protocol.state is OPEN:
            (self._protocol.send_text if text else self._protocol.send_binary)(data)
            await self._flush()

    async def close(self, code: int) -> None:
        if self._protocol.state is OPEN:
            if code in _NEVER_SENT:
                self._protocol.send_close()
            else:
                self._protocol.send_close(code)
            await self._flush()

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(PIECE_SECONDS):
                for data in self._protocol.data_to_send():
                    if data:
                        await self._stream.send(data)
                    else:
                        await self._stream.send_eof()
        except TimeoutError:
            raise PortMisbehaved(f"What listens on port {self._port} does not read.") from None
        except PortUnreachable:
            if self._protocol.state is OPEN:
                raise
