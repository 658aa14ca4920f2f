"""A bash tool for agents: every call names its user and thread, and finds that thread's session."""

from __future__ import annotations

import os
from typing import Literal

from hutch.client.async_client import AsyncSandboxClient
from hutch.engine.loop import LoopThread
from hutch.model.files import FileListing, UploadResult
from hutch.model.process import ExecResult


class AsyncBashTool:
    """One tool object serves any number of users and threads at once."""

    def __init__(
        self,
        mode: Literal["local", "remote"] = "local",
        server_url: str | None = None,
        *,
        api_key: str | None = None,
        policy: str | os.PathLike[str] | None = None,
    ) -> None:
        self.mode = mode
        self.server_url = server_url
        self._client = AsyncSandboxClient(mode, server_url, api_key=api_key, policy=policy)

    @property
    def loop_thread(self) -> LoopThread:
        """Where plain code runs this tool."""
        return self._client.loop_thread

    async def execute(self, command: str, user_id: str, thread_id: str, timeout: float | None = None) -> ExecResult:
        """Run a command in the thread's sandbox. Raises: as `SandboxClient.execute`."""
        return await self._of(user_id, thread_id).execute(command, timeout)

    async def upload_file(
        self, file_path: str | os.PathLike[str], user_id: str, thread_id: str, remote_name: str | None = None
    ) -> UploadResult:
        """Raises: as `SandboxClient.upload_file`."""
        return await self._of(user_id, thread_id).upload_file(file_path, remote_name)

    async def download_file(
        self, remote_name: str, user_id: str, thread_id: str, local_path: str | os.PathLike[str] | None = None
    ) -> str:
        """Raises: as `SandboxClient.download_file`."""
        return await self._of(user_id, thread_id).download_file(remote_name, local_path)

    async def list_files(self, user_id: str, thread_id: str) -> FileListing:
        """Raises: as `SandboxClient.list_files`."""
        return await self._of(user_id, thread_id).list_files()

    async def cleanup_session(self, thread_id: str | None = None) -> None:
        """End the session of a thread (default: the one this task or thread used last) and delete its files now.

        Without this it goes when it has been idle long enough.
        """
        if thread_id is not None:
            self._client.thread_id = thread_id
        await self._client.close_session()

    async def aclose(self) -> None:
        """Let go of connections. Sessions stay until they are closed or expire."""
        await self._client.aclose()

    def _of(self, user_id: str, thread_id: str) -> AsyncSandboxClient:
        self._client.thread_id = thread_id  # for `cleanup_session`
        return self._client.for_thread(user_id, thread_id)
