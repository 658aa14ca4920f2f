"""What the tests of the engine stand on: an engine over the fake provider, and short ways to use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hutch.engine.assemble import Engine, assemble
from hutch.engine.files import WriteRequest
from hutch.engine.live import LiveSandbox
from hutch.engine.sessions import SessionRequest
from hutch.model.process import ExecResult, ProcessSpec
from hutch.settings import Settings
from hutch.testing.fake_machine import FakeMachine
from hutch.testing.fake_provider import FakeProvider

HANG = 10.0
TENANT = "local"


def settings(folder: Path, **changes: Any) -> Settings:
    """Quick looks by the sweeper; everything else as it comes."""
    return Settings(**{"data_dir": folder, "cleanup_interval": 0.1, **changes})


@dataclass(slots=True)
class Stage:
    engine: Engine
    provider: FakeProvider

    async def session(self, thread: str = "t", user: str = "u", **more: Any) -> str:
        """The sandbox of a thread; of template `open` unless said otherwise: there `sleep` is no refused word."""
        request = SessionRequest(TENANT, user, thread, **{"template": "open", **more})
        return (await self.engine.sessions.get_or_create(request))[1]

    async def run(self, sandbox: str, command: str, timeout: float = 10.0, **more: Any) -> ExecResult:
        spec = ProcessSpec(command=command, timeout=timeout, **more)
        return await self.engine.processes.execute(TENANT, sandbox, spec)

    async def start(self, sandbox: str, command: str, **more: Any) -> str:
        info = await self.engine.processes.start(TENANT, sandbox, ProcessSpec(command=command, **more))
        return info["process_id"]

    async def write(self, sandbox: str, path: str, data: bytes, *, size_known: bool = True) -> None:
        request = WriteRequest(path, len(data) if size_known else None)
        await self.engine.files.write(TENANT, sandbox, request, pieces(data))

    async def read(self, sandbox: str, path: str, **more: Any) -> bytes:
        return b"".join([piece async for piece in self.engine.files.read(TENANT, sandbox, path, **more)])

    def live(self, sandbox: str) -> LiveSandbox:
        return self.engine.sandboxes.live[sandbox]

    def machine(self, sandbox: str) -> FakeMachine:
        return self.provider.machine(sandbox)

    def folders(self) -> list[str]:
        return sorted(path.name for path in (self.engine.settings.data_dir / "sandboxes").iterdir())


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 65536):
        yield data[start : start + 65536]


@asynccontextmanager
async def staged(folder: Path, provider: FakeProvider | None = None, **changes: Any) -> AsyncIterator[Stage]:
    provider = provider or FakeProvider()
    engine = await assemble(settings(folder, **changes), provider)
    try:
        yield Stage(engine, provider)
    finally:
        await engine.aclose()


def play(
    folder: Path,
    body: Callable[[Stage], Awaitable[None]],
    provider: FakeProvider | None = None,
    **changes: Any,
) -> None:
    """Run `body` with an engine on `folder`, in a loop of its own."""

    async def run() -> None:
        async with asyncio.timeout(HANG), staged(folder, provider, **changes) as stage:
            await body(stage)

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what a background task does; the test's own bound ends what never comes."""
    while not condition():
        await asyncio.sleep(0.01)
