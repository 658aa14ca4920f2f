"""What the tests of the client stand on: an engine over the fake provider in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hutch.engine.assemble import Engine, assemble
from hutch.engine.homes import HOMES, EngineHome
from hutch.settings import Settings
from hutch.testing.fake_provider import FakeProvider
from tests.unit.engine_stage import settings


@contextmanager
def fake_home(folder: Path, provider: FakeProvider | None = None, **changes: Any) -> Iterator[FakeProvider]:
    """Clients with `data_dir=folder` use this provider until the end of the block."""
    used = provider or FakeProvider()

    async def make(wanted: Settings) -> Engine:
        return await assemble(wanted, used)

    home = EngineHome(settings(folder, **changes), make)
    HOMES.use(home)
    try:
        yield used
    finally:
        home.close()
