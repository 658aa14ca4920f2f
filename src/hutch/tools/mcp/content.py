"""What of a file is shown, and as what. Pure."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from mimetypes import MimeTypes

from mcp_types import ImageContent

from hutch.model.errors import InvalidRequest, LimitExceeded
from hutch.tools.mcp import texts

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


def page(data: bytes, path: str, offset: int, size: int) -> str:
    """A piece of a text file. Raises: InvalidRequest where it is none."""
    begins = next((at for at, byte in enumerate(data[:4]) if not offset or byte & 0xC0 != 0x80), 0)
    data, offset = data[begins:], offset + begins  # not in the midst of a character
    if not is_text(data):
        raise InvalidRequest(
            f"{path!r} is no UTF-8 text ({size} bytes). Look at it in the sandbox, by execute (file, xxd, strings)."
        )
    if offset and offset >= size:
        return f"[offset {offset} is behind the end: {size} bytes in all]"
    text = texts.whole_text(data)
    end = offset + len(text.encode())
    return text if end >= size else f"{text}\n[bytes {offset} to {end} of {size}: offset={end} reads on]"


@dataclass(frozen=True, slots=True)
class Image:
    media: str

    def shown(self, data: bytes) -> ImageContent:
        return ImageContent(type="image", data=b64encode(data).decode(), mime_type=self.media)


def image_of(path: str, size: int) -> Image | None:
    """The image that a name stands for; None when it stands for something else. Raises: LimitExceeded."""
    media = kind_of(path)
    if media is None or media not in IMAGES:
        return None
    check_size(path, size, "Make the image smaller first.")
    return Image(media)


def check_size(path: str, size: int, remedy: str) -> None:
    """Raises: LimitExceeded for what does not go in one piece."""
    if size > MAX_CONTENT_BYTES:
        raise LimitExceeded(
            f"{path!r} has {size} bytes, and at most {MAX_CONTENT_BYTES} go in one piece. {remedy}",
            limit="content",
            maximum=MAX_CONTENT_BYTES,
            actual=size,
        )
