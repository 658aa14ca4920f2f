"""Ports of a sandbox: a byte stream to what listens on its loopback."""

from __future__ import annotations

from hutch.engine.live import LiveSandbox
from hutch.engine.sandboxes import Sandboxes
from hutch.model.errors import InvalidRequest
from hutch.providers.base import ByteStream

__all__ = ["ByteStream", "Ports", "check_port"]


def check_port(port: int) -> None:
    """Raises: InvalidRequest."""
    if not 0 < port < 65536:
        raise InvalidRequest(f"A port is a number from 1 to 65535, not {port}.")


class Ports:
    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes

    async def connect(self, tenant: str, sandbox_id: str, port: int) -> ByteStream:
        """Raises: PortUnreachable, InvalidRequest, SessionExpiredError."""
        check_port(port)
        live = await self._sandboxes.find(tenant, sandbox_id)
        live.touch()
        machine = await self._sandboxes.machine(live)
        return _BusyStream(live, await machine.connect(port))


class _BusyStream(ByteStream):
    """An open connection keeps its sandbox from being put to sleep."""

    def __init__(self, live: LiveSandbox, inner: ByteStream) -> None:
        self._live = live
        self._inner = inner
        self._open = True
        live.busy += 1

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._inner.receive(max_bytes)

    async def send(self, data: bytes) -> None:
        await self._inner.send(data)

    async def send_eof(self) -> None:
        await self._inner.send_eof()

    async def aclose(self) -> None:
        if self._open:
            self._open = False
            self._live.busy -= 1
            self._live.touch()
        await self._inner.aclose()
