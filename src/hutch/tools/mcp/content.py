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


def kind_of(path: str) -> str:
    return _types().guess_type(path.rpartition("/")[2])[0] or "application/octet-stream"


def is_text(data: bytes) -> bool:
    """Whether a piece of a file is UTF-8, but for a character that its end may have cut."""
    if b"\0" in data:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and len(data) > 3
    return True
