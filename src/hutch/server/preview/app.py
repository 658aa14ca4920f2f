"""The app of the previews: an origin of its own, on a port of its own. No route of the API is here."""

from __future__ import annotations

from collections import Counter

from starlette.types import ASGIApp, Receive, Scope, Send

from hutch.engine.assemble import Engine
from hutch.model.errors import HutchError, MethodNotAllowed, NotSupported, RateLimited, RouteNotFound
from hutch.server.answers import internal, refusal
from hutch.server.guard import check_peer, networks_of, paced
from hutch.server.preview import requests, sockets
from hutch.server.preview.address import Place, front, place_of
from hutch.server.preview.entry import Entry, enter, exchange, wants_exchange
from hutch.server.preview.headers import without_token
from hutch.server.preview.visit import Visit, checked_target
from hutch.server.services import ServerOptions

OPEN_AT_MOST = 256  # requests and WebSockets of one port at a time
_NOT_PASSED_ON = frozenset({"CONNECT", "TRACE"})


def preview_app(engine: Engine, options: ServerOptions) -> ASGIApp:
    """Raises: NotSupported without an address for previews, SettingsInvalid."""
    if options.preview_url is None:
        raise NotSupported("This server has no previews.")
    return _Previews(engine, options, options.preview_url)


class _Previews:
    def __init__(self, engine: Engine, options: ServerOptions, url: str) -> None:
        self._engine = engine
        self._front = front(url)
        self._names = options.names
        self._peers = networks_of(options.peers)
        self._open: Counter[tuple[str, int]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        send = paced(send)
        try:
            check_peer(scope, self._peers)
            place = self._place(scope)
            # Out of the scope itself: the server writes the addresses of WebSockets to its log.
            scope["query_string"], token = without_token(scope["query_string"])
            entry = await enter(scope, place, self._front, self._engine.previews, token)
            if wants_exchange(scope, entry, place):
                return await exchange(scope, entry, place, self._front)(scope, receive, send)
            await self._visit(scope, receive, send, place, entry)
        except HutchError as error:
            await refusal(error)(scope, receive, send)
        except OSError:
            pass  # the visitor is gone
        except Exception as error:  # noqa: BLE001 - an app has no other place for it
            await refusal(internal(error))(scope, receive, send)

    def _place(self, scope: Scope) -> Place:
        """Raises: RouteNotFound, MethodNotAllowed."""
        place = place_of(scope, self._front.name, self._names)
        if place is None:
            raise no_such_preview()
        if scope.get("method") in _NOT_PASSED_ON:
            raise MethodNotAllowed(f"{scope['method']} is not passed on to sandboxes.")
        return place

    async def _visit(self, scope: Scope, receive: Receive, send: Send, place: Place, entry: Entry) -> None:
        """Raises: what refuses before there is a connection to the port."""
        target = checked_target(scope, place)
        key = (place.sandbox_id, place.port)
        if self._open[key] >= OPEN_AT_MOST:
            raise RateLimited(f"This preview has {OPEN_AT_MOST} requests open. Wait for some to end.", retry_after=1)
        self._open[key] += 1
        try:
            stream = await self._engine.ports.connect(entry.admission.tenant, place.sandbox_id, place.port)
            visit = Visit(place, self._front, self._names, target, stream)
            relay = sockets.relay if scope["type"] == "websocket" else requests.relay
            await relay(visit, scope, receive, send, lambda: self._engine.previews.until_over(entry.admission))
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


def no_such_preview() -> RouteNotFound:
    return RouteNotFound(
        "No preview has this address. GET /v1/sandboxes/{id}/ports/{port} of the API says which one has."
    )
