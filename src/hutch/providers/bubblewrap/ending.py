"""Ending what a crashed server left: by recorded process, and as root by the sandbox's own uid. Blocks."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

from hutch.model.errors import SandboxUnavailable
from hutch.providers.bubblewrap.record import ProcessId, Record

WAIT_SECONDS = 5.0


def end_processes(found: Record | None, host_uid: int | None) -> None:
    """Raises: SandboxUnavailable when something does not end."""
    for process in (found.init, found.monitor) if found else ():
        if process is not None:
            _end(process)
    if host_uid is not None:
        _end_uid(host_uid)


def _end(process: ProcessId) -> None:
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if not process.alive():
            return
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(WAIT_SECONDS * 1000):
            raise SandboxUnavailable(f"Process {process.pid} does not end. Look for its state in `ps`.")
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def _end_uid(uid: int) -> None:
    """The uid belongs to this sandbox alone, so whatever carries it is a stray of it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while strays := _processes_of(uid):
        for pid in strays:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if time.monotonic() > deadline:
            raise SandboxUnavailable(f"Processes {strays} of uid {uid} do not end. Look for their state in `ps`.")
        time.sleep(0.005)


def _processes_of(uid: int) -> list[int]:
    found: list[int] = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            status = Path(entry.path, "status").read_text(errors="replace")
        except OSError:
            continue
        lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if lines.get("Uid", "").split()[:1] == [str(uid)] and not lines.get("State", "Z").startswith(("Z", "X")):
            found.append(int(entry.name))
    return found
