"""What is noted of each request: an id, a line in the log, numbers, and a span when traces are wanted.

Plain ASGI around everything else, so that what was refused at the door is noted too.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hutch.model.wire import REFUSED_AT_ONCE, REFUSED_HEADER, REQUEST_ID_HEADER
from hutch.server.logs import REQUEST_ID, event_log
from hutch.server.metrics import Metrics
from hutch.server.tracing import Tracing
from hutch.server.trail import ACTOR, nobody_yet

NO_ROUTE = "none"  # nothing matched, or it was refused before
GONE = 499  # its caller left before it was answered
FAILED = 500
UPGRADED = 101
DENIED = 403
QUIET = frozenset({"/health", "/ready", "/metrics"})  # asked every few seconds: only worth a line when looking for it
SHOWN = 64

_COUNT = re.compile(r"[0-9]{1,4}\Z", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")


Closing = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class _Seen:
    status: int = GONE
    received: int = 0
    sent: int = 0


class Noting:
    """Wraps an app."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, tracing: Tracing | None = None, closing: Closing | None = None
    ) -> None:
        self._app = app
        self._closing = closing
        self._metrics = metrics
        self._tracing = tracing
        self._log = event_log()

    async def aclose(self) -> None:
        """Let go of what the app holds; the last call has ended."""
        if self._closing is not None:
            await self._closing()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        request_id = _request_id(headers)
        if headers.get(REQUEST_ID_HEADER) != request_id:  # whoever the request is passed on to shall log the same one
            others = [pair for pair in scope["headers"] if pair[0] != REQUEST_ID_HEADER.encode()]
            scope["headers"] = [*others, (REQUEST_ID_HEADER.encode(), request_id.encode())]
        REQUEST_ID.set(request_id)  # a server gives each request a context of its own
        nobody_yet()
        began, seen = time.perf_counter(), _Seen()
        self._metrics.requests_open.inc()
        try:
            with contextlib.nullcontext() if self._tracing is None else self._tracing.request(_method(scope), headers):
                try:
                    await self._app(scope, _counted(receive, seen), _watched(send, seen, request_id))
                except Exception:
                    seen.status = FAILED if seen.status == GONE else seen.status
                    raise
                finally:
                    if self._tracing is not None:
                        self._tracing.answered(_method(scope), _route(scope), seen.status)
        finally:
            self._metrics.requests_open.dec()
            self._note(scope, headers, seen, time.perf_counter() - began)

    def _note(self, scope: Scope, headers: Headers, seen: _Seen, seconds: float) -> None:
        method, route = _method(scope), _route(scope)
        self._metrics.request(method, route, seen.status, seconds)
        caller, client = ACTOR.get(), scope.get("client")
        fields: dict[str, Any] = {
            "method": method,
            "route": route,
            "status": seen.status,
            "duration_ms": round(seconds * 1000, 1),
            "bytes_in": seen.received,
            "bytes_out": seen.sent,
        }
        if "sandbox_id" in (named := scope.get("path_params", {})):
            fields["sandbox"] = str(named["sandbox_id"])[:SHOWN]
        if caller is not None:
            self._metrics.refused_elsewhere(_refused(headers))
            fields |= {"key": caller.key_id, "tenant": caller.tenant}
        if client is not None:
            fields["client"] = client[0]
        quiet = route in QUIET and seen.status < 400
        (self._log.debug if quiet else self._log.warning if seen.status >= FAILED else self._log.info)(
            "request", **fields
        )


def _request_id(headers: Headers) -> str:
    """The caller's, which lets it find what it asked for in our log, or one of ours."""
    given = headers.get(REQUEST_ID_HEADER, "")
    return given if _ID.match(given) else secrets.token_hex(8)


def _refused(headers: Headers) -> int:
    told = headers.get(REFUSED_HEADER, "0")
    return min(int(told), REFUSED_AT_ONCE) if _COUNT.match(told) else 0


def _method(scope: Scope) -> str:
    return "WEBSOCKET" if scope["type"] == "websocket" else str(scope["method"])


def _route(scope: Scope) -> str:
    """The pattern that matched. The path itself is the caller's own text, and may hold names of files."""
    return str(getattr(scope.get("route"), "path", NO_ROUTE))


def _counted(receive: Receive, seen: _Seen) -> Receive:
    async def counted() -> Message:
        message = await receive()
        seen.received += len(message.get("body") or message.get("bytes") or message.get("text") or "")
        return message

    return counted


def _watched(send: Send, seen: _Seen, request_id: str) -> Send:
    async def watched(message: Message) -> None:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            seen.status = message["status"]
            MutableHeaders(scope=message).append(REQUEST_ID_HEADER, request_id)
        elif kind == "websocket.accept":
            seen.status = UPGRADED
        elif kind == "websocket.close" and seen.status == GONE:
            seen.status = DENIED
        seen.sent += len(message.get("body") or message.get("bytes") or message.get("text") or "")
        await send(message)

    return watched
