"""Draining one output descriptor of a command into its sink, on the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from hutch.model.process import StreamName
from hutch.providers.base import OutputSink

READ_BYTES = 65_536  # what a pipe holds
FINAL_BYTES = 1_048_576  # the most a pipe can be made to hold: what its writers left behind when they died
UNKEPT_BYTES = 262_144  # of output nobody keeps, read between two pauses
UNKEPT_PAUSE = 0.005
PROMPT_READS = 16  # a command that prints more often than this is read at intervals:
PACE = 0.002  # a thousand small writes then cost a few turns of the loop, not a thousand


class OutputDrain:
    """Owns `descriptor` (non-blocking). One read for each turn of the loop, so that a flood starves nobody."""

    __slots__ = ("_descriptor", "_ended", "_loop", "_prompt", "_sink", "_stream", "_timer", "_unkept", "_watched")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        stream: StreamName,
        sink: OutputSink,
        ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._stream = stream
        self._sink = sink
        self._ended = ended
        self._timer: asyncio.TimerHandle | None = None
        self._unkept = 0
        self._prompt = PROMPT_READS
        self._watched = False

    @property
    def open(self) -> bool:
        return self._descriptor >= 0

    def start_in(self, seconds: float) -> None:
        if seconds:
            self._timer = self._loop.call_later(seconds, self.start)
        else:
            self.start()

    def start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self.open and not self._watched:
            self._watched = True
            self._loop.add_reader(self._descriptor, self._readable)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self._descriptor)

    def close(self) -> None:
        """Twice is fine."""
        if self.open:
            self._unwatch()
            os.close(self._descriptor)
            self._descriptor = -1

    def _readable(self) -> None:
        count = self._read_once()
        if count is None:
            self.close()
            self._ended()
        elif self._unkept >= UNKEPT_BYTES:
            self._unkept = 0
            self._pause(UNKEPT_PAUSE)
        elif self._prompt > 0:
            self._prompt -= 1
        elif count < READ_BYTES:
            self._pause(PACE)

    def _pause(self, seconds: float) -> None:
        self._unwatch()
        self._timer = self._loop.call_later(seconds, self.start)

    def _read_once(self) -> int | None:
        """How many bytes came (0: none for now), or None at the end."""
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:  # EIO: a terminal that nobody holds any more
            return None
        if not data:
            return None
        if not self._sink.feed(self._stream, data):
            self._unkept += len(data)
        return len(data)

    def read_rest(self) -> None:
        """Feed what the pipe holds now. Bounded: survivors of the command may go on writing."""
        left = FINAL_BYTES
        while self.open and left > 0:
            count = self._read_once()
            if count is None:
                self.close()
            elif count == 0:
                return
            else:
                left -= count
