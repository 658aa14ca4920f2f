"""Running `hutch` as users do: a process of its own on a data folder of its own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

SOURCE = Path(__file__).resolve().parents[2] / "src"
HANG = 60.0  # far above what anything here takes


class Hutch:
    def __init__(self, data: Path) -> None:
        self.data = data
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HUTCH_")}
        path = os.pathsep.join([str(SOURCE), *filter(None, [kept.get("PYTHONPATH")])])
        self.env = {**kept, "PYTHONPATH": path, "HUTCH_DATA_DIR": str(data)}

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "hutch", *words]

    def run(
        self, *words: str, given: bytes | None = b"", stdin: int | IO[bytes] | None = None, **env: str
    ) -> subprocess.CompletedProcess[bytes]:
        source: dict[str, Any] = {"stdin": stdin} if stdin is not None else {"input": given}
        return subprocess.run(
            self.argv(*words), capture_output=True, env={**self.env, **env}, timeout=HANG, check=False, **source
        )

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(self.argv(*words), env=self.env, **options)

    def threads(self) -> list[str]:
        return [row["thread_id"] for row in json.loads(self.run("sessions", "list", "--json").stdout)]

    def close_all(self) -> None:
        self.run("sessions", "close", "--all")


def read_until(stream: IO[bytes], wanted: bytes) -> bytes:
    """What `stream` gave up to `wanted`. Raises: AssertionError at its end, or when it takes too long."""
    seen, deadline = b"", time.monotonic() + HANG
    while wanted not in seen:
        ready, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
        data = os.read(stream.fileno(), 65536) if ready else b""
        if not data:
            raise AssertionError(f"{wanted!r} did not come, only {seen!r}")
        seen += data
    return seen


class Terminal:
    """A terminal with `hutch` on it."""

    def __init__(self, hutch: Hutch, *words: str) -> None:
        self.host, self.guest = pty.openpty()
        self.resize(30, 100)
        self.before = termios.tcgetattr(self.guest)
        self.screen = b""
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *hutch.argv(*words)],  # its own terminal: keys and a new size send signals
            env={**hutch.env, "TERM": "xterm"},
            stdin=self.guest,
            stdout=self.guest,
            stderr=self.guest,
        )

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.host, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.host, text.encode())

    def until(self, wanted: str) -> None:
        """Raises: AssertionError."""
        deadline = time.monotonic() + HANG
        while wanted.encode() not in self.screen:
            if not self.drain(max(0.0, deadline - time.monotonic())):
                raise AssertionError(f"{wanted!r} did not come, only {self.screen!r}")
        self.screen = self.screen.split(wanted.encode(), 1)[1]

    def drain(self, seconds: float) -> bool:
        """Read what comes within that time, if anything."""
        if not select.select([self.host], [], [], seconds)[0]:
            return False
        with suppress(OSError):
            self.screen += os.read(self.host, 65536)
            return True
        return False

    def end(self) -> int:
        deadline = time.monotonic() + HANG
        while self.process.poll() is None and time.monotonic() < deadline:
            self.drain(0.05)
        while self.drain(0.05):
            pass
        return self.process.wait(timeout=1)

    @property
    def restored(self) -> bool:
        return termios.tcgetattr(self.guest) == self.before


@contextmanager
def terminal(hutch: Hutch, *words: str) -> Iterator[Terminal]:
    made = Terminal(hutch, *words)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait()
        os.close(made.host)
        os.close(made.guest)
