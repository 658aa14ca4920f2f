"""Each test has a data folder of its own, whose sandboxes end with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hutch.client.async_client import AsyncSandboxClient
from tests.client_rig import settings_of


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # where the Agents SDK puts its snapshots
    with settings_of(tmp_path / "data"):
        yield tmp_path / "data"


@pytest.fixture(scope="session")
def shared_data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all tests that run Python by `client.code`: its packages are installed once for each data folder."""
    place = tmp_path_factory.mktemp("shared") / "data"
    with settings_of(place):
        yield place


@pytest.fixture
def client(data_dir: Path) -> AsyncSandboxClient:
    return AsyncSandboxClient(policy="open")
