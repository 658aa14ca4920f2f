"""What of a long output a model gets to read: its beginning and its end, and how much lies between."""

from __future__ import annotations

MODEL_CHARACTERS = 100_000


class Excerpt:
    """Text that arrives in pieces, in bounded memory."""

    def __init__(self, most: int = MODEL_CHARACTERS) -> None:
        self._half = most // 2
        self._head = ""
        self._tail = ""
        self._total = 0

    def add(self, text: str) -> None:
        self._total += len(text)
        room = self._half - len(self._head)
        self._head += text[:room]
        self._tail = (self._tail + text[room:])[-self._half :]

    def text(self, hint: str = "") -> str:
        """`hint` says how to get at what was left out."""
        left_out = self._total - len(self._head) - len(self._tail)
        if not left_out:
            return self._head + self._tail
        return f"{self._head}\n[… {left_out} characters left out{hint and '; ' + hint} …]\n{self._tail}"


def excerpt(text: str, most: int = MODEL_CHARACTERS, *, hint: str = "") -> str:
    whole = Excerpt(most)
    whole.add(text)
    return whole.text(hint)
