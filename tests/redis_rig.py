"""A real Redis of a test's own, which it may pause, kill and start again."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 20


@dataclass(slots=True)
class RunningRedis:
    """`start` after `process.kill()` gives a new process at the same address."""

    folder: Path
    port: int
    options: tuple[str, ...]
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """As `kill -9` does it, paused or not."""
        self.process.kill()
        self.process.wait()

    def start(self) -> None:
        """Raises: RuntimeError with what it said when it does not start."""
        self.process = _started(self.folder, self.port, self.options)


@contextlib.contextmanager
def running_redis(folder: Path, *options: str) -> Iterator[RunningRedis]:
    """On a free port of this machine only. It keeps nothing over a restart, unless `options` say so."""
    port = _free_port()
    redis = RunningRedis(folder, port, options, _started(folder, port, options))
    try:
        yield redis
    finally:
        redis.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _started(folder: Path, port: int, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
    program = shutil.which("redis-server", path="/usr/local/bin:/usr/bin:/usr/local/sbin:/usr/sbin")
    if program is None:
        raise RuntimeError("redis-server is missing; scripts/test installs it (apt-get install redis-server)")
    log = folder / "redis.log"
    plain = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", "", "--appendonly", "no"]
    with log.open("ab") as said:
        process = subprocess.Popen([program, *plain, *options], stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    deadline = time.monotonic() + START_SECONDS
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise RuntimeError(f"redis-server does not start: {log.read_text('utf-8', 'replace')[-2000:]}")
        time.sleep(0.01)
    return process


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False
