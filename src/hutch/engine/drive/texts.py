"""What of a file is text, its passages, and the piece of it that shows why it was found. Pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import NamedTuple

from hutch.model.errors import InvalidRequest

SNIPPET_CHARACTERS = 240
PASSAGE_CHARACTERS = 1_500
OVERLAP_CHARACTERS = 200
PASSAGES_AT_MOST = 32
_SPACE = re.compile(r"\s+")


class Span(NamedTuple):
    starts: int
    ends: int


def text_of(head: bytes) -> str | None:
    """The text at the beginning of a file, which may end within a character; None: it is no text."""
    if b"\0" in head:
        return None
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(head, final=False)
    except UnicodeDecodeError:
        return None


def whole_text(data: bytes, path: str) -> str:
    """Raises: InvalidRequest."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"{path!r} is no UTF-8 text (byte {error.start} is {data[error.start]:#04x}); read it as bytes.", path=path
        ) from None
    if "\0" in text:
        raise InvalidRequest(f"{path!r} holds NUL characters, so it is no text; read it as bytes.", path=path)
    return text


def replaced(text: str, old: str, new: str, path: str, *, replace_all: bool) -> tuple[str, int]:
    """The new text, and how often. Raises: InvalidRequest unless `old` is there, once where only once is meant."""
    for name, value in (("old", old), ("new", new)):
        if not isinstance(value, str):
            raise InvalidRequest(f"{name} must be a text, not {type(value).__name__}.")
    if not old or old == new:
        raise InvalidRequest("old must be some text, and new another one.")
    found = text.count(old)
    if not found:
        raise InvalidRequest(f"{path!r} does not hold that text; read the file and copy it exactly.", path=path)
    if found > 1 and not replace_all:
        raise InvalidRequest(
            f"{path!r} holds that text {found} times; give more of what stands around it, or replace_all=True.",
            path=path,
            found=found,
        )
    return text.replace(old, new), found


def passages(text: str) -> list[Span]:
    """Pieces that an embedding model can take, cut where words end, each with the end of the one before."""
    spans: list[Span] = []
    start = 0
    while start < len(text) and len(spans) < PASSAGES_AT_MOST:
        end = min(len(text), start + PASSAGE_CHARACTERS)
        if end < len(text):
            space = text.rfind(" ", start + PASSAGE_CHARACTERS // 2, end)
            line = text.rfind("\n", start + PASSAGE_CHARACTERS // 2, end)
            end = max(space, line) + 1 or end
        if text[start:end].strip():
            spans.append(Span(start, end))
        if end == len(text):
            break
        start = end - OVERLAP_CHARACTERS
    return spans


def snippet(text: str, words: Sequence[str]) -> str:
    """Around the first of the words; without them the beginning."""
    lowered, at = text.lower(), None
    for word in words:
        found = lowered.find(word.lower())
        if found >= 0:
            at = found if at is None else min(at, found)
    return cut(text, Span(max(0, (at or 0) - SNIPPET_CHARACTERS // 3), len(text)))


def cut(text: str, span: Span) -> str:
    piece = _SPACE.sub(" ", text[span.starts : min(span.ends, span.starts + 2 * SNIPPET_CHARACTERS)]).strip()
    shown = piece[:SNIPPET_CHARACTERS].rstrip()
    before = "…" if span.starts else ""
    after = "…" if len(shown) < len(piece) or span.starts + 2 * SNIPPET_CHARACTERS < min(span.ends, len(text)) else ""
    return f"{before}{shown}{after}"
