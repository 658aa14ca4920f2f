"""Files of a sandbox, read and written through descriptors that its init opened."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from hutch.model.errors import InvalidRequest, SandboxFileNotFound, SandboxUnavailable
from hutch.providers.base import FileReader, FileWriter
from hutch.providers.guest.failures import file_error

THREAD_BYTES = 262_144  # larger reads and writes would hold up the event loop
TEMPORARY_PREFIX = ".hutch-"
_Result = TypeVar("_Result")


class NameChanger(Protocol):
    """What a writer needs of its machine."""

    async def move(self, source: str, target: str, *, overwrite: bool) -> None: ...
    async def remove(self, path: str, *, recursive: bool) -> None: ...


def temporary_beside(path: str) -> str:
    """A name in the same folder, which nobody has guessed.

    Raises: PathRejected when `path` names no file.
    """
    folder, name = os.path.split(path)
    if name in ("", ".", ".."):
        raise file_error(errno.EISDIR, path)
    if len(os.fsencode(name)) > 255:
        raise file_error(errno.ENAMETOOLONG, path)
    return os.path.join(folder, TEMPORARY_PREFIX + secrets.token_hex(8))


class _OpenFile:
    """A descriptor that is closed only when no thread uses it: its number could be another file's by then."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path
        self._in_use = 0
        self._closing = False

    def number(self) -> int:
        """Raises: InvalidRequest when it was closed."""
        if self._closing or self._descriptor < 0:
            raise InvalidRequest(f"This file is closed already: {self._path!r}")
        return self._descriptor

    async def in_thread(self, call: Callable[[], _Result]) -> _Result:
        """Cancelling the caller does not stop the thread, so it is not made to look so (`shield`)."""
        self._in_use += 1
        running = asyncio.get_running_loop().run_in_executor(None, call)
        running.add_done_callback(self._thread_done)
        return await asyncio.shield(running)

    def _thread_done(self, finished: asyncio.Future[_Result]) -> None:
        self._in_use -= 1
        if not finished.cancelled():
            finished.exception()  # seen: its caller may have been cancelled
        if self._closing:
            self.close()

    def close(self) -> None:
        """Twice is fine."""
        self._closing = True
        if self._descriptor >= 0 and not self._in_use:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class GuestReader(FileReader):
    def __init__(self, descriptor: int, path: str, offset: int) -> None:
        self._file = _OpenFile(descriptor, path)
        self._path = path
        self._offset = offset
        self.size = os.fstat(descriptor).st_size

    async def read(self, max_bytes: int) -> bytes:
        """Raises: InvalidRequest, SandboxUnavailable."""
        if max_bytes <= 0:
            raise InvalidRequest(f"Read at least one byte, not {max_bytes}.")
        read = partial(os.pread, self._file.number(), max_bytes, self._offset)
        try:
            data = read() if max_bytes <= THREAD_BYTES else await self._file.in_thread(read)
        except OSError as failure:
            raise file_error(failure.errno or 0, self._path) from failure
        self._offset += len(data)
        return data

    async def aclose(self) -> None:
        self._file.close()


class GuestWriter(FileWriter):
    """Writes a file without a name of its own yet; `commit` moves it into place in one step."""

    def __init__(self, machine: NameChanger, descriptor: int, path: str, temporary: str) -> None:
        self._machine = machine
        self._file = _OpenFile(descriptor, path)
        self._path = path
        self._temporary: str | None = temporary

    async def write(self, data: bytes) -> None:
        """Raises: LimitExceeded when the disk is full, InvalidRequest after `commit` or `abort`."""
        write = partial(_write_all, self._file.number(), data)
        try:
            if len(data) <= THREAD_BYTES:
                write()
            else:
                await self._file.in_thread(write)
        except OSError as failure:
            raise file_error(failure.errno or 0, self._path) from failure

    async def commit(self) -> None:
        """Raises: FileConflict, PathRejected, SandboxUnavailable; the name then keeps what it had."""
        self._file.number()
        self._file.close()
        temporary, self._temporary = self._temporary, None
        assert temporary is not None  # cleared only together with the descriptor
        try:
            await self._machine.move(temporary, self._path, overwrite=True)
        except BaseException:
            self._temporary = temporary
            await self.abort()
            raise

    async def abort(self) -> None:
        """Leaves nothing behind. After `commit`, or twice, it does nothing."""
        self._file.close()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            try:
                await self._machine.remove(temporary, recursive=False)
            except (SandboxFileNotFound, SandboxUnavailable):
                pass  # gone already, or gone with its sandbox


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
