"""Which headers pass between a visitor and a sandbox, and how they change on the way. Pure.

Towards the sandbox: nothing that is ours (keys, tokens, our cookie). Towards the visitor: nothing that reaches beyond
the one preview.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from urllib.parse import unquote_to_bytes

from hutch.model.errors import Forbidden
from hutch.model.preview import TOKEN_HEADER, TOKEN_QUERY, label
from hutch.server.preview.address import Front, Place

Headers = Sequence[tuple[bytes, bytes]]

COOKIES = ("hutch_preview", "__Host-hutch_preview")  # the second where there is TLS: no other host can set it
SANDBOXED = (b"content-security-policy", b"sandbox")  # a page gets an origin that is nobody's

_OF_THE_CONNECTION = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding"
    b" upgrade http2-settings".split()
)
_NOT_INWARDS = _OF_THE_CONNECTION | frozenset(
    f"{TOKEN_HEADER} host content-length expect forwarded x-forwarded-for x-forwarded-host x-forwarded-proto"
    " x-forwarded-port x-forwarded-prefix x-forwarded-server x-real-ip sec-websocket-key sec-websocket-version"
    " sec-websocket-extensions sec-websocket-protocol sec-websocket-accept".encode().split()
)
# These would act on other hosts of the same site, or on the name beyond its port.
_NOT_OUTWARDS = _OF_THE_CONNECTION | frozenset(
    b"content-length alt-svc clear-site-data strict-transport-security public-key-pins nel"
    b" sec-websocket-accept sec-websocket-extensions sec-websocket-protocol".split()
)
_OURS = re.compile(rb"hutchp?_[kt][a-z2-7]{16}_[A-Za-z0-9_-]{43}")  # an API key or a token of a preview
_AUTHORITY = re.compile(
    r"(?P<scheme>https?):/*(?:[^/?#]*@)?(?P<host>\[[^/?#\]]*\]|[^/?#:]*)(?::(?P<port>[0-9]{0,5}))?(?P<rest>[/?#].*|)\Z",
    re.IGNORECASE | re.DOTALL,
)
# Other spellings of hosts that browsers know (0x7f.1, 2130706433, %6cocalhost) are for nobody who means well.
_PLAIN_NAME = re.compile(r"(?:[a-z0-9_-]+\.)*[a-z_-][a-z0-9_-]*\Z|[0-9]{1,3}(?:\.[0-9]{1,3}){3}\Z|\[[0-9a-f:.]+\]\Z")


def inwards(headers: Headers, place: Place, front: Front) -> list[tuple[bytes, bytes]]:
    """What the sandbox gets of a request's headers; Host is the one that the visitor used."""
    host = place.host if place.by_host else f"localhost:{place.port}"
    passed = [(b"host", host.encode("ascii"))]
    dropped = _NOT_INWARDS | _named_in_connection(headers)
    for name, value in headers:
        if name == b"cookie":
            value = b"; ".join(_cookies_for_the_sandbox(value)) if place.by_host else b""
            if not value:
                continue
        elif name in dropped or b"_" in name or _OURS.search(value):
            continue  # an underscore may be read as a dash, and so as a header that we dropped or set
        passed.append((name, value))
    passed += [(b"x-forwarded-host", place.host.encode("ascii")), (b"x-forwarded-proto", front.scheme.encode("ascii"))]
    return passed + ([(b"x-forwarded-prefix", place.prefix.encode("ascii"))] if place.prefix else [])


def outwards(headers: Headers, place: Place, front: Front, ours: frozenset[str]) -> list[tuple[bytes, bytes]]:
    """What the visitor gets of an answer's headers.

    Raises: Forbidden when the answer leads to another preview, or to the server itself (its names are `ours`).
    """
    passed: list[tuple[bytes, bytes]] = []
    dropped = _NOT_OUTWARDS | _named_in_connection(headers)
    for name, value in headers:
        name = name.lower()
        if name == b"set-cookie":
            kept = of_one_host(value) if place.by_host else None
            if kept is not None:
                passed.append((name, kept))
        elif name == b"location":
            passed.append((name, location(value, place, front, ours)))
        elif name not in dropped:
            passed.append((name, value))
    return passed if place.by_host else [*passed, SANDBOXED]


def _named_in_connection(headers: Headers) -> frozenset[bytes]:
    values = (value for name, value in headers if name.lower() == b"connection")
    return frozenset(one.strip().lower() for value in values for one in value.split(b","))


def cookies(headers: Headers) -> Iterator[tuple[str, str]]:
    for name, value in headers:
        if name == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                key, _, text = pair.partition("=")
                yield key.strip(), text.strip()


def _cookies_for_the_sandbox(value: bytes) -> Iterator[bytes]:
    for pair in value.split(b";"):
        name = pair.partition(b"=")[0].strip().decode("latin-1")
        if pair.strip() and name not in COOKIES and not _OURS.search(pair):
            yield pair.strip()


def of_one_host(value: bytes) -> bytes | None:
    """A Set-Cookie that stays with the host it came from; None for one that would replace ours."""
    first, *attributes = value.split(b";")
    if first.partition(b"=")[0].strip().decode("latin-1").lower() in {name.lower() for name in COOKIES}:
        return None
    kept = [one for one in attributes if one.partition(b"=")[0].strip().lower() != b"domain"]
    return b";".join([first, *kept])


def location(value: bytes, place: Place, front: Front, ours: frozenset[str]) -> bytes:
    """Where a redirect leads: `localhost` is the sandbox's own, from where it stands.

    Raises: Forbidden.
    """
    text = _as_browsers_read(value.decode("latin-1"))
    if text.startswith("//"):
        text = f"{front.scheme}:{text}"
    match = _AUTHORITY.match(text)
    if match is None:  # a path, or something that is no page
        return f"{place.prefix}{text}".encode("latin-1") if text.startswith("/") else text.encode("latin-1")
    name = match["host"].lower().rstrip(".")
    if place.by_host and name == place.host.partition(":")[0]:
        return f"{front.scheme}://{place.host}{match['rest']}".encode("latin-1")
    if _is_loopback(name):
        own = int(match["port"] or (443 if match["scheme"].lower() == "https" else 80))
        return f"{_home(place, own, front)}{match['rest'] or '/'}".encode("latin-1")
    if _PLAIN_NAME.match(name) is None or name == front.name or name.endswith(f".{front.name}") or name in ours:
        raise Forbidden(f"Port {place.port} answered with a redirect to {name!r:.100}, which is not its own to name.")
    return text.encode("latin-1")


def _is_loopback(name: str) -> bool:
    try:
        address = ip_address(name.strip("[]"))
    except ValueError:
        return name == "localhost"
    return address.is_loopback or address.is_unspecified


def _home(place: Place, port: int, front: Front) -> str:
    """Where a port of the same sandbox is, seen from outside."""
    if place.by_host:
        host = place.host.partition(".")[2]
        return f"{front.scheme}://{label(place.sandbox_id, port)}.{host}"
    return f"/{label(place.sandbox_id, port)}"


def _as_browsers_read(text: str) -> str:
    """Of an address: no control characters or spaces round it, no tabs within; \\ counts as / before the query."""
    text = text.strip("".join(map(chr, range(0x21)))).replace("\t", "")
    end = min((at for at in (text.find("?"), text.find("#")) if at >= 0), default=len(text))
    return text[:end].replace("\\", "/") + text[end:]


def without_token(query: bytes) -> tuple[bytes, str | None]:
    """A query without the token, and the token."""
    kept: list[bytes] = []
    token = None
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if unquote_to_bytes(name.replace(b"+", b" ")) == TOKEN_QUERY.encode():
            token = unquote_to_bytes(value).decode("latin-1")
        else:
            kept.append(part)
    return b"&".join(kept), token
