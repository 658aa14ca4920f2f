"""Drives of `mode="local"`: of the engine in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from hutch.client.transport_drive import GrepOrder, Range
from hutch.engine.assemble import Engine
from hutch.engine.drive.embedding import ObjectEmbedder
from hutch.engine.drive.grep import Wanted
from hutch.engine.homes import EngineHome
from hutch.engine.loop import closing_items
from hutch.model.drive import (
    DriveEdit,
    DriveEntry,
    DriveFile,
    DriveHits,
    DriveMatches,
    DriveUsage,
    DriveVersion,
    PlacedFile,
)

T = TypeVar("T")


class InProcessDrive:
    """Implements `DriveTransport`."""

    def __init__(self, home: EngineHome, tenant: str, embedder: ObjectEmbedder | None = None) -> None:
        self._home = home
        self._tenant = tenant
        self._embedder = embedder

    async def _do(self, act: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        return await self._home.do(lambda engine: act(self._told(engine)))

    def _told(self, engine: Engine) -> Engine:
        if self._embedder is not None:
            engine.drive.indexer.use(self._embedder)
        return engine

    async def read(self, user_id: str, path: str, part: Range) -> AsyncIterator[bytes]:
        items = self._home.each(
            lambda engine: engine.drive.files.read(
                self._tenant, user_id, path, offset=part.offset, length=part.length, version=part.version
            )
        )
        async with closing_items(items):
            async for piece in items:
                yield piece

    async def write(self, user_id: str, path: str, data: AsyncIterator[bytes], *, overwrite: bool) -> DriveFile:
        return await self._do(
            lambda engine: engine.drive.files.write(self._tenant, user_id, path, data, overwrite=overwrite)
        )

    async def edit(self, user_id: str, path: str, old: str, new: str, *, replace_all: bool) -> DriveEdit:
        return await self._do(
            lambda engine: engine.drive.files.edit(self._tenant, user_id, path, old, new, replace_all=replace_all)
        )

    async def ls(self, user_id: str, path: str, *, recursive: bool) -> list[DriveEntry]:
        return await self._do(lambda engine: engine.drive.files.ls(self._tenant, user_id, path, recursive=recursive))

    async def glob(self, user_id: str, pattern: str, path: str) -> list[DriveEntry]:
        return await self._do(lambda engine: engine.drive.files.glob(self._tenant, user_id, pattern, path))

    async def grep(self, user_id: str, order: GrepOrder) -> DriveMatches:
        wanted = Wanted(order.pattern, order.regex, order.ignore_case, order.glob, order.max_matches)
        return await self._do(lambda engine: engine.drive.grep.grep(self._tenant, user_id, wanted, order.path))

    async def stat(self, user_id: str, path: str) -> DriveEntry:
        return await self._do(lambda engine: engine.drive.files.stat(self._tenant, user_id, path))

    async def move(self, user_id: str, source: str, target: str, *, overwrite: bool) -> None:
        await self._do(
            lambda engine: engine.drive.files.move(self._tenant, user_id, source, target, overwrite=overwrite)
        )

    async def delete(self, user_id: str, path: str, *, recursive: bool) -> None:
        await self._do(lambda engine: engine.drive.files.delete(self._tenant, user_id, path, recursive=recursive))

    async def versions(self, user_id: str, path: str) -> list[DriveVersion]:
        return await self._do(lambda engine: engine.drive.files.versions(self._tenant, user_id, path))

    async def undo(self, user_id: str, path: str) -> DriveFile:
        return await self._do(lambda engine: engine.drive.files.undo(self._tenant, user_id, path))

    async def search(self, user_id: str, query: str, path: str, limit: int) -> DriveHits:
        return await self._do(
            lambda engine: engine.drive.search.search(self._tenant, user_id, query, path=path, limit=limit)
        )

    async def usage(self, user_id: str) -> DriveUsage:
        return await self._do(lambda engine: engine.drive.files.usage(self._tenant, user_id))

    async def place(self, sandbox_id: str, user_id: str, paths: Sequence[str]) -> list[PlacedFile]:
        return await self._do(lambda engine: engine.placing.place(self._tenant, sandbox_id, user_id, paths))

    async def place_bytes(self, sandbox_id: str, files: Sequence[tuple[str, bytes]]) -> list[PlacedFile]:
        return await self._do(lambda engine: engine.placing.place_bytes(self._tenant, sandbox_id, files))

    async def save(self, sandbox_id: str, user_id: str, filename: str, path: str) -> DriveFile:
        return await self._do(lambda engine: engine.placing.save(self._tenant, sandbox_id, user_id, filename, path))
