"""What a request to the proxy asks for, and what of it goes on. Pure, over what h11 has parsed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import h11

from hutch.policy.hosts import Host, NoHost, parse_authority

_ABSOLUTE = re.compile(rb"http://([^/?#]*)([/?][^#]*)?\Z", re.IGNORECASE)
# Of one connection only (RFC 9110, 7.6.1); `content-length` and `host` are set anew where they are needed.
_HOP_BY_HOP = frozenset(
    b"connection expect host http2-settings keep-alive proxy-authenticate proxy-authorization proxy-connection te"
    b" trailer transfer-encoding upgrade".split()
)
Headers = list[tuple[bytes, bytes]]


class BadRequest(ValueError):
    """A request that no proxy should guess the meaning of."""


@dataclass(frozen=True, slots=True)
class Wanted:
    method: str
    host: Host
    port: int
    path: bytes = b""  # with the query
    websocket: bool = False

    @property
    def tunnel(self) -> bool:
        return self.method == "CONNECT"

    def authority(self, default_port: int) -> bytes:
        return (str(self.host) if self.port == default_port else f"{self.host}:{self.port}").encode()


def read_request(request: h11.Request) -> Wanted:
    """Raises: BadRequest."""
    method = request.method.decode("ascii")
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version < b"1.1"):
        raise BadRequest("it says in two ways where its body ends")
    if method == "TRACE":
        raise BadRequest("TRACE would show headers that are not the sandbox's")
    if method == "CONNECT":
        if b"transfer-encoding" in names or content_length(request.headers) not in (None, b"0"):
            raise BadRequest("a CONNECT has no body")
        return Wanted(method, *_authority(request.target, None))
    found = _ABSOLUTE.match(request.target)
    if found is None:
        raise BadRequest("this is a proxy: ask for http://host/path, or CONNECT host:port for TLS")
    path = found[2] or b"/"
    host, port = _authority(found[1], 80)
    return Wanted(method, host, port, path if path[:1] == b"/" else b"/" + path, _websocket(request))


def _authority(raw: bytes, default_port: int | None) -> tuple[Host, int]:
    try:
        return parse_authority(raw.decode("ascii"), default_port)
    except UnicodeDecodeError:
        raise BadRequest("its host is no name") from None
    except NoHost as error:
        raise BadRequest(f"its host cannot be read: {error}") from None


def _websocket(request: h11.Request) -> bool:
    """Raises: BadRequest for any other protocol that a connection might be turned into: nobody would watch it."""
    upgrades = [value.lower() for name, value in request.headers if name == b"upgrade"]
    if any(name == b"http2-settings" for name, _ in request.headers):
        raise BadRequest("a connection is not turned into HTTP/2 here")
    if not upgrades:
        return False
    if upgrades != [b"websocket"] or request.method != b"GET" or content_length(request.headers) not in (None, b"0"):
        raise BadRequest("a connection can be turned into a WebSocket, nothing else")
    return True


def content_length(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    return next((value for name, value in headers if name == b"content-length"), None)


def onward(request: h11.Request, wanted: Wanted, secrets: Mapping[str, str], default_port: int) -> h11.Request:
    """What the host is sent. The sandbox's own headers of the secrets' names go; Host is what was judged."""
    ours = {name.encode(): value.encode("latin-1") for name, value in secrets.items()}
    kept = [(name, value) for name, value in _end_to_end(request.headers) if name not in ours]
    headers = [(b"host", wanted.authority(default_port)), *kept, *ours.items()]
    if any(name == b"transfer-encoding" for name, _ in request.headers):
        headers.append((b"transfer-encoding", b"chunked"))
    if wanted.websocket:
        headers += [(b"connection", b"upgrade"), (b"upgrade", b"websocket")]
    else:
        headers.append((b"connection", b"close"))
    return h11.Request(method=request.method, target=wanted.path, headers=headers)


def backward(answer: h11.Response | h11.InformationalResponse) -> Headers:
    """Headers of an answer, for the sandbox."""
    kept = _end_to_end(answer.headers)
    if any(name == b"transfer-encoding" for name, _ in answer.headers):
        kept = [(name, value) for name, value in kept if name != b"content-length"]
    if answer.status_code == 101:
        kept += [(b"connection", b"upgrade"), (b"upgrade", b"websocket")]
    return kept


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    given = list(headers)
    named = {
        one.strip().lower() for name, value in given if name == b"connection" for one in value.split(b",")
    } - {b"content-length"}  # fmt: skip
    return [(name, value) for name, value in given if name not in _HOP_BY_HOP and name not in named]
