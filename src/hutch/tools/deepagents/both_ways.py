"""The plain methods of a backend over its coroutines; both do their work on the loop that belongs to the client.

A backend lives as long as its agent and is called from any number of loops, of which none closes connections for it.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from deepagents.backends.protocol import (
    BackendProtocol,
    DeleteResult,
    EditResult,
    FileDownloadResponse,
    FileUploadResponse,
    GlobResult,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)

from hutch.client.portal import LoopThread

P = ParamSpec("P")
T = TypeVar("T")


class BothWays(BackendProtocol):
    _loop_thread: LoopThread

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop_thread.run(coroutine, contextvars.copy_context())

    async def _there(self, act: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._loop_thread.call(act, *args, **kwargs)

    def ls(self, path: str) -> LsResult:
        return self._wait(self.als(path))

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return self._wait(self.aread(file_path, offset, limit))

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        return self._wait(self.agrep(pattern, path, glob, max_count=max_count))

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        return self._wait(self.aglob(pattern, path))

    def write(self, file_path: str, content: str) -> WriteResult:
        return self._wait(self.awrite(file_path, content))

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        return self._wait(self.aedit(file_path, old_string, new_string, replace_all))

    def delete(self, file_path: str) -> DeleteResult:
        return self._wait(self.adelete(file_path))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return self._wait(self.aupload_files(files))

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return self._wait(self.adownload_files(paths))
