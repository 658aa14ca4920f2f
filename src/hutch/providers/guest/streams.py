"""A connection to a port of the sandbox, as a byte stream on the event loop."""

from __future__ import annotations

import asyncio
import os
import socket

from hutch.model.errors import InvalidRequest, PortUnreachable, SandboxUnavailable
from hutch.providers.base import ByteStream


class GuestStream(ByteStream):
    """Takes over `descriptor`. One task may receive while another sends."""

    def __init__(self, descriptor: int) -> None:
        """Raises: SandboxUnavailable when the guest handed out anything but a TCP socket."""
        try:
            self._socket = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            raise SandboxUnavailable("The sandbox's init handed out something that is no connection.") from None
        stream = self._socket.type == socket.SOCK_STREAM and self._socket.family in (socket.AF_INET, socket.AF_INET6)
        if not stream:
            self._socket.close()
            raise SandboxUnavailable("The sandbox's init handed out something that is no connection.")
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = asyncio.get_running_loop()

    def _open(self) -> socket.socket:
        if self._socket.fileno() < 0:
            raise PortUnreachable("This connection is closed.")
        return self._socket

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Raises: PortUnreachable when the other side broke the connection."""
        if max_bytes <= 0:
            raise InvalidRequest(f"Receive at least one byte, not {max_bytes}.")
        await asyncio.sleep(0)  # what is there already is read without waiting: a flood would have the loop for itself
        try:
            return await self._loop.sock_recv(self._open(), max_bytes)
        except OSError as failure:
            raise _broken(failure) from failure

    async def send(self, data: bytes) -> None:
        """Raises: PortUnreachable when the other side takes no more."""
        try:
            await self._loop.sock_sendall(self._open(), data)
        except OSError as failure:
            raise _broken(failure) from failure

    async def send_eof(self) -> None:
        try:
            self._open().shutdown(socket.SHUT_WR)
        except OSError as failure:
            raise _broken(failure) from failure

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()


def _broken(failure: OSError) -> PortUnreachable:
    if isinstance(failure, PortUnreachable):
        return failure
    return PortUnreachable(f"The connection into the sandbox broke: {failure.strerror}.")
