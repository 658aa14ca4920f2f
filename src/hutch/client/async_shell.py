"""What stays open: a shell on a terminal, a connection to a port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType

from hutch.client.transport import Connection, Transport
from hutch.engine.loop import close_items
from hutch.model.process import ExecResult, ProcessSpec


class AsyncShell:
    """A living bash on a terminal of its own."""

    def __init__(self, transport: Transport, sandbox_id: str, process_id: str) -> None:
        self._transport = transport
        self._sandbox_id = sandbox_id
        self._process_id = process_id

    @classmethod
    async def open(cls, transport: Transport, sandbox_id: str, rows: int, columns: int, cwd: str | None) -> AsyncShell:
        info = await transport.start(sandbox_id, ProcessSpec(pty=(rows, columns), cwd=cwd, tag="shell"))
        return cls(transport, sandbox_id, info["process_id"])

    @property
    def process_id(self) -> str:
        """Also good for `attach`, `logs` and `kill`."""
        return self._process_id

    async def send(self, data: bytes | str) -> None:
        """Type. Raises: ProcessEnded."""
        raw = data.encode() if isinstance(data, str) else data
        await self._transport.send_input(self._sandbox_id, self._process_id, raw)

    async def output(self, *, replay: bool = True) -> AsyncIterator[bytes]:
        """What the terminal shows, as raw bytes, until the shell ends."""
        items = self._transport.attach(self._sandbox_id, self._process_id, replay=replay)
        try:
            async for event in items:
                if event["data"]:
                    yield event["data"]
        finally:
            await close_items(items)

    async def resize(self, rows: int, columns: int) -> None:
        """Raises: ProcessEnded, InvalidRequest."""
        await self._transport.resize(self._sandbox_id, self._process_id, rows, columns)

    async def wait(self, timeout: float | None = None) -> ExecResult | None:
        """Its end, or None when it still runs after `timeout` seconds."""
        return await self._transport.wait(self._sandbox_id, self._process_id, timeout)

    async def aclose(self) -> None:
        """End the shell and all it started."""
        await self._transport.kill(self._sandbox_id, self._process_id)

    async def __aenter__(self) -> AsyncShell:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncConnection:
    """A byte stream to a port of the sandbox."""

    def __init__(self, stream: Connection) -> None:
        self._stream = stream

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Next bytes; empty at the end."""
        return await self._stream.receive(max_bytes)

    async def send(self, data: bytes) -> None:
        """Raises: PortUnreachable when the other side is gone."""
        await self._stream.send(data)

    async def send_eof(self) -> None:
        """Nothing more will be sent; receiving goes on."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
