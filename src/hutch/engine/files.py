"""Files of a sandbox, through its own kernel view, within its limits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

from hutch.engine.live import LiveSandbox
from hutch.engine.loop import close_items
from hutch.engine.observe import EventName, Observation, Watchers, about
from hutch.engine.paths import workspace_path
from hutch.engine.sandboxes import Sandboxes
from hutch.engine.upload_room import UploadRoom
from hutch.model.errors import (
    FileConflict,
    HutchError,
    InvalidRequest,
    LimitExceeded,
    PathRejected,
    SandboxFileNotFound,
)
from hutch.model.files import FileEvent, FileInfo, FileListing, UploadResult
from hutch.model.limits import MIB, Limits
from hutch.model.session import WORKSPACE_DIR
from hutch.providers.base import FileWriter, Machine

CHUNK_BYTES = MIB
LIST_SPARE = 10_000  # entries listed beyond the file limit: folders and links count there too


@dataclass(frozen=True, slots=True)
class WriteRequest:
    path: str
    size: int | None  # when it is known beforehand
    mode: int = 0o644
    overwrite: bool = True
    parents: bool = True


class Files:
    def __init__(self, sandboxes: Sandboxes, watchers: Watchers) -> None:
        self._sandboxes = sandboxes
        self._watchers = watchers

    @contextlib.contextmanager
    def _watched(self, tenant: str, sandbox_id: str, failed: EventName, path: str) -> Iterator[None]:
        try:
            yield
        except HutchError as error:
            limit = error.details.get("limit") if isinstance(error, LimitExceeded) else None
            seen = Observation(failed, tenant, sandbox_id, command=path, code=error.code, limit=limit)
            self._watchers.tell(seen)
            if limit is not None:
                self._watchers.tell(replace(seen, event="resource_limit_exceeded"))
            raise

    @contextlib.asynccontextmanager
    async def _using(self, tenant: str, sandbox_id: str) -> AsyncIterator[tuple[LiveSandbox, Machine]]:
        live = await self._sandboxes.find(tenant, sandbox_id)
        live.busy += 1
        live.touch()
        try:
            yield live, await self._sandboxes.machine(live)
        finally:
            live.busy -= 1
            live.touch()

    async def write(
        self, tenant: str, sandbox_id: str, request: WriteRequest, data: AsyncIterator[bytes]
    ) -> UploadResult:
        """Store a file whole: it appears under its name only when all of it was written.

        Raises: LimitExceeded, PathRejected, FileConflict.
        """
        async with contextlib.AsyncExitStack() as ending:
            ending.push_async_callback(close_items, data)  # it may hold a file of the caller open
            ending.enter_context(self._watched(tenant, sandbox_id, "file_upload_failed", request.path))
            path = workspace_path(request.path)
            if not 0 <= request.mode <= 0o777:
                raise InvalidRequest(f"The mode of a file is from 0 to 0o777, not {request.mode:#o}.")
            live, machine = await ending.enter_async_context(self._using(tenant, sandbox_id))
            found = await self._room(live, machine, path, request)
            room = UploadRoom(live.gauge, machine, live.template.limits, found, request.size)
            ending.callback(room.close)
            writer = await machine.open_write(path, mode=request.mode, parents=request.parents)
            try:
                size = await _copy(data, writer, room)
                await writer.commit()
            except BaseException:
                await asyncio.shield(writer.abort())
                raise
            if self._watchers:
                self._watchers.tell(about("file_uploaded", live, command=path, size_bytes=size))
        return {
            "status": "uploaded",
            "filename": path,
            "path": f"{WORKSPACE_DIR}/{path}",
            "size_bytes": size,
        }

    async def _room(self, live: LiveSandbox, machine: Machine, path: str, request: WriteRequest) -> int:
        if request.overwrite and (room := live.gauge.sure_room(machine, request.size)) is not None:
            return room  # the machine itself refuses to write over a folder
        try:
            present = await machine.stat(path)
        except SandboxFileNotFound:
            return await live.gauge.room_for(machine, request.size, new_files=1)
        if present["kind"] == "directory":
            raise PathRejected(f"{path!r} is a folder; a file cannot take its place.", path=path)
        if not request.overwrite:
            raise FileConflict(f"{path!r} exists already and overwrite is off.", path=path)
        return await live.gauge.room_for(machine, request.size, new_files=0)

    async def read(
        self, tenant: str, sandbox_id: str, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes of a regular file, in pieces.

        Raises: SandboxFileNotFound, PathRejected, InvalidRequest, LimitExceeded.
        """
        async with contextlib.AsyncExitStack() as ending:
            ending.enter_context(self._watched(tenant, sandbox_id, "file_download_failed", path))
            clean = workspace_path(path)
            if offset < 0 or (length is not None and length < 0):
                raise InvalidRequest("offset and length must be 0 or more.")
            live, machine = await ending.enter_async_context(self._using(tenant, sandbox_id))
            reader = await machine.open_read(clean, offset)
            try:
                size = left = reader.size - offset if length is None else min(length, reader.size - offset)
                _refuse_sparse(size, live.template.limits, clean)
                while left > 0 and (piece := await reader.read(min(left, CHUNK_BYTES))):
                    left -= len(piece)
                    yield piece
            except (GeneratorExit, asyncio.CancelledError):  # its reader has enough of it
                self._tell_read(live, clean, size - left)
                raise
            else:
                self._tell_read(live, clean, size - left)
            finally:
                await reader.aclose()

    def _tell_read(self, live: LiveSandbox, path: str, size: int) -> None:
        if self._watchers:
            self._watchers.tell(about("file_downloaded", live, command=path, size_bytes=size))

    async def list_files(self, tenant: str, sandbox_id: str) -> FileListing:
        """Regular files at the top of the workspace, newest first."""
        with self._watched(tenant, sandbox_id, "list_files_failed", "."):
            live, entries = await self._top(tenant, sandbox_id)
        files = sorted(
            (entry for entry in entries if entry["kind"] == "file"), key=lambda entry: entry["modified"], reverse=True
        )
        return {
            "session_id": live.session.session_id if live.session is not None else "",
            "workspace_dir": WORKSPACE_DIR,
            "files": [
                {key: entry[key] for key in ("name", "size_bytes", "modified", "permissions")}  # type: ignore[misc]  # a literal subset of FileInfo's keys
                for entry in files
            ],
            "total_files": len(files),
            "total_size_bytes": sum(entry["size_bytes"] for entry in files),
        }

    async def _top(self, tenant: str, sandbox_id: str) -> tuple[LiveSandbox, list[FileInfo]]:
        async with self._using(tenant, sandbox_id) as (live, machine):
            most = live.template.limits.workspace_files + LIST_SPARE
            return live, await machine.list(".", recursive=False, max_entries=most)

    async def list(self, tenant: str, sandbox_id: str, path: str, *, recursive: bool) -> list[FileInfo]:
        clean = workspace_path(path, allow_root=True)
        async with self._using(tenant, sandbox_id) as (live, machine):
            most = live.template.limits.workspace_files + LIST_SPARE
            return await machine.list(clean, recursive=recursive, max_entries=most)

    async def stat(self, tenant: str, sandbox_id: str, path: str) -> FileInfo:
        clean = workspace_path(path, allow_root=True)
        async with self._using(tenant, sandbox_id) as (_, machine):
            return await machine.stat(clean)

    async def mkdir(self, tenant: str, sandbox_id: str, path: str, *, parents: bool) -> None:
        clean = workspace_path(path.rstrip("/") or path)
        async with self._using(tenant, sandbox_id) as (live, machine):
            await live.gauge.room_for(machine, None)
            await machine.mkdir(clean, parents=parents)

    async def move(self, tenant: str, sandbox_id: str, source: str, target: str, *, overwrite: bool) -> None:
        clean_source, clean_target = workspace_path(source), workspace_path(target)
        async with self._using(tenant, sandbox_id) as (_, machine):
            await machine.move(clean_source, clean_target, overwrite=overwrite)

    async def remove(self, tenant: str, sandbox_id: str, path: str, *, recursive: bool) -> None:
        clean = workspace_path(path.rstrip("/") or path)
        async with self._using(tenant, sandbox_id) as (_, machine):
            await machine.remove(clean, recursive=recursive)

    async def watch(self, tenant: str, sandbox_id: str, path: str, *, recursive: bool) -> AsyncIterator[FileEvent]:
        """Changes below `path` from now on, until the iterator is closed."""
        clean = workspace_path(path, allow_root=True)
        async with self._using(tenant, sandbox_id) as (_, machine):
            async for event in machine.watch(clean, recursive=recursive):
                yield event


async def _copy(data: AsyncIterator[bytes], writer: FileWriter, room: UploadRoom) -> int:
    size = 0
    async for piece in data:
        size += len(piece)
        await room.spend(len(piece))
        await writer.write(piece)
    return size


def _refuse_sparse(size: int, limits: Limits, path: str) -> None:
    """A sparse file can claim any size and cost its sandbox nothing; reading it out would fill the reader's disk."""
    if size > limits.workspace_bytes:
        raise LimitExceeded(
            f"{path!r} claims {size} bytes, more than its workspace may hold; read parts of it by offset and length.",
            limit="file_size",
            maximum=limits.workspace_bytes,
            actual=size,
        )
