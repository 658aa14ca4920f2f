"""From a request to the port it is for, and from a port to its address. Pure: whoever forwards requests asks here, too.

3000-sbaaaaaaaaaaaaaaaa.localhost:8001/path     for browsers: a host, so cookies and scripts keep to one port
localhost:8001/3000-sbaaaaaaaaaaaaaaaa/path     for programs, which often cannot resolve the other one
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import quote, urlsplit

from starlette.types import Scope

from hutch.model.errors import SettingsInvalid
from hutch.model.preview import TOKEN_QUERY, label, split_label

_HOST = re.compile(r"([a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::([0-9]{1,5}))?\Z")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Front:
    """Where previews are reached from outside."""

    scheme: str
    name: str  # the hosts of previews are one label below it
    port: int

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    def host(self, before: str = "") -> str:
        """As a Host header says it."""
        suffix = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{before}{'.' if before else ''}{self.name}{suffix}"

    def url(self, sandbox_id: str, port: int, token: str) -> str:
        """What a browser opens."""
        host = self.host(label(sandbox_id, port))
        return f"{self.scheme}://{host}/?{TOKEN_QUERY}={quote(token, safe='')}"

    def address(self, sandbox_id: str, port: int) -> str:
        """What programs put their paths behind."""
        return f"{self.scheme}://{self.host()}/{label(sandbox_id, port)}"


def front(url: str) -> Front:
    """Raises: SettingsInvalid."""
    parts = urlsplit(url)
    name = (parts.hostname or "").rstrip(".")
    if parts.path.strip("/") or _is_address(name) or not name:
        raise SettingsInvalid(
            f"HUTCH_PREVIEW_URL={url!r:.200} cannot be used: previews have hosts below it, so it is a name without a "
            "path, such as https://preview.example.com."
        )
    return Front(parts.scheme, name, parts.port or _DEFAULT_PORTS[parts.scheme])


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Place:
    """A port, as a request names it."""

    sandbox_id: str
    port: int
    host: str  # that the request named, with its port
    prefix: str = ""  # of every path, where the place is a path

    @property
    def by_host(self) -> bool:
        return not self.prefix


def place_of(scope: Scope, name: str, others: frozenset[str]) -> Place | None:
    """The port that a request is for; None when it is for none.

    Args:
        name: of the front.
        others: names by which programs may reach it; "*" is any.
    """
    hosts = [value for header, value in scope["headers"] if header.lower() == b"host"]
    match = _HOST.match(hosts[0].decode("latin-1").lower()) if len(hosts) == 1 else None
    if match is None:
        return None
    found, host = match[1], match[0]
    below, dot, rest = found.partition(".")
    named = split_label(below) if dot and rest == name else None
    if named is not None:
        return Place(*named, host)
    if found.strip("[]") in others or found == name or "*" in others:
        first = _raw_path(scope).decode("latin-1").split("/", 2)
        named = split_label(first[1]) if len(first) == 3 and not first[0] else None
        if named is not None:
            return Place(*named, host, f"/{first[1]}")
    return None


def target_of(scope: Scope, place: Place) -> bytes:
    """The path as it was sent, without what named the place."""
    return _raw_path(scope)[len(place.prefix) :]


def _raw_path(scope: Scope) -> bytes:
    raw: bytes | None = scope.get("raw_path")
    return quote(scope["path"]).encode("ascii") if raw is None else raw
