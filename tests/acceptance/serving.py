"""`hutch serve` as its users start it, on a port of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.proxies import free_port

WAIT = 30.0


@contextmanager
def serving(data_dir: Path, **variables: str) -> Iterator[int]:
    """Its port. It has ended, in order, when this has."""
    port = free_port()
    carried = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    environ = {**carried, "HUTCH_DATA_DIR": str(data_dir), **variables}
    command = [sys.executable, "-m", "hutch", "serve", "--port", str(port), "--preview-port", "0"]
    program = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    assert program.stderr is not None
    for line in program.stderr:
        said.append(line)
        if f":{port}" in line:
            break
    reader = threading.Thread(target=said.extend, args=(program.stderr,))
    reader.start()
    try:
        assert program.poll() is None, "".join(said)
        yield port
    finally:
        program.send_signal(signal.SIGTERM)
        try:
            program.wait(WAIT)
        finally:
            program.kill()
            reader.join()
            program.stderr.close()
    assert program.returncode == 0, "".join(said)
