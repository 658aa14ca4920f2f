"""From our standard input to a command's, on a thread of its own."""

from __future__ import annotations

import contextvars
import os
import select
import threading
from collections.abc import Callable

from hutch.model.errors import HutchError

STDIN = 0
PIECE_BYTES = 65536
STOP = b"q"
POKE = b"p"


class Feeder:
    """Reads standard input until its end, and can be stopped while it waits for more.

    Args:
        send: takes what was read.
        close: called at the end of the input.
        poked: called on this thread after each `poke`, so that a signal handler need not do the work itself.
    """

    def __init__(
        self, send: Callable[[bytes], None], close: Callable[[], None], poked: Callable[[], None] | None = None
    ) -> None:
        self._send = send
        self._close = close
        self._poked = poked
        self._read_end, self._write_end = os.pipe()
        # The copy carries the binding of the caller's session over to the thread.
        self._thread = threading.Thread(target=contextvars.copy_context().run, args=(self._main,), daemon=True)
        self._thread.start()

    def poke(self) -> None:
        os.write(self._write_end, POKE)

    def stop(self) -> None:
        """Read no more. The command must have ended: a piece on its way to it then fails, and waits no longer."""
        os.write(self._write_end, STOP)
        self._thread.join()
        os.close(self._read_end)
        os.close(self._write_end)

    def _main(self) -> None:
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        poll.register(STDIN, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._read_end in ready:
                if os.read(self._read_end, 1) == STOP:
                    return
                self._do(self._poked)
            elif not self._pass_on():
                poll.unregister(STDIN)

    def _pass_on(self) -> bool:
        """Whether there may be more."""
        try:
            data = os.read(STDIN, PIECE_BYTES)
        except OSError:  # a folder, or a terminal that hung up
            data = b""
        return self._do((lambda: self._send(data)) if data else self._close) and bool(data)

    def _do(self, act: Callable[[], None] | None) -> bool:
        try:
            if act is not None:
                act()
        except HutchError:
            return False  # a command need not read its input; its result tells how it went
        return True
