"""What every request passes before it is looked at: the names it may use, its size, its pace.

Plain ASGI, so that streams pass through untouched.
"""

from __future__ import annotations

import asyncio
import re
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hutch.model.errors import Forbidden, HutchError, RequestTooLarge
from hutch.server.answers import refusal

PIECE_SECONDS = 60.0  # most time between two pieces of a body, and for a reader to take a piece of an answer
MAX_JSON_BYTES = 4 * 1024 * 1024
# Bodies that are handed on as they come. Any other is collected before anybody looks at a key, whatever it says it is.
_STREAMED = re.compile(
    r"/v1/sandboxes/[^/]+/(files|drive/bytes|processes/[^/]+/input)|/v1/drive/files|/upload_file"
    r"|/internal/sandboxes/[^/]+"
)
_ANY = "*"
Network = IPv4Network | IPv6Network


class Guard:
    """Wraps an app."""

    def __init__(
        self,
        app: ASGIApp,
        names: frozenset[str],
        piece_seconds: float = PIECE_SECONDS,
        peers: tuple[str, ...] = (),
    ) -> None:
        self._app = app
        self._names = names
        self._peers = networks_of(peers)
        self._seconds = piece_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        try:
            check_peer(scope, self._peers)
            self._check_names(headers)
            limit = self._check_size(scope, headers)
        except HutchError as error:
            return await refusal(error)(scope, receive, send)
        if scope["type"] == "websocket":
            return await self._app(scope, receive, paced(send, self._seconds))
        await self._app(scope, self._counted(receive, limit), paced(send, self._seconds))

    def _check_names(self, headers: Headers) -> None:
        """Against web pages that a name was pointed at us for (DNS rebinding), and pages of other origins.

        Raises: Forbidden.
        """
        host = headers.get("host", "")
        if _ANY not in self._names and host_name(host) not in self._names:
            raise Forbidden(
                f"This server does not answer to the name {host!r:.100}. HUTCH_ALLOWED_HOSTS names those it answers to."
            )
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != host:
            raise Forbidden(f"Pages of {origin!r:.100} may not use this server.")

    def _check_size(self, scope: Scope, headers: Headers) -> int | None:
        """Most bytes of the body; None: a file or input, bounded by its sandbox. Raises: RequestTooLarge."""
        if _STREAMED.fullmatch(scope.get("path", "")):
            return None
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > MAX_JSON_BYTES:
            raise _too_large()
        return MAX_JSON_BYTES

    def _counted(self, receive: Receive, limit: int | None) -> Receive:
        seen = 0
        more = True

        async def limited() -> Message:
            nonlocal seen, more
            if not more:  # all of it came: what is awaited now is the end of the connection, which may take its time
                return await receive()
            try:
                async with asyncio.timeout(self._seconds):
                    message = await receive()
            except TimeoutError:
                return {"type": "http.disconnect"}
            more = message["type"] == "http.request" and bool(message.get("more_body"))
            seen += len(message.get("body", b""))
            if limit is not None and seen > limit:
                raise _too_large()
            return message

        return limited


def networks_of(peers: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ip_network(peer) for peer in peers)


def check_peer(scope: Scope, peers: tuple[Network, ...]) -> None:
    """Where a proxy ends TLS, whoever comes around it would show its key to the network. Raises: Forbidden."""
    peer = scope.get("client")
    if not peers or peer is None:
        return
    address = ip_address(peer[0])
    if not address.is_loopback and not any(address in network for network in peers):
        raise Forbidden("This server is reached by its proxy only. HUTCH_TRUSTED_PROXIES names those.")


def paced(send: Send, seconds: float = PIECE_SECONDS) -> Send:
    async def in_time(message: Message) -> None:
        try:
            async with asyncio.timeout(seconds):
                await send(message)
        except TimeoutError:
            # Its reader takes nothing: whoever produces the answer must not wait for it for ever.
            raise ConnectionAbortedError("the reader does not read") from None

    return in_time


def host_name(host: str) -> str:
    """Of a Host header, without its port, in small letters."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _too_large() -> RequestTooLarge:
    return RequestTooLarge(
        f"A JSON body has at most {MAX_JSON_BYTES} bytes. Upload files by PUT …/files.", maximum=MAX_JSON_BYTES
    )
