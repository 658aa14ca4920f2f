"""How answers and failures are told to a model. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from hutch.model.errors import HutchError

LONGEST_PATH_BYTES = 4095
HALVES = re.compile(r"[\ud800-\udfff]")
P = ParamSpec("P")
T = TypeVar("T")


class NotUtf8(Exception):
    """A text with half a character in it."""


def utf8(text: str) -> bytes:
    """Raises: NotUtf8."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise NotUtf8(f"the text cannot be stored: {error}") from None


def utf8_path(path: object) -> bool:
    """Whether a sandbox could have such a path at all."""
    if not isinstance(path, str) or "\0" in path or HALVES.search(path):
        return False
    return len(path.encode()) <= LONGEST_PATH_BYTES


def told(error: Exception) -> str:
    return f"{error.code}: {error}" if isinstance(error, HutchError) else str(error)


def error_word(error: HutchError | OSError) -> str:
    """One of deepagents' four words where one fits, else our code and message."""
    if isinstance(error, FileNotFoundError):
        return "file_not_found"
    if isinstance(error, IsADirectoryError):
        return "is_directory"
    if isinstance(error, PermissionError):
        return "permission_denied"
    if isinstance(error, HutchError):
        return "invalid_path" if error.code == "path_rejected" else told(error)
    return str(error)


def storable(method: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Its answers hold text that every database takes: a name in a sandbox, or in a model's call, may be none."""

    @functools.wraps(method)
    async def answer(*args: P.args, **kwargs: P.kwargs) -> T:
        result = await method(*args, **kwargs)
        for one in result if isinstance(result, list) else [result]:
            for field, value in vars(one).items():
                if field != "path" or not isinstance(result, list):  # of an upload: as it was asked for
                    setattr(one, field, _whole(value))
        return result

    return answer


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else HALVES.sub("\ufffd", value)
    if isinstance(value, list):
        return [_whole(one) for one in value]
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    return value
