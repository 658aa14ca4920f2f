"""Sandboxes for deepagents-code: `dcode --sandbox hutch`, found by its entry point for sandbox providers."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from deepagents.backends.protocol import SandboxBackendProtocol
from deepagents_code.integrations.sandbox_provider import (
    SandboxInstallHint,
    SandboxNotFoundError,
    SandboxProvider,
    SandboxProviderMetadata,
)

from hutch.client.sync_client import SandboxClient
from hutch.model.errors import NoActiveSession
from hutch.model.session import WORKSPACE_DIR
from hutch.tools.deepagents.sandbox import HutchSandbox

USER = "dcode"
T = TypeVar("T")


class HutchProvider(SandboxProvider):
    """A sandbox is named by its thread. Parameters (`[sandboxes.providers.hutch.params]`): `server_url`, `api_key`,
    `timeout` (seconds a command may take by default), `timeout_minutes` (idle minutes until a sandbox goes).
    """

    def __init__(self) -> None:
        self._server: dict[str, Any] = {}  # where the last one was made: `delete` is told its id only

    @property
    def metadata(self) -> SandboxProviderMetadata:
        return SandboxProviderMetadata(
            name="hutch",
            working_dir=WORKSPACE_DIR,
            install=SandboxInstallHint(kind="package", name="hutch[deepagents]"),
        )

    def get_or_create(
        self,
        *,
        sandbox_id: str | None = None,
        server_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        timeout_minutes: float | None = None,
        **kwargs: Any,
    ) -> SandboxBackendProtocol:
        """Raises: TypeError, SandboxNotFoundError, HutchError."""
        if kwargs:
            raise TypeError(f"Sandboxes of hutch take no {', '.join(sorted(kwargs))}.")
        self._server = {"server_url": server_url, "api_key": api_key}

        def make() -> SandboxBackendProtocol:
            client = _client(**self._server)
            if sandbox_id is not None:
                _find(client, sandbox_id)
            thread_id = sandbox_id or f"dcode-{uuid.uuid4().hex[:12]}"
            client.get_or_create_session(USER, thread_id, timeout_minutes)
            return HutchSandbox(
                client, user_id=USER, thread_id=thread_id, timeout=timeout, timeout_minutes=timeout_minutes
            )

        return _in_thread(make)

    def delete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        """One that is gone already is no error."""

        def remove() -> None:
            client = _client(**self._server)
            client.thread_id = sandbox_id
            client.close_session()

        _in_thread(remove)


def _in_thread(work: Callable[[], T]) -> T:
    """Called on an event loop that forbids blocking calls, where even the current folder may not be asked for."""
    with ThreadPoolExecutor(1, "hutch-dcode") as pool:
        return pool.submit(work).result()


def _client(server_url: str | None = None, api_key: str | None = None) -> SandboxClient:
    if server_url is None:
        return SandboxClient(policy="open")
    return SandboxClient("remote", server_url, api_key=api_key, policy="open")


def _find(client: SandboxClient, sandbox_id: str) -> None:
    """Raises: SandboxNotFoundError."""
    client.thread_id = sandbox_id
    try:
        client.info()
    except NoActiveSession:
        raise SandboxNotFoundError(f"There is no sandbox {sandbox_id!r} (any more).") from None
