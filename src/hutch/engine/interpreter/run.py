"""One piece of code under way: what it said so far, and who follows it."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any, Literal

from hutch.engine.interpreter.messages import Done, Failed, Part, Said, Shown, Text
from hutch.model.code import CodeError, CodeEvent, CodeOutput, CodeResult
from hutch.model.limits import MIB, OUTPUT_BYTES, LimitName

# An honest bridge says at most 32 MiB, of one run. One that says more is no bridge of ours.
HEARD_BYTES = 40 * MIB
LINE_COST = 200  # of each line, however short: it has to be held
BUNDLE_BYTES = 10 * MIB  # of all that is shown
JSON_BYTES = MIB  # of one value: as objects it takes many times as much
MOST_OUTPUTS = 1000
MOST_MIMES = 50  # of one output


class CodeRun:
    def __init__(self, context_id: str) -> None:
        self.context_id = context_id
        self.run_id = secrets.token_hex(8)  # the code does not learn it, so it cannot say that it has ended
        self.timed_out = False
        self.truncated = False
        self.restarted = False
        self.state_lost = False
        self.limit: LimitName | None = None
        self.error: CodeError | None = None
        self.outputs: list[CodeOutput] = []
        self.said = asyncio.Event()  # the code has ended, or its interpreter
        self._count: int | None = None
        self._began = time.perf_counter()
        self._heard = 0
        self._text: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._left = {"stdout": OUTPUT_BYTES, "stderr": OUTPUT_BYTES}
        self._parts: dict[str, list[Part]] = {}
        self._shown = 0
        self._pending: list[CodeEvent] = []
        self._pieces: list[str] = []  # of the last one pending, when it is text: put together once it is read
        self._news = asyncio.Event()
        self.result: CodeResult | None = None

    def begin(self) -> None:
        self._began = time.perf_counter()

    # -- heard from the bridge

    def room_for(self, size: int) -> bool:
        """Whether so many bytes more may be honest."""
        self._heard += size
        return self._heard <= HEARD_BYTES

    def hear(self, said: Said) -> None:
        match said:
            case Text():
                self._hear_text(said)
            case Part():
                self._hear_part(said)
            case Shown():
                self._hear_bundle(said.kind)
            case Failed():
                self.fail(said.error)
            case Done() if said.run_id == self.run_id:
                self._count = said.count
                self.truncated = self.truncated or said.lost
                self.said.set()
            case _:
                pass

    def fail(self, error: CodeError) -> None:
        if self.error is not None:
            return
        self.error = error
        self._tell({"type": "error", "text": "", "data": None, "error": error, "result": None})

    def _hear_text(self, said: Text) -> None:
        text = said.text[: self._left[said.stream]]
        self.truncated = self.truncated or len(text) < len(said.text)
        self._left[said.stream] -= len(text)
        if not text:
            return
        self._text[said.stream].append(text)
        if self._pending and self._pending[-1]["type"] == said.stream:
            self._pieces.append(text)
        else:
            self._tell({"type": said.stream, "text": "", "data": None, "error": None, "result": None})
            self._pieces = [text]
        self._news.set()

    def _hear_part(self, said: Part) -> None:
        self._shown += len(said.text)
        if self._shown > BUNDLE_BYTES or (said.mime not in self._parts and len(self._parts) >= MOST_MIMES):
            self.truncated = True
            return
        self._parts.setdefault(said.mime, []).append(said)

    def _hear_bundle(self, kind: Literal["display", "result"]) -> None:
        parts, self._parts = self._parts, {}
        data: dict[str, Any] = {}
        for mime, pieces in parts.items():
            text = "".join(piece.text for piece in pieces)
            try:
                data[mime] = _value(text) if pieces[0].as_json else text
            except (ValueError, RecursionError):
                self.truncated = True
        if len(self.outputs) >= MOST_OUTPUTS or not data:
            self.truncated = True
            return
        self.outputs.append({"type": kind, "data": data})
        self._tell({"type": kind, "text": "", "data": data, "error": None, "result": None})

    # -- told to those who follow

    def _tell(self, event: CodeEvent) -> None:
        self._join()
        self._pending.append(event)
        self._news.set()

    def _join(self) -> None:
        if self._pieces:
            self._pending[-1]["text"] = "".join(self._pieces)
            self._pieces = []

    def finish(self) -> None:
        """Nothing more will be heard."""
        if self.result is None:
            self.result = self._made()
            self._tell({"type": "end", "text": "", "data": None, "error": None, "result": self.result})

    def _made(self) -> CodeResult:
        return {
            "stdout": "".join(self._text["stdout"]),
            "stderr": "".join(self._text["stderr"]),
            "outputs": self.outputs,
            "error": self.error,
            "execution_count": self._count,
            "execution_time_ms": round((time.perf_counter() - self._began) * 1000),
            "timed_out": self.timed_out,
            "truncated": self.truncated,
            "limit": self.limit,
            "context_id": self.context_id,
            "context_restarted": self.restarted,
            "state_lost": self.state_lost,
        }

    async def events(self) -> AsyncIterator[CodeEvent]:
        """What was not read yet, as it comes, up to the end."""
        while True:
            self._news.clear()
            self._join()
            pending, self._pending = self._pending, []
            for event in pending:
                yield event
                if event["type"] == "end":
                    return
            await self._news.wait()


def _value(text: str) -> Any:
    """Raises: ValueError, RecursionError."""
    if len(text) > JSON_BYTES:
        raise ValueError("too large")
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def _finite(text: str) -> float:
    """What Python reads as a number and JSON cannot say is refused. Raises: ValueError."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text:.20} is no JSON")
    return number
