"""What an address is for, by the registries of special addresses (IANA, RFC 6890). Pure.

The standard library's own `is_private` and `is_global` differ between versions of Python; a wall should not.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal

Kind = Literal["public", "private", "link-local", "never"]

_NEVER = [
    IPv4Network(text)
    for text in ("0.0.0.0/8", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4")
]
# Link-local, and what clouds answer on: instance metadata, with credentials in it.
_LINK_LOCAL = [
    IPv4Network(text) for text in ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.0/24")
]
_PRIVATE = [
    IPv4Network(text)
    for text in ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15",
                 "192.88.99.0/24")
]  # fmt: skip
_LINK_LOCAL_6 = [IPv6Network(text) for text in ("fe80::/10", "fd00:ec2::/32")]
_PRIVATE_6 = [IPv6Network(text) for text in ("fc00::/7", "::1/128")]
_PUBLIC_6 = IPv6Network("2000::/3")
_NEVER_6 = [IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "3fff::/20")]
# Addresses that stand for one of IPv4: network, and how many bits follow the 32 that say which.
_EMBEDDED = [
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("::ffff:0:0:0/96"), 0),
    (IPv6Network("::/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
]


def kind_of(address: IPv4Address | IPv6Address) -> Kind:
    if isinstance(address, IPv4Address):
        return _kind_of_4(address)
    if any(address in network for network in _LINK_LOCAL_6):
        return "link-local"
    if any(address in network for network in _PRIVATE_6):
        return "private"
    for network, shift in _EMBEDDED:
        if address in network:
            return _kind_of_4(IPv4Address(int(address) >> shift & 0xFFFFFFFF))
    known = address in _PUBLIC_6 and not any(address in network for network in _NEVER_6)
    return "public" if known else "never"


def _kind_of_4(address: IPv4Address) -> Kind:
    kinds: tuple[tuple[Kind, list[IPv4Network]], ...] = (
        ("never", _NEVER),
        ("link-local", _LINK_LOCAL),
        ("private", _PRIVATE),
    )
    return next((kind for kind, networks in kinds if any(address in network for network in networks)), "public")
