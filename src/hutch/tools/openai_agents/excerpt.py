"""What of a flood a model gets to read: its beginning and its end, and how much lies between."""

from __future__ import annotations

from hutch.tools.answers import MODEL_BYTES


class Excerpt:
    """Text that arrives in pieces, in bounded memory."""

    def __init__(self, most: int = MODEL_BYTES) -> None:
        self._half = most // 2
        self._head = ""
        self._tail = ""
        self._total = 0

    def add(self, text: str) -> None:
        self._total += len(text)
        room = self._half - len(self._head)
        self._head += text[:room]
        self._tail = (self._tail + text[room:])[-self._half :]

    def text(self, remedy: str) -> str:
        """`remedy` says how to get at what was left out."""
        left_out = self._total - len(self._head) - len(self._tail)
        if not left_out:
            return self._head + self._tail
        return f"{self._head}\n[… {left_out:,} characters are left out here. {remedy} …]\n{self._tail}"
