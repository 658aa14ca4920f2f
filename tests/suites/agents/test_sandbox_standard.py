"""langchain-tests' standard suite for sandboxes: in /tmp, as it stands; in the workspace; in one on a server.

The first is served by commands in the sandbox, the others by its files: all ways give the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_tests.integration_tests import SandboxIntegrationTests

from hutch import AsyncSandboxClient
from hutch.settings import Settings
from hutch.tools.deepagents import HutchSandbox
from tests.client_rig import client_of
from tests.server_rig import served

OVERWRITES = "deepagents 0.7 overwrites a file that exists; the suite still wants a refusal"
ABSOLUTE = (
    "since 0.7.10 deepagents wants absolute paths of regular files; the suite still wants relative ones, and folders"
)
# The suite asserts what deepagents' contract was before; the contract of today is kept.
OLDER_CONTRACT = {
    "test_write_existing_file_fails": OVERWRITES,
    "test_glob": ABSOLUTE,
    "test_glob_basic_pattern": ABSOLUTE,
    "test_glob_with_directories": ABSOLUTE,
    "test_glob_hidden_files_explicitly": ABSOLUTE,
    "test_glob_with_character_class": ABSOLUTE,
    "test_glob_with_question_mark": ABSOLUTE,
}


def expected_to_fail(name: str, reason: str) -> Callable[..., None]:
    standard = getattr(SandboxIntegrationTests, name)

    def again(self: Any, sandbox_backend: SandboxBackendProtocol, sandbox_test_root: str) -> None:
        standard(self, sandbox_backend, sandbox_test_root)

    marked: Callable[..., None] = pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True)(again)
    return marked


class Standard(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxBackendProtocol]:
        with client_of(tmp_path_factory.mktemp("data")) as client:
            yield HutchSandbox(client)


for name, reason in OLDER_CONTRACT.items():
    setattr(Standard, name, expected_to_fail(name, reason))


class TestAnywhere(Standard):
    pass


class TestInTheWorkspace(Standard):
    @property
    def sandbox_root_dir(self) -> str:
        return "/workspace/test_sandbox_ops/"


class TestOnAServer(TestInTheWorkspace):
    @pytest.fixture(scope="class")
    def sandbox(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxBackendProtocol]:
        with served(Settings(data_dir=tmp_path_factory.mktemp("data"))) as server:
            client = AsyncSandboxClient("remote", server.url, api_key=server.key, policy="open")
            yield HutchSandbox(client, user_id="tester", thread_id="standard")
            client.loop_thread.run(client.aclose())
