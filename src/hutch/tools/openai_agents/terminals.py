"""Commands that a model starts, looks at again, and types into: `exec_command` and `write_stdin` of the SDK."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import cast

from agents.sandbox.errors import PtySessionNotFoundError
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    process_id_to_prune_from_meta,
    resolve_pty_write_yield_time_ms,
    truncate_text_by_tokens,
)

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import HutchError, ProcessEnded
from hutch.model.process import OutputEvent
from hutch.tools.openai_agents.excerpt import Excerpt

SCREEN = (24, 120)
START_MS = 10_000
WRITE_MS = 250


@dataclass(frozen=True, slots=True)
class Launch:
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    tty: bool
    timeout: float | None


@dataclass(slots=True)
class Terminal:
    """One process and how far its output was read. It is read only while somebody asks: a flood costs no memory."""

    process_id: str
    tty: bool
    events: AsyncGenerator[OutputEvent, None]
    last_used: float = field(default_factory=time.monotonic)
    exit_code: int | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _next: asyncio.Task[OutputEvent] | None = None

    async def collect(self, seconds: float) -> str:
        """What is printed until the process ends or `seconds` are over. Raises: HutchError."""
        deadline = time.monotonic() + seconds
        seen = Excerpt()
        while self.exit_code is None and (left := deadline - time.monotonic()) > 0:
            if self._next is None:
                self._next = asyncio.ensure_future(anext(self.events))
            done, _ = await asyncio.wait({self._next}, timeout=left)
            if not done:
                break
            task, self._next = self._next, None
            event = task.result()
            seen.add(event["text"])
            if event["result"] is not None:
                self.exit_code = event["result"]["exit_code"]
                if event["result"]["limit"] is not None:
                    seen.add(f"\nhutch: the command hit the limit '{event['result']['limit']}' of its sandbox\n")
        self.last_used = time.monotonic()
        return seen.text("Write long output to a file and look at parts of it.")

    async def aclose(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        with contextlib.suppress(HutchError):
            await self.events.aclose()


class Terminals:
    def __init__(self, box: AsyncSandboxClient) -> None:
        self._box = box
        self._open: dict[int, Terminal] = {}

    async def start(self, launch: Launch, yield_seconds: float | None, most_tokens: int | None) -> PtyExecUpdate:
        """Raises: HutchError."""
        started = await self._box.start(
            f"exec {shlex.join(launch.argv)}",
            cwd=launch.cwd,
            env={"TERM": "dumb", **launch.env} if launch.tty else launch.env,
            pty=SCREEN if launch.tty else None,
            timeout=launch.timeout,
            leftovers="keep",
        )
        events = cast("AsyncGenerator[OutputEvent, None]", self._box.attach(started["process_id"]))
        terminal = Terminal(started["process_id"], launch.tty, events)
        number = allocate_pty_process_id(set(self._open))
        self._open[number] = terminal
        try:
            await self._make_room()
            wanted = clamp_pty_yield_time_ms(START_MS if yield_seconds is None else int(yield_seconds * 1000))
            return await self._update(number, terminal, wanted, most_tokens)
        except asyncio.CancelledError:  # its caller never learns the number, so nobody could end it
            self._open.pop(number, None)
            await asyncio.shield(self._end(terminal))
            raise

    async def write(
        self, number: int, characters: str, yield_seconds: float | None, most_tokens: int | None
    ) -> PtyExecUpdate:
        """Raises: PtySessionNotFoundError, RuntimeError, HutchError."""
        terminal = self._open.get(number)
        if terminal is None:
            raise PtySessionNotFoundError(session_id=number)
        if characters and not terminal.tty:
            raise RuntimeError("stdin is not available for this process")  # the SDK knows it by these words
        async with terminal.turn:
            if characters:
                with contextlib.suppress(ProcessEnded):  # its last output and exit code follow
                    await self._box.send_input(terminal.process_id, characters)
            wanted = resolve_pty_write_yield_time_ms(
                yield_time_ms=WRITE_MS if yield_seconds is None else int(yield_seconds * 1000),
                input_empty=not characters,
            )
            return await self._update(number, terminal, wanted, most_tokens)

    async def close(self) -> None:
        while self._open:
            await self._end(self._open.popitem()[1])

    async def _update(self, number: int, terminal: Terminal, wait_ms: int, most_tokens: int | None) -> PtyExecUpdate:
        try:
            text = await terminal.collect(wait_ms / 1000)
        except HutchError:
            self._open.pop(number, None)
            await self._end(terminal)
            raise
        ended = terminal.exit_code is not None
        if ended and self._open.pop(number, None) is not None:
            await terminal.aclose()
        shown, original_tokens = truncate_text_by_tokens(text, most_tokens)
        return PtyExecUpdate(
            process_id=None if ended else number,
            output=shown.encode(errors="replace"),
            exit_code=terminal.exit_code,
            original_token_count=original_tokens,
        )

    async def _make_room(self) -> None:
        if len(self._open) <= PTY_PROCESSES_MAX:
            return
        meta = [(number, one.last_used, one.exit_code is not None) for number, one in self._open.items()]
        oldest = process_id_to_prune_from_meta(meta)
        if oldest is not None:
            await self._end(self._open.pop(oldest))

    async def _end(self, terminal: Terminal) -> None:
        await terminal.aclose()
        with contextlib.suppress(HutchError):
            await self._box.kill(terminal.process_id)
