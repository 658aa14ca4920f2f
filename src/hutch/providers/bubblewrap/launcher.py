"""The owner's side of hutch-launch: one process per provider that starts sandboxes and dies with this process."""

from __future__ import annotations

import array
import os
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hutch.model.errors import SandboxUnavailable

ANSWER_SECONDS = 10.0
MAX_PACKET_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class Launched:
    pid: int
    pidfd: int  # readable when the process has ended; the receiver closes it


class Launcher:
    """Thread-safe. `inherit_environment` is for tests of the wall that keeps it empty."""

    def __init__(self, binary: Path, *, inherit_environment: bool = False) -> None:
        self._binary = binary
        self._inherit = inherit_environment
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = -1

    def launch(self, plan: bytes, descriptors: Sequence[int]) -> Launched:
        """Start a process by a plan. That it started says nothing of how far it comes: watch its pidfd.

        Raises: SandboxUnavailable.
        """
        if len(plan) > MAX_PACKET_BYTES:
            raise SandboxUnavailable("A sandbox's start-up plan is too long: use a data folder with a shorter path.")
        with self._lock:
            try:
                return self._ask(self._connected(), plan, descriptors)
            except (OSError, EOFError):
                self._drop()  # it was ended by somebody: one new one is worth a try
            try:
                return self._ask(self._connected(), plan, descriptors)
            except (OSError, EOFError) as failure:
                self._drop()
                raise SandboxUnavailable(f"The launcher {self._binary} ended at once ({failure}). Try again.") from None

    def _ask(self, connected: socket.socket, plan: bytes, descriptors: Sequence[int]) -> Launched:
        rights = array.array("i", descriptors)
        connected.sendmsg([plan], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], socket.MSG_NOSIGNAL)
        data, received, _, _ = socket.recv_fds(connected, 4, 1)
        if len(data) != 4:
            raise EOFError("no answer")
        (pid,) = struct.unpack("<i", data)
        if pid < 0:
            raise SandboxUnavailable(f"The launcher cannot start a process: {os.strerror(-pid)}.")
        if len(received) != 1:
            raise EOFError("no descriptor in the answer")
        return Launched(pid, received[0])

    def _connected(self) -> socket.socket:
        if self._socket is not None and self._owner == os.getpid():
            return self._socket
        self._socket = None  # after a fork the launcher is the parent's
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(ANSWER_SECONDS)
        owner = os.pidfd_open(os.getpid())
        try:
            self._process = subprocess.Popen(
                [str(self._binary), str(theirs.fileno()), str(owner)],
                executable=self._binary,
                pass_fds=(theirs.fileno(), owner),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=None if self._inherit else {},
                cwd="/",
            )
        except OSError as failure:
            ours.close()
            raise SandboxUnavailable(f"Cannot start {self._binary}: {failure.strerror}.") from failure
        finally:
            theirs.close()
            os.close(owner)
        self._socket, self._owner = ours, os.getpid()
        return ours

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None and self._owner == os.getpid():
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._process = None

    def close(self) -> None:
        """End the launcher, and with it every process it started."""
        with self._lock:
            self._drop()
