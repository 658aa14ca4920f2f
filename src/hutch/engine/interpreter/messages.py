"""What a bridge says, read with suspicion: the code it runs can write to its descriptors, too. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from hutch.model.code import CodeError

LONGEST_LINE = 512 * 1024  # an honest piece of 32,000 characters, each escaped twelvefold
LONGEST_NAME = 200
LONGEST_ERROR = 100_000


@dataclass(frozen=True, slots=True)
class Ready:
    pass


@dataclass(frozen=True, slots=True)
class Text:
    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True, slots=True)
class Part:
    """Of a bundle that the next `Shown` closes."""

    mime: str
    text: str
    as_json: bool


@dataclass(frozen=True, slots=True)
class Shown:
    kind: Literal["display", "result"]


@dataclass(frozen=True, slots=True)
class Failed:
    error: CodeError


@dataclass(frozen=True, slots=True)
class Done:
    run_id: str
    count: int | None
    lost: bool


@dataclass(frozen=True, slots=True)
class Dead:
    """The interpreter has ended: its exit code, or minus the signal."""

    code: int


Said = Ready | Text | Part | Shown | Failed | Done | Dead


class Lines:
    """Whole lines out of pieces. One that is too long is dropped, to its end."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._dropping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            line, newline, data = data.partition(b"\n")
            if not self._dropping:
                self._rest += line
            if len(self._rest) > LONGEST_LINE:
                self._rest.clear()
                self._dropping = True
            if newline:
                whole, self._rest, dropped, self._dropping = bytes(self._rest), bytearray(), self._dropping, False
                if not dropped:
                    yield whole


def read(line: bytes) -> Said | None:
    """None for what no honest bridge says."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return _said(found) if isinstance(found, dict) else None


def _said(found: dict[str, Any]) -> Said | None:
    match found:
        case {"type": "stdout" | "stderr" as stream, "text": str(text)}:
            return Text(stream, text)
        case {"type": "part", "mime": str(mime), "text": str(text), "json": bool(as_json)}:
            return Part(mime[:LONGEST_NAME], text, as_json)
        case {"type": "display" | "result" as kind}:
            return Shown(kind)
        case {"type": "error", "name": str(name), "value": str(value), "traceback": str(trace)}:
            cut = LONGEST_ERROR
            return Failed({"name": name[:LONGEST_NAME], "value": value[:cut], "traceback": trace[-cut:]})
        case {"type": "done", "id": str(run_id), "count": int() | None as count, "lost": bool(lost)}:
            return Done(run_id, count, lost)
        case {"type": "dead", "code": int(code)}:
            return Dead(code)
        case {"type": "ready"}:
            return Ready()
    return None
