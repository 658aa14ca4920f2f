"""Files outside /workspace, which `client.files` does not serve: by deepagents' own scripts, run in the sandbox."""

from __future__ import annotations

from deepagents.backends.protocol import (
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import HutchError, SessionExpiredError
from hutch.tools.any_path import read_anywhere, write_anywhere
from hutch.tools.deepagents.words import error_word, utf8_path


class ShellFiles(BaseSandbox):
    """Everything is derived from commands; only whole files are carried by `any_path`."""

    def __init__(self, client: AsyncSandboxClient, excluded: tuple[str, ...] = (".git",)) -> None:
        self._client = client
        self.grep_exclude_dirs = excluded

    @property
    def id(self) -> str:
        return self._client.thread_id or ""

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Raises: SessionExpiredError, HutchError."""
        result = await self._client.execute(command, timeout, False)
        return ExecuteResponse(output=result["stdout"], exit_code=result["exit_code"], truncated=result["truncated"])

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return self._client.loop_thread.run(self.aexecute(command, timeout=timeout))

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=await self._upload(path, data)) for path, data in files]

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return self._client.loop_thread.run(self.aupload_files(files))

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [await self._download(path) for path in paths]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return self._client.loop_thread.run(self.adownload_files(paths))

    async def _upload(self, path: str, data: bytes) -> str | None:
        if not _absolute(path):
            return "invalid_path"
        try:
            await write_anywhere(self._client, path, data)
        except SessionExpiredError:
            raise
        except (HutchError, OSError) as error:
            return error_word(error)
        return None

    async def _download(self, path: str) -> FileDownloadResponse:
        if not _absolute(path):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            return FileDownloadResponse(path=path, content=await read_anywhere(self._client, path))
        except SessionExpiredError:
            raise
        except (HutchError, OSError) as error:
            return FileDownloadResponse(path=path, error=error_word(error))


def _absolute(path: object) -> bool:
    return isinstance(path, str) and path.startswith("/") and utf8_path(path)
