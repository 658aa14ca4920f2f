"""How a verb ends: exit codes, signals that end it, and standard streams that are not there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from hutch.model.errors import HutchError, SandboxUnavailable

FAILED = 1  # a check, or one command of a batch
USAGE = 2
CALLER_ERROR = 3
UNAVAILABLE = 4
OUTPUT_CLOSED = 128 + signal.SIGPIPE

PATIENCE = 3.0  # seconds for cleaning up, before a second signal ends the program at once


class Interrupted(BaseException):
    """A signal asks us to end. Not a KeyboardInterrupt: libraries turn that into endings of their own."""


class OutputClosed(BaseException):
    """Nobody reads our standard output any more, as after `| head -1`."""


def exit_code(error: HutchError) -> int:
    if isinstance(error, SandboxUnavailable) or error.retryable:
        return UNAVAILABLE
    return UNAVAILABLE if type(error) is HutchError else CALLER_ERROR


@dataclass(slots=True)
class Ending:
    """The signal that asked us to end, once there was one."""

    signum: int | None = None
    since: float = 0.0

    @property
    def exit_code(self) -> int | None:
        return None if self.signum is None else 128 + self.signum


@contextmanager
def interruptible() -> Iterator[Ending]:
    """Signals that end a program raise `Interrupted` here, so that what was started is cleaned up.

    They raise it anywhere, even in the midst of a call that is then left half done: whatever fails on the way out is a
    consequence, and only the signal counts. One that comes soon after another is the same wish (`timeout` sends it
    twice); a later one ends us at once.
    """
    ending = Ending()

    def handle(signum: int, frame: FrameType | None) -> None:
        if ending.signum is None:
            ending.signum, ending.since = signum, time.monotonic()
            raise Interrupted
        if time.monotonic() - ending.since > PATIENCE:
            os._exit(128 + signum)

    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    heeded = [signum for signum, old in before.items() if old != signal.SIG_IGN]  # nohup has SIGHUP ignored
    for signum in heeded:
        signal.signal(signum, handle)
    try:
        yield ending
    finally:
        for signum in heeded:
            signal.signal(signum, before[signum])


def open_missing_descriptors() -> None:
    """Where 0, 1 or 2 is closed, the next file that is opened would take its number, and our output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
