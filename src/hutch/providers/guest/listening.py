"""A port of the sandbox's loopback that this process answers: the listening socket was made inside, and handed out."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from hutch.model.errors import SandboxUnavailable
from hutch.providers.base import Listener
from hutch.providers.guest.streams import GuestStream

_NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE = 0.2  # before another try, when this process has no room for one more connection


class GuestListener(Listener):
    """Takes over `descriptor`."""

    def __init__(self, descriptor: int, port: int, ended: Callable[[GuestListener], None]) -> None:
        """Raises: SandboxUnavailable when the guest handed out anything but what was asked for."""
        try:
            self._socket = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            raise _no_listener() from None
        if not _listens(self._socket, port):
            self._socket.close()
            raise _no_listener()
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._ended = ended
        self.port = port

    async def accept(self) -> GuestStream:
        while True:
            try:
                connected, _ = self._socket.accept()
            except BlockingIOError:
                await self._readable()
            except OSError as failure:
                if self._socket.fileno() < 0:
                    raise SandboxUnavailable("This port of the sandbox is not listened on any more.") from failure
                # The peer may have gone again already; and who has no room now may have some soon.
                await asyncio.sleep(_PAUSE if failure.errno in _NO_DESCRIPTORS else 0)
            else:
                return GuestStream(connected.detach())

    async def _readable(self) -> None:
        """Raises: SandboxUnavailable when it is closed meanwhile."""
        waiting = self._waiting = self._loop.create_future()
        self._loop.add_reader(self._socket.fileno(), _done, waiting)
        try:
            await waiting
        finally:
            self._waiting = None
            if self._socket.fileno() >= 0:
                self._loop.remove_reader(self._socket.fileno())

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        """Twice is fine. An open socket would keep the network of an ended sandbox alive."""
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(SandboxUnavailable("The sandbox, or this port of it, was closed."))
        self._ended(self)


def _listens(found: socket.socket, port: int) -> bool:
    try:
        return (
            (found.family, found.type) == (socket.AF_INET, socket.SOCK_STREAM)
            and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
            and found.getsockname() == ("127.0.0.1", port)
        )
    except OSError:
        return False


def _done(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _no_listener() -> SandboxUnavailable:
    return SandboxUnavailable("The sandbox's init handed out something that does not listen on the port asked for.")
