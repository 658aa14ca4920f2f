"""One connection, held to bounds before a request is known to the app, and where the app cannot reach.

What the web server leaves open: heads of requests of any size that take any time, requests that queue up behind one
another, answers to pings for a peer that reads none of them.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

HEAD_SECONDS = 20.0  # for all of a request's head to come
HEAD_BYTES = 64 * 1024
HEAD_FIELDS = 200
REST_BYTES = 2 * 1024 * 1024  # of a body whose request was answered before all of it came
UNSENT_BYTES = 4 * 1024 * 1024  # kept for a WebSocket's peer that does not read


class HttpConnection(HttpToolsProtocol):
    head_seconds = HEAD_SECONDS
    _timer: asyncio.TimerHandle | None = None
    # Of a head that is not complete yet, behind a request that is not answered yet, or of a body nobody waits for.
    _unasked_bytes = 0
    _body_comes = False
    _deaf = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base has it
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_over()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        came = self._body_comes
        if not self._deaf:
            if self.cycle is None or self.cycle.response_complete:
                self._await_head()
            super().data_received(data)
        if (self._timer is None and not self._deaf) or (came and not self._body_comes):
            return  # what came was a whole head, or belongs to a body
        self._unasked_bytes += len(data)
        rest = self._body_comes and not self._deaf
        if self._unasked_bytes > (REST_BYTES if rest else HEAD_BYTES) and not self.transport.is_closing():
            if self._deaf or rest:
                self.transport.abort()
            else:
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        if self._waits_for_its_answer():
            # While requests queue up nothing is read, and so nobody would hear that their caller left.
            raise ValueError("a request before the answer to the last one")
        self._await_head()
        super().on_message_begin()

    def send_400_response(self, msg: str) -> None:
        """Not into the middle of an answer: what comes behind its request is dropped, and the connection then ends."""
        if self._waits_for_its_answer():
            self._deaf = True
            self.cycle.keep_alive = False
        else:
            super().send_400_response(msg)

    def _waits_for_its_answer(self) -> bool:
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete:
            return False
        # All that was announced is out, so its peer may go on, though the app has yet to say that it was all. Where
        # there is never a body, there is neither encoding (204) nor does the length count (HEAD).
        whole = cycle.expected_content_length == 0 or cycle.scope["method"] == "HEAD"
        return not (cycle.response_started and not cycle.chunked_encoding and whole)

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= HEAD_FIELDS:
            raise ValueError("too many fields")  # the parser makes it a refusal
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_is_over()
        self._body_comes = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._body_comes = False
        if (
            self.cycle is not None and self.cycle.response_complete
        ):  # the rest of a body, which took its time like a head
            self._head_is_over()
        super().on_message_complete()

    def _await_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self._too_late)

    def _head_is_over(self) -> None:
        self._unasked_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        self.transport.abort()


class WebSocketConnection(WebSocketsSansIOProtocol):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.get_write_buffer_size() > UNSENT_BYTES:  # pings, whose answers nobody reads
            self.transport.abort()
