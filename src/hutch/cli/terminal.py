"""A shell of the sandbox on our terminal: keys go in, bytes come out, and the terminal is as it was afterwards."""

from __future__ import annotations

import os
import re
import signal
import termios
import tty
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from hutch.cli import show
from hutch.cli.feed import STDIN, Feeder
from hutch.model.errors import HutchError, SandboxUnavailable

if TYPE_CHECKING:
    from hutch.client.sync_client import SandboxClient, Shell

PRIVATE_MODES = re.compile(rb"\x1b\[\?([0-9;]{1,40})([hl])")
# What programs switch on and must switch off again: application keys, the other screen, mouse reports, focus reports,
# bracketed paste. The cursor (25) is the other way round.
SWITCHED_ON = frozenset({1, 47, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1047, 1049, 2004})
CURSOR = 25


class Modes:
    """The terminal modes that the sandbox's output has left changed."""

    def __init__(self) -> None:
        self._changed: set[int] = set()
        self._tail = b""

    def see(self, data: bytes) -> None:
        text = self._tail + data
        end = 0
        for found in PRIVATE_MODES.finditer(text):
            end = found.end()
            for mode in (int(number) for number in found[1].split(b";") if number):
                if mode in SWITCHED_ON or mode == CURSOR:
                    changed = (found[2] == b"h") != (mode == CURSOR)
                    (self._changed.add if changed else self._changed.discard)(mode)
        self._tail = text[max(end, len(text) - 48) :]  # a sequence may be cut in two

    def undo(self) -> bytes:
        """What to print so that the terminal is as it was."""
        return b"".join(b"\x1b[?%d%c" % (mode, b"h" if mode == CURSOR else b"l") for mode in sorted(self._changed))


def interact(client: SandboxClient) -> int:
    """Returns the exit code of the shell. Raises: HutchError when there is none or it is lost."""
    rows, columns = window()
    with client.open_shell(rows=rows, columns=columns) as shell:
        with _raw_terminal():
            _relay(shell)
        result = shell.wait()
    if result is None:
        raise SandboxUnavailable("The shell ended without a result.")
    return result["exit_code"]


def _relay(shell: Shell) -> None:
    keyboard = Feeder(shell.send, lambda: None, poked=lambda: shell.resize(*window()))
    modes = Modes()
    try:
        with _on_signal(signal.SIGWINCH, keyboard.poke):
            walk = cast("Generator[bytes, None, None]", shell.output())
            with closing(walk) as pieces:
                for data in pieces:
                    modes.see(data)  # first: a signal may come right behind what was written
                    show.write(show.STDOUT, data)
    except BaseException:
        with suppress(HutchError):
            shell.close()  # now, so that nothing waits on its way to it
        raise
    finally:
        keyboard.stop()
        with suppress(HutchError):
            show.write(show.STDOUT, modes.undo())


@contextmanager
def _raw_terminal() -> Iterator[None]:
    before: list[Any] = termios.tcgetattr(STDIN)

    def again() -> None:  # whoever stopped us gave the terminal to somebody else meanwhile
        with suppress(termios.error):
            tty.setraw(STDIN, termios.TCSADRAIN)

    try:
        with _on_signal(signal.SIGCONT, again):
            again()
            yield
    finally:
        with suppress(termios.error):  # it hung up
            termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


@contextmanager
def _on_signal(signum: signal.Signals, act: Callable[[], None]) -> Iterator[None]:
    def handle(number: int, frame: FrameType | None) -> None:
        act()

    before = signal.signal(signum, handle)
    try:
        yield
    finally:
        signal.signal(signum, before)


def window() -> tuple[int, int]:
    """Rows and columns. A terminal that does not know says 0."""
    try:
        size = os.get_terminal_size(STDIN)
    except OSError:
        return 24, 80
    return min(size.lines or 24, 9999), min(size.columns or 80, 9999)
