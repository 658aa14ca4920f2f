"""Patterns of paths. Each part is matched by itself, so that no pattern takes more than a moment."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

from hutch.model.errors import InvalidRequest

MAX_PARTS = 64


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a relative path matches: `*`, `?` and `[…]` within a name, `**` for any number of folders.

    A pattern without a slash is about the name alone. Raises: InvalidRequest.
    """
    parts = tuple(part for part in pattern.removeprefix("./").split("/") if part)
    if not parts or len(parts) > MAX_PARTS or pattern.startswith("/") or ".." in parts:
        raise InvalidRequest(f"{pattern!r:.200} is no pattern of a path: write it relative, like src/**/*.py.")
    if len(parts) == 1 and parts[0] != "**":
        return lambda path: fnmatchcase(path.rpartition("/")[2], parts[0])
    return lambda path: _matches(tuple(path.split("/")), parts)


def _matches(names: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """All places in the pattern that the names so far may have led to."""
    places = _open_to({0}, parts)
    for name in names:
        stay = {place for place in places if place < len(parts) and parts[place] == "**"}
        go = {place + 1 for place in places - stay if place < len(parts) and fnmatchcase(name, parts[place])}
        places = _open_to(stay | go, parts)
    return len(parts) in places


def _open_to(places: set[int], parts: tuple[str, ...]) -> set[int]:
    """With those behind a `**` that matches nothing."""
    return {place + skipped for place in places for skipped in range(_stars(parts, place) + 1)}


def _stars(parts: tuple[str, ...], place: int) -> int:
    count = 0
    while place + count < len(parts) and parts[place + count] == "**":
        count += 1
    return count
