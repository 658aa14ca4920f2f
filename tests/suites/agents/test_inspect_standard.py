"""inspect-ai's own checks of a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox.self_check import *  # noqa: F403  # how the package wants them collected

from hutch.tools.inspect_sandbox import HutchSandboxEnvironment
from tests.client_rig import settings_of

ONE_USER = "a sandbox has one user; this check makes a second one, as root"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("data")
    with settings_of(folder):
        yield folder


@pytest_asyncio.fixture
async def sandbox_env(request: pytest.FixtureRequest, data: Path) -> AsyncIterator[SandboxEnvironment]:
    if request.node.originalname == "test_exec_as_user":
        request.node.add_marker(pytest.mark.xfail(reason=ONE_USER, strict=True))
    environments = await HutchSandboxEnvironment.sample_init("check", None, {})
    yield environments["default"]
    await HutchSandboxEnvironment.sample_cleanup("check", None, environments, False)
