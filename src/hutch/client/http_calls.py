"""One HTTP call: what it sends, what its failures mean, and when it is made again."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

import httpcore

from hutch.engine.connections import BROKEN, NEVER_SENT, Connections
from hutch.model.errors import HutchError, ServerUnreachable
from hutch.model.wire import REFUSED_AT_ONCE, REFUSED_HEADER, dumps, unpack_error

if TYPE_CHECKING:
    import ssl

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0  # over the time that the call itself may take
PAUSES = (0.1, 0.4)  # before another try to connect
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MAY_REPEAT = frozenset({"GET", "PUT", "DELETE"})
_BRINGS_BODY = frozenset({"POST", "PUT", "PATCH"})
KEPT_CONNECTIONS = 64
KEPT_SECONDS = 30.0


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in LOOPBACK or host.endswith(".localhost")


Query = Mapping[str, str | int | bool | None]  # what is None is left out


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str  # with every name in it quoted
    query: Query = field(default_factory=dict[str, "str | int | bool | None"])
    json: Any = None
    content: AsyncIterator[bytes] | bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0  # that the server may take for it
    repeat: bool | None = None  # None: as its method allows

    @property
    def may_repeat(self) -> bool:
        if self.repeat is not None:
            return self.repeat
        return self.method in _MAY_REPEAT and not isinstance(self.content, AsyncIterator)

    def target(self) -> str:
        pairs = [f"{name}={_quoted(value)}" for name, value in self.query.items() if value is not None]
        return self.path + ("?" + "&".join(pairs) if pairs else "")


def _quoted(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(str(value).encode("utf-8", "surrogateescape"), safe="")


def segment(name: str) -> str:
    """A name as one part of a path. `.` and `..` would be taken for folders on the way."""
    return quote(name, safe="").replace(".", "%2E")


class Sending(Protocol):
    """What carries requests."""

    async def send(self, request: httpcore.Request) -> httpcore.Response: ...

    async def aclose(self) -> None: ...


class Caller:
    """The connections to one server. They belong to an event loop, so each loop has its own."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self.url = url.rstrip("/")
        self.headers = {"authorization": f"Bearer {api_key}"} if api_key is not None else {}
        self.refused = 0  # commands that were judged here: the next call tells, or nobody who serves would know of them
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, Sending] = WeakKeyDictionary()
        parts = urlsplit(self.url)
        self._scheme, self._port = parts.scheme.encode(), parts.port
        self._host = _ascii(parts.hostname or "")
        self._path = quote(parts.path, safe="/%~!$&'()*+,;=:@").encode()
        named = b"[%s]" % self._host if b":" in self._host else self._host
        self._always = [
            (b"host", named if self._port is None else b"%s:%d" % (named, self._port)),
            (b"user-agent", b"hutch"),
            *((name.encode(), value.encode()) for name, value in self.headers.items()),
        ]

    def goes_to(self, sending: Sending) -> None:
        """Calls from this event loop go there, from now on."""
        self._connections[asyncio.get_running_loop()] = sending

    def _here(self) -> Sending:
        """Raises: ServerUnreachable when the environment names a proxy that cannot be used."""
        loop = asyncio.get_running_loop()
        found = self._connections.get(loop)
        if found is None:
            try:
                found = _connections(self.url)
            except (ValueError, ImportError) as error:
                raise unreachable(self.url, error, sent=False) from error
            self._connections[loop] = found
        return found

    async def aclose(self) -> None:
        connections = self._connections.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.aclose()

    async def json(self, call: Call) -> Any:
        """The answer's document; None for an empty one. Raises: HutchError."""
        async with self.answer(call) as response:
            body = await self._read(call, response)
        if not body:
            return None
        try:
            return json.loads(body)
        except ValueError as error:
            raise _not_hutch(self.url, response.status) from error

    async def _read(self, call: Call, response: httpcore.Response) -> bytes:
        try:
            return await response.aread()
        except BROKEN as error:
            raise unreachable(self.url, error, sent=True) from error

    @contextlib.asynccontextmanager
    async def answer(self, call: Call) -> AsyncIterator[httpcore.Response]:
        """The answer, its body not read yet. Raises: HutchError, the server's own included."""
        response = await self._sent(call)
        try:
            if response.status >= 400:
                raise self._refusal(response.status, await self._read(call, response))
            yield response
        finally:
            await response.aclose()

    async def _sent(self, call: Call) -> httpcore.Response:
        """Tried again when it was surely not sent, and once when sending it twice does no harm."""
        connections = self._here()
        pauses, repeats = list(PAUSES), 1 if call.may_repeat else 0
        told = min(self.refused, REFUSED_AT_ONCE)
        telling = {REFUSED_HEADER: str(told)} if told else {}
        while True:
            try:
                answer = await connections.send(self._request(call, telling))
                self.refused = max(0, self.refused - told)
                return answer
            except NEVER_SENT as error:
                if not pauses or isinstance(call.content, AsyncIterator):
                    raise unreachable(self.url, error, sent=False) from error
                await asyncio.sleep(pauses.pop(0))
            except BROKEN as error:
                if not repeats or isinstance(error, httpcore.ReadTimeout):
                    raise unreachable(self.url, error, sent=True) from error
                repeats -= 1

    def _request(self, call: Call, more: Mapping[str, str]) -> httpcore.Request:
        content = call.content if call.json is None else dumps(call.json)
        headers = {**call.headers, **more}
        if call.json is not None:
            headers["content-type"] = "application/json"
        if isinstance(content, AsyncIterator):
            if "content-length" not in headers:
                headers["transfer-encoding"] = "chunked"
        elif content or call.method in _BRINGS_BODY:
            headers["content-length"] = str(len(content or b""))
        seconds = call.seconds + ANSWER_SECONDS
        return httpcore.Request(
            call.method.encode(),
            httpcore.URL(
                scheme=self._scheme, host=self._host, port=self._port, target=self._path + call.target().encode()
            ),
            headers=[*self._always, *((name.encode(), value.encode()) for name, value in headers.items())],
            content=content,
            extensions={"timeout": {"connect": CONNECT_SECONDS, "read": seconds, "write": seconds}},
        )

    def _refusal(self, status: int, body: bytes) -> HutchError:
        try:
            return unpack_error(json.loads(body))
        except (ValueError, KeyError, TypeError, AttributeError):
            return _not_hutch(self.url, status)


def _connections(url: str) -> Connections:
    """Raises: ValueError, ImportError."""
    proxy = None if is_loopback(url) else _proxy(url)  # it is no way to this machine
    return Connections(kept=KEPT_CONNECTIONS, seconds=KEPT_SECONDS, ssl_context=_tls(url), proxy=proxy)


def _tls(url: str) -> ssl.SSLContext | None:
    """Whose certificates are believed: those SSL_CERT_FILE or SSL_CERT_DIR name, else those everybody believes."""
    if not url.startswith("https:"):
        return None
    from httpx import create_ssl_context

    return create_ssl_context(trust_env=not is_loopback(url))


def _proxy(url: str) -> httpcore.Proxy | None:
    """What HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY say. Raises: ValueError, ImportError."""
    parts = urlsplit(url)
    known = getproxies()
    named = known.get(parts.scheme) or known.get("all")
    if not named or proxy_bypass(parts.netloc):
        return None
    from httpx import Proxy

    given = Proxy(named if "://" in named else f"http://{named}")
    if given.url.scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
        raise ImportError("a SOCKS proxy needs: pip install socksio")
    at = httpcore.URL(
        scheme=given.url.raw_scheme, host=given.url.raw_host, port=given.url.port, target=given.url.raw_path
    )
    return httpcore.Proxy(at, auth=given.raw_auth, headers=given.headers.raw)


def _ascii(host: str) -> bytes:
    return host.encode() if host.isascii() else host.encode("idna")


def unreachable(url: str, error: Exception, *, sent: bool) -> ServerUnreachable:
    why = str(error) or type(error).__name__
    what = "did not answer" if sent else "cannot be reached"
    return ServerUnreachable(
        f"The server at {url} {what} ({why:.200}). Does it run there? Start one with: hutch serve", sent=sent
    )


def _not_hutch(url: str, status: int) -> ServerUnreachable:
    return ServerUnreachable(
        f"What answers at {url} (status {status}) is no Hutch server, or something stands before it. "
        "Check the address and what is between.",
        sent=True,
        status=status,
    )
