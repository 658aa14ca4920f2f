"""`client.files`: everything one does with files of the workspace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from hutch.client.transport import Transport, WriteOrder
from hutch.engine.loop import close_items
from hutch.model.errors import HutchError, PathRejected, SandboxFileNotFound
from hutch.model.files import FileEvent, FileInfo, UploadResult
from hutch.model.limits import MIB


class AsyncFiles:
    """Paths are relative to /workspace, or absolute below it."""

    def __init__(self, transport: Transport, sandbox: Callable[[], Awaitable[str]]) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or a range of them. Raises: SandboxFileNotFound, PathRejected, LimitExceeded."""
        pieces = [piece async for piece in self.read_pieces(path, offset=offset, length=length)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read_pieces(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """The same, piece by piece: memory stays flat at any size."""
        items = self._transport.read_file(await self._sandbox(), path, offset=offset, length=length)
        try:
            async for piece in items:
                yield piece
        finally:
            await close_items(items)

    async def write(self, path: str, data: bytes | str, *, mode: int = 0o644, overwrite: bool = True) -> UploadResult:
        """Store a file; it appears whole or not at all. Raises: LimitExceeded, PathRejected, FileConflict."""
        raw = data.encode() if isinstance(data, str) else bytes(data)
        order = WriteOrder(path, len(raw), mode, overwrite)
        return await self._transport.write_file(await self._sandbox(), order, _pieces(raw))

    async def list(self, path: str = ".", *, recursive: bool = False) -> list[FileInfo]:
        """What lies in a folder; with `recursive` also below it. Links are shown, never followed."""
        return await self._transport.list_tree(await self._sandbox(), path, recursive=recursive)

    async def stat(self, path: str) -> FileInfo:
        """Raises: SandboxFileNotFound, PathRejected."""
        return await self._transport.stat(await self._sandbox(), path)

    async def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Raises: FileConflict, SandboxFileNotFound (a parent is missing), LimitExceeded."""
        await self._transport.mkdir(await self._sandbox(), path, parents=parents)

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Raises: SandboxFileNotFound, FileConflict."""
        await self._transport.move(await self._sandbox(), source, target, overwrite=overwrite)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Raises: SandboxFileNotFound, FileConflict (a folder that is not empty)."""
        await self._transport.remove(await self._sandbox(), path, recursive=recursive)

    async def watch(self, path: str = ".", *, recursive: bool = False) -> AsyncIterator[FileEvent]:
        """Changes from now on, until the iterator is closed. Raises: SandboxFileNotFound, NotSupported."""
        items = self._transport.watch(await self._sandbox(), path, recursive=recursive)
        try:
            async for event in items:
                yield event
        finally:
            await close_items(items)


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), MIB):
        yield data[start : start + MIB]


def local_pieces(path: Path) -> tuple[AsyncIterator[bytes], int]:
    """Pieces and size of a file of this machine; a missing one is told now, not at the first piece.

    Raises: SandboxFileNotFound, PathRejected.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise SandboxFileNotFound(f"There is no file {str(path)!r} on this machine.", path=str(path)) from error
    except (OSError, ValueError) as error:
        raise PathRejected(f"{str(path)!r} cannot be read: {error}.", path=str(path)) from error
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular(path)
    return _read_pieces(path, status.st_size), status.st_size


def _not_regular(path: Path) -> PathRejected:
    return PathRejected(f"{str(path)!r} is not a regular file.", path=str(path))


async def _read_pieces(path: Path, size: int) -> AsyncIterator[bytes]:
    """Each visit to a thread costs a tenth of a millisecond: a small file is opened and read in one."""
    descriptor, piece = await asyncio.to_thread(_open_and_read, path)
    try:
        while piece:
            yield piece
            size -= len(piece)
            piece = await asyncio.to_thread(os.read, descriptor, MIB) if size > 0 else b""
    finally:
        os.close(descriptor)


def _open_and_read(path: Path) -> tuple[int, bytes]:
    descriptor = _open_regular(path)
    try:
        return descriptor, os.read(descriptor, MIB)
    except BaseException:
        os.close(descriptor)
        raise


def _open_regular(path: Path) -> int:
    try:
        # O_NONBLOCK: should it have become a FIFO meanwhile, opening it must not hold us up.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise PathRejected(f"{str(path)!r} cannot be read: {error.strerror}.", path=str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return descriptor


async def save_locally(pieces: AsyncIterator[bytes], target: Path) -> None:
    """Write beside `target` and rename, so that a broken download never leaves half a file under its name.

    Raises: PathRejected when it cannot be written here.
    """
    temporary = target.with_name(f".download-{secrets.token_hex(8)}.part")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            async for piece in pieces:
                await asyncio.to_thread(_write_all, descriptor, piece)
        finally:
            os.close(descriptor)
        os.replace(temporary, target)
    except HutchError:  # may be an OSError, too, but of the other side
        raise
    except OSError as error:
        raise PathRejected(f"Cannot write {str(target)!r} on this machine: {error.strerror}.") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
