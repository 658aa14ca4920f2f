"""What a setting's text must look like, and what it then means. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

from hutch.model.limits import MIB
from hutch.model.wall import WALLS

_MEMORY_UNITS = {"": 1, "b": 1, "k": 1024, "m": MIB, "g": 1024 * MIB}
_LEAST_MEMORY = 16 * MIB
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,9})?")


class Unusable(ValueError):
    """Why a text cannot be a setting's value, and what can. Becomes a SettingsInvalid that names the variable."""


def whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if _WHOLE.fullmatch(text) is None or not least <= int(text) <= most:
            raise Unusable(f"use a whole number from {least} to {most}")
        return int(text)

    return parse


def number(least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if _NUMBER.fullmatch(text) is None or not least <= float(text) <= most:
            raise Unusable(f"use a number from {least:g} to {most:.15g}")
        return float(text)

    return parse


def yes_or_no(text: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if text.lower() not in known:
        raise Unusable("use true or false")
    return known[text.lower()]


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise Unusable(f"use {' or '.join(choices)}")
        return text

    return parse


def memory(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15})([bkmg]?)", text.lower())
    amount = int(match[1]) * _MEMORY_UNITS[match[2]] if match else 0
    if amount < _LEAST_MEMORY:
        raise Unusable("use a size of at least 16m, such as 256m, 1g or a number of bytes")
    return amount


def byte_count(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15})([bkmg]?)", text.lower())
    amount = int(match[1]) * _MEMORY_UNITS[match[2]] if match else 0
    if not 0 < amount < 2**62:
        raise Unusable("use a size such as 500m, 10g or a number of bytes")
    return amount


def cpu_quota(text: str) -> int:
    if text == "off":
        return 0
    if _WHOLE.fullmatch(text) is None or not 1000 <= int(text) <= 100_000:
        raise Unusable("use microseconds of each 100 ms from 1000 to 100000 (25000 is a quarter of a core), or off")
    return int(text)


def word(text: str) -> str:
    if re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", text) is None:
        raise Unusable("use a name of small letters, digits, - and _")
    return text


def label(text: str) -> str:
    if not text.isprintable() or len(text) > 200:
        raise Unusable("use a name of at most 200 characters")
    return text


def folder(text: str) -> Path:
    if text.startswith("~"):
        raise Unusable("write the home folder out: only a shell knows ~")
    return Path(text).absolute()


def uid_range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,10})-([0-9]{1,10})", text)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1000 < first <= last < 2**32 - 2:
        raise Unusable("use first-last, such as 200000-265535: ids above 1000 that no account of this machine has")
    return first, last


def wall_names(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(names - {wall.name for wall in WALLS})
    if unknown:
        raise Unusable(f"no such wall: {', '.join(unknown)}; use {', '.join(wall.name for wall in WALLS)}")
    return names


def address(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        usable = False
    if not usable or parts.username is not None or parts.query or parts.fragment:
        raise Unusable("use the server's address without user or query, such as http://localhost:8000")
    return text.rstrip("/")


def host(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9._:-]{1,253}", text) is None:
        raise Unusable("use a host name or address without scheme and port")
    return text


def host_names(text: str) -> frozenset[str]:
    names = frozenset(name.strip().lower().rstrip(".") for name in text.split(",") if name.strip())
    if not names or not all(name == "*" or re.fullmatch(r"[a-z0-9._:-]{1,253}", name) for name in names):
        raise Unusable("use host names without scheme and port, with commas between; * is any")
    return names


def tenants(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise Unusable("use names of tenants with commas between; * is all")
    return names


def networks(text: str) -> tuple[str, ...]:
    try:
        return tuple(str(ip_network(one.strip(), strict=False)) for one in text.split(",") if one.strip())
    except ValueError:
        raise Unusable("use addresses or networks such as 10.0.0.5 or 10.0.0.0/24, with commas between") from None


def addresses(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(address(one.strip()) for one in text.split(",") if one.strip()))


def rate(text: str) -> str:
    if re.fullmatch(r"[1-9][0-9]{0,8}/(second|minute|hour|day)", text) is None:
        raise Unusable("use a number of calls and a span, such as 600/minute (second, minute, hour, day)")
    return text


def database_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("postgresql", "postgres") and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise Unusable("use postgresql://user:password@host:5432/name; without it, SQLite in the data folder is used")
    return text


def redis_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("redis", "rediss", "unix") and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise Unusable("use redis://:password@host:6379/0, or rediss:// for TLS")
    return text


def worker_name(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text) is None:
        raise Unusable("use a name of letters, digits, ., - and _, at most 64 characters")
    return text


def secret(text: str) -> str:
    if not text.isascii() or not text.isprintable() or " " in text or len(text) > 500:
        raise Unusable("use a key as it was shown when it was made")
    return text


def show_secret(value: str | None) -> str:
    return "(set)" if value else ""


def show(value: object) -> str:
    """A value as one would write it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, tuple):
        return ("-" if all(isinstance(one, int) for one in value) else ",").join(map(str, value))
    return str(value)


def show_memory(size: int) -> str:
    for unit in "gmk":
        if size % _MEMORY_UNITS[unit] == 0:
            return f"{size // _MEMORY_UNITS[unit]}{unit}"
    return str(size)


def show_cpu_quota(quota: int) -> str:
    return str(quota) if quota else "off"
