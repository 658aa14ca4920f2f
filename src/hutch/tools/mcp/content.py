"""What kind of content bytes are. Pure."""

from __future__ import annotations

from functools import cache
from mimetypes import MimeTypes

MAX_CONTENT_BYTES = 2 * 1024 * 1024  # of what goes in one piece, as a resource or an image
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


@cache
def _types() -> MimeTypes:
    """The same on every machine: without what this one has in its files."""
    return MimeTypes()


def kind_of(path: str) -> str | None:
    """The media type that a name stands for."""
    return _types().guess_type(path.rpartition("/")[2])[0]


def is_text(data: bytes, *, whole: bool = False) -> bool:
    """Whether a file is UTF-8, or a piece of one, whose end may have cut a character."""
    if b"\0" in data:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return not whole and error.reason == "unexpected end of data" and error.start > 0
    return True
