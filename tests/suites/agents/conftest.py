"""Each test has a data folder of its own, whose sandboxes end with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hutch.client.async_client import AsyncSandboxClient
from tests.client_rig import settings_of


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    with settings_of(tmp_path / "data"):
        yield tmp_path / "data"


@pytest.fixture
def client(data_dir: Path) -> AsyncSandboxClient:
    return AsyncSandboxClient(policy="open")
