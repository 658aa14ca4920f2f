"""The client's seam towards drives. Users are named by their id; the tenant is the transport's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

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


@dataclass(frozen=True, slots=True)
class Range:
    offset: int = 0
    length: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class GrepOrder:
    pattern: str
    path: str = "/"
    regex: bool = False
    ignore_case: bool = False
    glob: str | None = None
    max_matches: int = 1_000


class DriveTransport(Protocol):
    def read(self, user_id: str, path: str, part: Range) -> AsyncIterator[bytes]: ...

    async def write(self, user_id: str, path: str, data: AsyncIterator[bytes], *, overwrite: bool) -> DriveFile: ...

    async def edit(self, user_id: str, path: str, old: str, new: str, *, replace_all: bool) -> DriveEdit: ...

    async def ls(self, user_id: str, path: str, *, recursive: bool) -> list[DriveEntry]: ...

    async def glob(self, user_id: str, pattern: str, path: str) -> list[DriveEntry]: ...

    async def grep(self, user_id: str, order: GrepOrder) -> DriveMatches: ...

    async def stat(self, user_id: str, path: str) -> DriveEntry: ...

    async def move(self, user_id: str, source: str, target: str, *, overwrite: bool) -> None: ...

    async def delete(self, user_id: str, path: str, *, recursive: bool) -> None: ...

    async def versions(self, user_id: str, path: str) -> list[DriveVersion]: ...

    async def undo(self, user_id: str, path: str) -> DriveFile: ...

    async def search(self, user_id: str, query: str, path: str, limit: int) -> DriveHits: ...

    async def usage(self, user_id: str) -> DriveUsage: ...

    async def place(self, sandbox_id: str, user_id: str, paths: Sequence[str]) -> list[PlacedFile]: ...

    async def place_bytes(self, sandbox_id: str, files: Sequence[tuple[str, bytes]]) -> list[PlacedFile]: ...

    async def save(self, sandbox_id: str, user_id: str, filename: str, path: str) -> DriveFile: ...
