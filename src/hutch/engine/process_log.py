"""One process as the engine keeps it: its output, its end, and those who follow it."""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from hutch.engine.output import CHARACTER_BYTES, SpoolBudget, StreamLog, command_budget, decode, whole_characters
from hutch.model.clock import iso
from hutch.model.ids import new_process_id
from hutch.model.limits import OUTPUT_BYTES, LimitName
from hutch.model.process import (
    ExecResult,
    LogChunk,
    OutputEvent,
    ProcessExit,
    ProcessInfo,
    ProcessSpec,
    StreamName,
)
from hutch.providers.base import Process

EVENT_BYTES = 256 * 1024  # of one piece handed to a follower
TIMED_OUT_EXIT = 124


@dataclass(slots=True, eq=False)
class ProcessLog:
    """Implements the provider's `OutputSink`."""

    spec: ProcessSpec
    budget: SpoolBudget
    stdout: StreamLog
    stderr: StreamLog
    process_id: str = field(default_factory=new_process_id)
    process: Process | None = None
    started_at: float = field(default_factory=time.time)
    started_tick: float = field(default_factory=time.perf_counter)
    ended_at: float | None = None
    duration_ms: float = 0.0
    exit: ProcessExit | None = None
    timed_out: bool = False
    limit: LimitName | None = None
    recreated: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def new(cls, spec: ProcessSpec, session: SpoolBudget, spool_folder: Path) -> ProcessLog:
        budget = command_budget(session)
        return cls(spec, budget, StreamLog(budget, spool_folder), StreamLog(budget, spool_folder))

    def stream(self, name: StreamName) -> StreamLog:
        return self.stdout if name == "stdout" else self.stderr

    # -- written by the provider and the engine

    def feed(self, stream: StreamName, data: bytes) -> bool:
        kept = self.stream(stream).append(data)
        self._wake_followers()
        return kept

    def stop_clock(self) -> None:
        if self.ended_at is None:
            self.ended_at = time.time()
            self.duration_ms = (time.perf_counter() - self.started_tick) * 1000

    def finish(self, ended: ProcessExit) -> None:
        self.stop_clock()
        self.exit = ended
        if self.timed_out and ended.limit == "cpu":
            self.limit = self.limit or "cpu"
        elif not (self.timed_out and ended.limit is None):
            self.limit = self.limit or ended.limit
        if self.limit is None and self._dropped():
            self.limit = "output"
        self.ended.set()
        self._wake_followers()

    def close(self) -> None:
        self.stdout.close()
        self.stderr.close()
        self.budget.give_back()

    def _wake_followers(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _dropped(self) -> bool:
        return self.stdout.kept < self.stdout.total or self.stderr.kept < self.stderr.total

    # -- read by callers

    @property
    def exit_code(self) -> int | None:
        if self.exit is None:
            return None
        return TIMED_OUT_EXIT if self.timed_out else self.exit.exit_code

    def result(self) -> ExecResult:
        """Of an ended process."""
        assert self.exit is not None
        out, out_cut = _text(self.stdout)
        err, err_cut = _text(self.stderr)
        return {
            "exit_code": TIMED_OUT_EXIT if self.timed_out else self.exit.exit_code,
            "stdout": out,
            "stderr": err,
            "execution_time_ms": round(self.duration_ms),
            "timed_out": self.timed_out,
            "limit": self.limit,
            "truncated": out_cut or err_cut,
            "stdout_bytes": self.stdout.total,
            "stderr_bytes": self.stderr.total,
            "spooled_bytes": self.stdout.kept + self.stderr.kept,
            "killed_processes": [{"pid": killed.pid, "name": killed.name} for killed in self.exit.killed],
            "session_recreated": self.recreated,
            "files_kept": True,
            "process_id": self.process_id,
        }

    def info(self) -> ProcessInfo:
        return {
            "process_id": self.process_id,
            "pid": self.process.pid if self.process is not None else 0,
            "command": self.spec.command if self.spec.command is not None else " ".join(self.spec.argv),
            "tag": self.spec.tag,
            "status": "running" if self.exit is None else "exited",
            "exit_code": self.exit_code,
            "limit": self.limit,
            "started_at": iso(self.started_at),
            "ended_at": iso(self.ended_at) if self.ended_at is not None else None,
            "pty": self.spec.pty is not None,
            "stdout_bytes": self.stdout.total,
            "stderr_bytes": self.stderr.total,
        }

    def chunk(self, name: StreamName, offset: int, max_bytes: int) -> LogChunk:
        log = self.stream(name)
        data = log.read(offset, max_bytes)
        at_end = self.exit is not None and offset + len(data) >= log.kept
        if not at_end and len(data) > CHARACTER_BYTES:
            data = whole_characters(data)  # the rest of the last one comes with the next piece
        return {
            "data": data,
            "text": decode(data, complete=True),
            "offset": offset,
            "next_offset": offset + len(data),
            "first_offset": 0,
            "total_bytes": log.total,
            "complete": at_end,
        }

    async def follow(self, *, replay: bool = True) -> AsyncIterator[OutputEvent]:
        """Output from the start (or from now on), then the end. A slow follower costs no memory: it reads the spool."""
        names: tuple[StreamName, ...] = ("stdout", "stderr")
        offsets = {name: 0 if replay else self.stream(name).kept for name in names}
        decoders = {name: codecs.getincrementaldecoder("utf-8")(errors="replace") for name in names}
        while True:
            news, ended = self._news, self.exit is not None
            moved = False
            for name in names:
                data = self.stream(name).read(offsets[name], EVENT_BYTES)
                if data:
                    moved = True
                    text = decoders[name].decode(data)
                    yield {"type": name, "data": data, "text": text, "offset": offsets[name], "result": None}
                    offsets[name] += len(data)
            if moved:
                continue
            if ended:
                for name in names:
                    if rest := decoders[name].decode(b"", final=True):
                        yield {"type": name, "data": b"", "text": rest, "offset": offsets[name], "result": None}
                yield {"type": "exit", "data": b"", "text": "", "offset": 0, "result": self.result()}
                return
            await news.wait()


def _text(log: StreamLog) -> tuple[str, bool]:
    data = log.read(0, OUTPUT_BYTES)
    cut = len(data) < log.total
    return decode(data, complete=not cut), cut
