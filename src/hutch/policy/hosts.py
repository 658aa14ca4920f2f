"""Which hosts a sandbox may reach: rules are read, names are read, both are compared. Pure.

A name has one spelling here. What could be read in two ways (127.1, 0x7f000001, a port of +80) is no name at all, so
nothing that comes after can read it differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any

from hutch.model.egress import DEFAULT_PORTS, MOST_RULES, HostRule
from hutch.model.errors import InvalidRequest
from hutch.policy.addresses import kind_of

Address = IPv4Address | IPv6Address

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)\Z")
_PORT = re.compile(r"[0-9]{1,5}\Z")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
_HEADER_VALUE = re.compile(r"[!-~\x80-\xff]([ -~\x80-\xff\t]{0,8000}[!-~\x80-\xff])?\Z")
_FIELDS = frozenset({"host", "ports", "private", "tls", "headers"})
# These say where a request goes and how it is framed, which is the proxy's to decide.
_OUR_HEADERS = frozenset(
    "host connection content-length expect keep-alive proxy-authorization proxy-connection te trailer"
    " transfer-encoding upgrade".split()
)
_MOST_PORTS = 100


@dataclass(frozen=True, slots=True)
class Host:
    """A name in small letters without a dot at its end, or an address."""

    text: str
    address: Address | None = None

    def __str__(self) -> str:
        return f"[{self.text}]" if isinstance(self.address, IPv6Address) else self.text


class NoHost(ValueError):
    """Why a text names no host."""


def parse_host(text: str) -> Host:
    """The host that a request names. Raises: NoHost."""
    if text.startswith("[") and text.endswith("]"):
        try:
            six = IPv6Address(text[1:-1])
        except AddressValueError:
            raise NoHost("it is no IPv6 address") from None
        if six.scope_id is not None:
            raise NoHost("an address here has no zone")
        return Host(str(six), six)
    name = text.lower().removesuffix(".") if text.isascii() else ""
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.match(label) for label in labels):
        raise NoHost("it is no host name")
    if _NUMBER.match(labels[-1]) is None:
        return Host(name)
    try:
        four = IPv4Address(name)
    except AddressValueError:
        raise NoHost("write an address as four plain numbers") from None
    return Host(str(four), four)


def parse_authority(text: str, default_port: int | None = None) -> tuple[Host, int]:
    """Host and port of `host:port`; without a default the port must be there. Raises: NoHost."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, ""
    if "@" in text:
        raise NoHost("a user has no place in it")
    if colon and not text.endswith("]") and not port:
        raise NoHost("its port is missing")
    if not port:
        if default_port is None:
            raise NoHost("its port is missing")
        return parse_host(host), default_port
    return parse_host(host), _port(port)


def _port(text: str) -> int:
    if _PORT.match(text) is None or not 0 < int(text) < 65536:
        raise NoHost("a port is a number from 1 to 65535")
    return int(text)


# -- rules


def parse_rules(given: Iterable[HostRule | Mapping[str, Any]]) -> tuple[HostRule, ...]:
    """Rules as users write them, checked, each host in its one spelling. Raises: InvalidRequest."""
    if isinstance(given, str | bytes | Mapping | HostRule) or not isinstance(given, Iterable):
        raise InvalidRequest('Egress rules are a list, such as [{"host": "example.org"}].')
    rules = tuple(_rule(one) for one in given)
    if len(rules) > MOST_RULES:
        raise InvalidRequest(f"A sandbox has at most {MOST_RULES} egress rules, not {len(rules)}.")
    return rules


def _rule(given: object) -> HostRule:
    if isinstance(given, HostRule):
        given = {name: getattr(given, name) for name in _FIELDS}
    if not isinstance(given, Mapping) or not set(given) <= _FIELDS or not isinstance(given.get("host"), str):
        raise InvalidRequest(f"An egress rule has a host and may have {', '.join(sorted(_FIELDS - {'host'}))}.")
    name, private, tls = given["host"], given.get("private", False), given.get("tls")
    if not isinstance(private, bool) or not (tls is None or isinstance(tls, bool)):
        raise _unusable(name, "private is true or false, tls is true, false or null")
    host = _rule_host(name, private=private)
    headers = _headers(name, given.get("headers"))
    if headers and host == "*":
        raise _unusable(name, "secret headers go to hosts that are named")
    return HostRule(host, _ports(name, given.get("ports")), private, tls, headers)


def _unusable(name: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"The egress rule for {name!r:.300} cannot be used: {why}.")


def _rule_host(name: str, *, private: bool) -> str:
    """Raises: InvalidRequest."""
    if name == "*":
        if private:
            raise _unusable(name, "private hosts are named one by one")
        return name
    wildcard = name.startswith("*.")
    try:
        host = parse_host(_ascii(name.removeprefix("*.")))
    except NoHost as error:
        raise _unusable(name, f"{error}; write example.com, *.example.com, 10.0.0.5 or [fd00::1]") from None
    if host.address is not None and (wildcard or not private):
        raise _unusable(name, "an address is for private hosts: add private: true, or name the host")
    return f"*.{host}" if wildcard else str(host)


def _ascii(name: str) -> str:
    """Letters beyond ASCII as the name system knows them. Raises: NoHost."""
    if name.isascii():
        return name
    import idna

    try:
        return idna.encode(name, uts46=True).decode()
    except idna.IDNAError:
        raise NoHost("it is no host name") from None


def _ports(name: str, given: object) -> tuple[int, ...]:
    if given is None:
        return DEFAULT_PORTS
    usable = isinstance(given, list | tuple) and 0 < len(given) <= _MOST_PORTS
    if not usable or not all(type(port) is int and 0 < port < 65536 for port in given):  # type: ignore[attr-defined]
        raise _unusable(name, f"ports are a list of 1 to {_MOST_PORTS} numbers from 1 to 65535")
    return tuple(dict.fromkeys(given))  # type: ignore[call-overload]


def _headers(name: str, given: object) -> dict[str, str]:
    """Messages never quote a value: it is a secret."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or len(given) > 20:
        raise _unusable(name, "headers are up to 20 names with a value each")
    found: dict[str, str] = {}
    for header, value in given.items():
        if not isinstance(header, str) or _HEADER_NAME.match(header) is None or header.lower() in _OUR_HEADERS:
            raise _unusable(name, f"{header!r:.120} is no header that can be added")
        if not isinstance(value, str) or _HEADER_VALUE.match(value) is None:
            raise _unusable(name, f"the value of header {header} is empty, too long, or no header can hold it")
        found[header.lower()] = value
    return found


# -- judgement


@dataclass(frozen=True, slots=True)
class Pass:
    """A request that may go out: by which rule, and to which port."""

    rule: HostRule
    host: Host
    port: int


def judge_tunnel(rules: Sequence[HostRule], host: Host, port: int) -> Pass | str:
    """A tunnel (CONNECT), or why not."""
    rule = _best(rules, host, lambda rule: port in rule.ports)
    if rule is None:
        return _why_not(rules, host, port)
    if rule.headers:
        return (
            f"its rule adds headers, which no tunnel can: ask for http://{host}/ instead, TLS is spoken from there on"
        )
    return Pass(rule, host, port)


def judge_request(rules: Sequence[HostRule], host: Host, port: int) -> Pass | str:
    """A plain request (http://…), or why not. Where TLS is spoken onward, port 80 stands for 443."""
    rule = _best(rules, host, lambda rule: _onward(rule, port) in rule.ports)
    return _why_not(rules, host, port) if rule is None else Pass(rule, host, _onward(rule, port))


def _onward(rule: HostRule, port: int) -> int:
    return 443 if rule.tls_onward and port == 80 else port


def _best(rules: Sequence[HostRule], host: Host, serves: Any) -> HostRule | None:
    """Of the rules that match, the one that says most about the host; among equals the first."""
    matching = [rule for rule in rules if matches(rule, host) and serves(rule)]
    return max(matching, key=lambda rule: (not rule.host.startswith("*"), len(rule.host)), default=None)


def matches(rule: HostRule, host: Host) -> bool:
    if host.address is not None or not rule.host.startswith("*"):
        return rule.host == str(host)
    return rule.host == "*" or host.text.endswith(rule.host[1:])  # the dot stays: evilexample.com is no part of it


def _why_not(rules: Sequence[HostRule], host: Host, port: int) -> str:
    ports = [port for rule in rules if matches(rule, host) for port in rule.ports]
    if ports:
        return f"its rule is for port {', '.join(map(str, dict.fromkeys(ports)))} only, not {port}"
    return "no rule of this sandbox names it"


def why_refused(address: Address, rule: HostRule) -> str | None:
    """Why a request that `rule` lets pass must not go to `address`, which its name led to."""
    kind = kind_of(address)
    if kind == "public" or (kind == "private" and rule.private):
        return None
    if kind == "private":
        return "a private address, and its rule does not say private: true"
    named = rule.private and rule.host == str(parse_host(f"[{address}]" if address.version == 6 else str(address)))
    if kind == "link-local" and named:
        return None
    if kind == "link-local":
        return "an address where machines tell secrets of themselves: only a private rule that names it may"
    return "no address of a host"
