"""What a model gets to read: bounded texts, and failures it can act on."""

from __future__ import annotations

from dataclasses import dataclass

from hutch.model.errors import HutchError

MODEL_BYTES = 100_000  # of one answer; a model's context holds no more
_HEAD_SHARE = 0.7  # of what is shown of a longer text; the rest is its end


@dataclass(frozen=True, slots=True)
class Shown:
    head: str
    tail: str = ""
    left_out: int = 0  # bytes between the two


def shown(text: str, most: int = MODEL_BYTES) -> Shown:
    """The start and the end of `text`, cut between characters, where it has more than `most` bytes."""
    if len(text) <= most // 4 or len(data := text.encode("utf-8", "replace")) <= most:
        return Shown(text)
    cut_at = head_bytes(most)
    head, tail = _whole(data[:cut_at]), _whole(data[len(data) - (most - cut_at) :])
    return Shown(head.decode(), tail.decode(), len(data) - len(head) - len(tail))


def head_bytes(most: int) -> int:
    """Of what is shown of a longer text."""
    return int(most * _HEAD_SHARE)


def cut(text: str, remedy: str, most: int = MODEL_BYTES) -> str:
    """`text`, or its start and end around a line that says what is missing and how to get it."""
    return noted(shown(text, most), remedy)


def noted(part: Shown, remedy: str) -> str:
    if not part.left_out:
        return part.head
    return f"{part.head}\n[… {part.left_out:,} bytes are left out here. {remedy} …]\n{part.tail}"


def error_text(code: str, message: str) -> str:
    return f"ERROR: {code}: {message}"


def told(error: HutchError) -> str:
    return cut(error_text(error.code, str(error)), "", 4_000)


def _whole(data: bytes) -> bytes:
    """Without the pieces of characters at both ends."""
    return data.decode("utf-8", "ignore").encode()
