"""Names by pattern: `*`, `?` and `[…]` within a name, `**` for any number of folders. Pure, and never slow."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from hutch.model.drive import MAX_PATH_BYTES
from hutch.model.errors import InvalidRequest

_ANY_FOLDERS = "**"


def path_matcher(pattern: str, folder: str) -> Callable[[str], bool]:
    """For paths below `folder`, to which the pattern is relative unless it begins with /. Raises: InvalidRequest."""
    _check(pattern)
    stem = "" if folder == "/" else folder
    if pattern.startswith("/"):
        stem = ""
    parts = [_part(one) for one in pattern.split("/") if one not in ("", ".")]
    if not parts or pattern.endswith("/"):
        raise InvalidRequest(f"The pattern {pattern!r} names no files.")

    def matches(path: str) -> bool:
        if not path.startswith(stem + "/"):
            return False
        return _matches(parts, path[len(stem) + 1 :].split("/"))

    return matches


def file_matcher(pattern: str, folder: str) -> Callable[[str], bool]:
    """The same, but a pattern without / is about the name alone, in any folder. Raises: InvalidRequest."""
    return path_matcher(pattern if "/" in pattern else f"**/{pattern}", folder)


def _check(pattern: str) -> None:
    if not isinstance(pattern, str) or not pattern or "\0" in pattern or len(pattern) > MAX_PATH_BYTES:
        raise InvalidRequest(f"A pattern is a text of 1 to {MAX_PATH_BYTES} characters without NUL.")
    if ".." in pattern.split("/"):
        raise InvalidRequest("A pattern cannot hold '..'.")


def _part(text: str) -> re.Pattern[str] | None:
    """None: any number of folders. The library's translation never goes back over a star it has passed."""
    return None if text == _ANY_FOLDERS else re.compile(fnmatch.translate(text))


def _matches(parts: list[re.Pattern[str] | None], names: list[str]) -> bool:
    reached = {0}  # positions in `parts` that the names so far lead to
    for name in names:
        reached = _opened(parts, reached)
        reached = {at if parts[at] is None else at + 1 for at in reached if _fits(parts, at, name)}
        if not reached:
            return False
    return len(parts) in _opened(parts, reached)


def _opened(parts: list[re.Pattern[str] | None], reached: set[int]) -> set[int]:
    """`**` may stand for no folder at all."""
    found = set(reached)
    for at in sorted(reached):
        while at < len(parts) and parts[at] is None:
            at += 1
            found.add(at)
    return found


def _fits(parts: list[re.Pattern[str] | None], at: int, name: str) -> bool:
    if at >= len(parts):
        return False
    part = parts[at]
    return part is None or part.match(name) is not None
