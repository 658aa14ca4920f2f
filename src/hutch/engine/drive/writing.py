"""Writing content in pieces: what is small goes in with its name, what is large in chunks before it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator

from hutch.model.errors import HutchError, InvalidRequest
from hutch.store.drive.accounts import over_quota
from hutch.store.drive.records import CHUNK_BYTES, NewContent
from hutch.store.drive.store import DriveStore

BUFFERED_CHUNKS = 4


class ContentWriter:
    """Memory stays flat at any size; what is not finished is dropped."""

    def __init__(self, store: DriveStore, owner_id: int, quota: int | None) -> None:
        self._store = store
        self._owner_id = owner_id
        self._quota = quota
        self._buffer = bytearray()
        self._digest = hashlib.sha256()
        self._size = 0
        self._content_id: int | None = None
        self._written = 0  # chunks

    async def take(self, data: AsyncIterator[bytes]) -> NewContent:
        """Raises: LimitExceeded, InvalidRequest, StoreUnavailable, and what `data` raises."""
        async for piece in data:
            if not isinstance(piece, bytes | bytearray | memoryview):
                raise InvalidRequest(f"Pieces of a file are bytes, not {type(piece).__name__}.")
            self._size += len(piece)
            if self._quota is not None and self._size > self._quota:
                raise over_quota(self._quota, self._size)
            view = memoryview(piece).cast("B")
            for start in range(0, len(view), CHUNK_BYTES):
                await self._add(view[start : start + CHUNK_BYTES])
        if self._content_id is None:
            return NewContent(self._size, self._digest.hexdigest(), inline=self._chunks(len(self._buffer)))
        await self._flush(len(self._buffer))
        return NewContent(self._size, self._digest.hexdigest(), self._content_id)

    async def _add(self, piece: memoryview) -> None:
        self._digest.update(piece)
        self._buffer += piece
        if len(self._buffer) > BUFFERED_CHUNKS * CHUNK_BYTES:
            await self._flush(BUFFERED_CHUNKS * CHUNK_BYTES)

    async def _flush(self, size: int) -> None:
        if not size:
            return
        if self._content_id is None:
            self._content_id = await self._store.begin_content(self._owner_id)
        chunks = self._chunks(size)
        await self._store.add_chunks(self._content_id, self._written, chunks)
        self._written += len(chunks)

    def _chunks(self, size: int) -> tuple[bytes, ...]:
        found = tuple(bytes(self._buffer[at : min(at + CHUNK_BYTES, size)]) for at in range(0, size, CHUNK_BYTES))
        del self._buffer[:size]
        return found

    async def drop(self) -> None:
        if self._content_id is not None:
            with contextlib.suppress(HutchError):  # it is found and cleared up later
                await asyncio.shield(self._store.drop_content(self._content_id))
