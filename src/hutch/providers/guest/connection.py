"""One connection to the guest init: packets with descriptors, on the running event loop.

Raw non-blocking sockets, because a command's latency is made here: no streams, no buffers, one callback per packet.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from hutch.model.errors import SandboxUnavailable

MAX_SOCKET_PATH_BYTES = 107  # what a Unix address holds
SMALL_ANSWER_BYTES = 4096  # every answer but a list fits
CONNECT_SECONDS = 5.0
_MAX_DESCRIPTORS = 4
_ANCILLARY_BYTES = socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize)

Packet = tuple[bytes, list[int]]


class GuestGone(Exception):
    """The other side of the connection has ended. Never leaves this package."""


class Connection:
    """A connected SEQPACKET socket. Its owner sets `on_readable`; readable while it is unset, the socket has ended."""

    __slots__ = ("_loop", "_socket", "on_readable", "prepared")

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        self._loop = loop
        self._socket = connected
        self.on_readable: Callable[[], None] | None = None
        self.prepared = False  # a shell was asked for on it, ahead of a command
        loop.add_reader(connected.fileno(), self._readable)

    def _readable(self) -> None:
        if self.on_readable is None:
            self.close()
        else:
            self.on_readable()

    @property
    def open(self) -> bool:
        return self._socket.fileno() >= 0

    def quiet(self) -> bool:
        """Whether nothing has arrived, not even the end: only then may the next request go out on it."""
        if not self.open:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Also ends what was spawned on it. Twice is fine."""
        if self.open:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def send(self, packet: bytes, descriptors: Sequence[int] = ()) -> None:
        """Raises: GuestGone; SandboxUnavailable when the guest does not read its requests."""
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            self._socket.sendmsg([packet], ancillary, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            raise SandboxUnavailable("The sandbox's init does not take requests any more.") from None
        except OSError as failure:
            raise GuestGone from failure

    def receive_now(self, max_bytes: int) -> Packet | None:
        """The next packet, or None when there is none yet.

        Raises: GuestGone; SandboxUnavailable for a packet that is longer than an answer may be.
        """
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(max_bytes, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return None
        except OSError as failure:
            raise GuestGone from failure
        descriptors = _descriptors(ancillary) if ancillary else []
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            close_all(descriptors)
            raise SandboxUnavailable("The sandbox's init sent more than an answer may hold.")
        if not data:
            close_all(descriptors)
            raise GuestGone
        return data, descriptors

    async def receive(self, max_bytes: int = SMALL_ANSWER_BYTES, *, seconds: float) -> Packet:
        """The next packet.

        Raises: GuestGone; SandboxUnavailable also when nothing came for `seconds`.
        """
        future: asyncio.Future[Packet] = self._loop.create_future()

        def readable() -> None:
            self._deliver(future, max_bytes)

        self.on_readable = readable
        timer = self._loop.call_later(seconds, _too_late, future)
        try:
            return await future
        except asyncio.CancelledError:
            _drop_unseen(future)
            raise
        finally:
            timer.cancel()
            self.on_readable = None

    def _deliver(self, future: asyncio.Future[Packet], max_bytes: int) -> None:
        if future.done():  # a second packet before the task ran: it stays in the socket, and wakes the next reader
            return
        try:
            packet = self.receive_now(max_bytes)
        except (GuestGone, SandboxUnavailable) as failure:
            future.set_exception(failure)
        else:
            if packet is not None:
                future.set_result(packet)


def _too_late(future: asyncio.Future[Packet]) -> None:
    if not future.done():
        future.set_exception(SandboxUnavailable("The sandbox's init did not answer in time. Try again, or restart it."))


def _drop_unseen(future: asyncio.Future[Packet]) -> None:
    """A packet that came in the moment its reader was cancelled: its descriptors are nobody's."""
    if future.done() and not future.cancelled() and future.exception() is None:
        close_all(future.result()[1])


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


def close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def open_now(path: Path) -> Connection | None:
    """A connection, if it can be had without waiting."""
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        _connect_now(connecting, path)
    except OSError:
        connecting.close()
        return None
    return Connection(asyncio.get_running_loop(), connecting)


async def open_connection(path: Path) -> Connection:
    """Connect to the guest that listens at `path`.

    Raises: SandboxUnavailable.
    """
    loop = asyncio.get_running_loop()
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        await _connect(loop, connecting, path)
        return Connection(loop, connecting)
    except BaseException:
        connecting.close()
        raise


async def _connect(loop: asyncio.AbstractEventLoop, connecting: socket.socket, path: Path) -> None:
    """A Unix connect never waits: it is made, or refused because the queue is full, which passes."""
    deadline = loop.time() + CONNECT_SECONDS
    pause = 0.001
    while True:
        try:
            return _connect_now(connecting, path)
        except BlockingIOError:
            if loop.time() > deadline:
                raise SandboxUnavailable("The sandbox's init takes no connections: too many calls at once.") from None
        except OSError as failure:
            raise SandboxUnavailable(
                f"The sandbox cannot be reached ({failure.strerror}): it has just ended. Try again."
            ) from failure
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.05)


def _connect_now(connecting: socket.socket, path: Path) -> None:
    address = os.fsencode(path)
    if len(address) <= MAX_SOCKET_PATH_BYTES:
        connecting.connect(address)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)  # a long path is reached from its folder
    try:
        connecting.connect(b"/proc/self/fd/%d/%s" % (folder, os.fsencode(path.name)))
    finally:
        os.close(folder)
