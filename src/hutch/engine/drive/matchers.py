"""Which lines of a block of text match: plain text in a thread, regular expressions in a process that can be ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from hutch.model.errors import InvalidRequest, LimitExceeded

START_SECONDS = 30.0
BATCH_SECONDS = 3.0  # for some two megabytes of text, which take a fiftieth of that
CPU_SECONDS = 60  # a last bound, should nobody be there to end it
_ANSWER_BYTES = 16 * 1024 * 1024
_WORKER = Path(__file__).with_name("regex_worker.py")


class Matcher(Protocol):
    async def lines(self, blocks: Sequence[bytes], most: int) -> list[list[int]]:
        """For each block the numbers, from 0, of lines that match; at most `most`. Raises: LimitExceeded."""


class PlainMatcher:
    def __init__(self, text: str, *, ignore_case: bool) -> None:
        self._ignore_case = ignore_case
        self._text = text.casefold() if ignore_case else text

    async def lines(self, blocks: Sequence[bytes], most: int) -> list[list[int]]:
        return await asyncio.to_thread(lambda: [self._found(block, most) for block in blocks])

    def _found(self, block: bytes, most: int) -> list[int]:
        text = block.decode("utf-8", "replace")
        text = text.casefold() if self._ignore_case else text
        if self._text not in text:
            return []
        found = [number for number, line in enumerate(text.split("\n")) if self._text in line.removesuffix("\r")]
        return found[:most]


class RegexMatcher:
    """Use `open`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, pattern: str, *, ignore_case: bool, most: int) -> AsyncIterator[RegexMatcher]:
        """Raises: InvalidRequest when it is no regular expression."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(_WORKER),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_ANSWER_BYTES,
            env={},
        )
        made = cls(process)
        try:
            request = {"pattern": pattern, "ignore_case": ignore_case, "most": most, "cpu_seconds": CPU_SECONDS}
            answer = await made._asked([json.dumps(request).encode() + b"\n"], START_SECONDS)
            if "error" in answer:
                raise InvalidRequest(f"The pattern is no regular expression: {answer['error']:.200}.")
            yield made
        finally:
            await asyncio.shield(made._end())

    async def lines(self, blocks: Sequence[bytes], most: int) -> list[list[int]]:
        sizes = json.dumps([len(block) for block in blocks]).encode() + b"\n"
        found: list[list[int]] = await self._asked([sizes, *blocks], BATCH_SECONDS)
        return found

    async def _asked(self, pieces: Sequence[bytes], seconds: float) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                for piece in pieces:
                    self._process.stdin.write(piece)
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        except (TimeoutError, ConnectionError, ValueError):
            line = b""
        if not line:
            raise LimitExceeded(
                f"The regular expression took more than {seconds:g} seconds for a few files, or too much memory. "
                "Nested repetitions such as (a+)+ do that: write it in another way.",
                limit="grep_time",
                maximum=seconds,
            )
        return json.loads(line)

    async def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()
