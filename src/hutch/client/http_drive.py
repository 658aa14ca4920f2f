"""Drives of `mode="remote"`: the same calls, over HTTP to a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from hutch.client.http_calls import Call, Caller, Query, segment, unreachable
from hutch.client.transport_drive import GrepOrder, Range
from hutch.engine.connections import BROKEN
from hutch.engine.loop import close_items
from hutch.engine.parcel import head_of, parcel_of, several
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

FILE_SECONDS = 60.0
_STREAM = {"content-type": "application/octet-stream"}


class HttpDrive:
    """Implements `DriveTransport`."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def _get(self, route: str, query: Query) -> Any:
        return await self._caller.json(Call("GET", f"/v1/drive/{route}", query, seconds=FILE_SECONDS))

    async def _post(self, route: str, user_id: str, body: dict[str, Any]) -> Any:
        call = Call("POST", f"/v1/drive/{route}", {"user_id": user_id}, json=body, seconds=FILE_SECONDS)
        return await self._caller.json(call)

    async def read(self, user_id: str, path: str, part: Range) -> AsyncIterator[bytes]:
        query: Query = {
            "user_id": user_id,
            "path": path,
            "offset": part.offset,
            "length": part.length,
            "version": part.version,
        }
        async with self._caller.answer(Call("GET", "/v1/drive/files", query, seconds=FILE_SECONDS)) as response:
            try:
                async for piece in response.aiter_stream():
                    yield piece
            except BROKEN as error:
                raise unreachable(self._caller.url, error, sent=True) from error

    async def write(self, user_id: str, path: str, data: AsyncIterator[bytes], *, overwrite: bool) -> DriveFile:
        query: Query = {"user_id": user_id, "path": path, "overwrite": overwrite}
        call = Call("PUT", "/v1/drive/files", query, content=data, headers=_STREAM, seconds=FILE_SECONDS, repeat=False)
        try:
            return cast(DriveFile, await self._caller.json(call))
        finally:
            await close_items(data)

    async def edit(self, user_id: str, path: str, old: str, new: str, *, replace_all: bool) -> DriveEdit:
        body = {"path": path, "old": old, "new": new, "replace_all": replace_all}
        return cast(DriveEdit, await self._post("edit", user_id, body))

    async def ls(self, user_id: str, path: str, *, recursive: bool) -> list[DriveEntry]:
        found = await self._get("list", {"user_id": user_id, "path": path, "recursive": recursive})
        return cast(list[DriveEntry], found)

    async def glob(self, user_id: str, pattern: str, path: str) -> list[DriveEntry]:
        found = await self._get("glob", {"user_id": user_id, "pattern": pattern, "path": path})
        return cast(list[DriveEntry], found)

    async def grep(self, user_id: str, order: GrepOrder) -> DriveMatches:
        query: Query = {
            "user_id": user_id,
            "pattern": order.pattern,
            "path": order.path,
            "regex": order.regex,
            "ignore_case": order.ignore_case,
            "glob": order.glob,
            "max_matches": order.max_matches,
        }
        return cast(DriveMatches, await self._get("grep", query))

    async def stat(self, user_id: str, path: str) -> DriveEntry:
        return cast(DriveEntry, await self._get("stat", {"user_id": user_id, "path": path}))

    async def move(self, user_id: str, source: str, target: str, *, overwrite: bool) -> None:
        await self._post("move", user_id, {"source": source, "target": target, "overwrite": overwrite})

    async def delete(self, user_id: str, path: str, *, recursive: bool) -> None:
        query: Query = {"user_id": user_id, "path": path, "recursive": recursive}
        await self._caller.json(Call("DELETE", "/v1/drive/files", query, seconds=FILE_SECONDS, repeat=False))

    async def versions(self, user_id: str, path: str) -> list[DriveVersion]:
        return cast(list[DriveVersion], await self._get("versions", {"user_id": user_id, "path": path}))

    async def undo(self, user_id: str, path: str) -> DriveFile:
        return cast(DriveFile, await self._post("undo", user_id, {"path": path}))

    async def search(self, user_id: str, query: str, path: str, limit: int) -> DriveHits:
        asked: Query = {"user_id": user_id, "query": query, "path": path, "limit": limit}
        return cast(DriveHits, await self._get("search", asked))

    async def usage(self, user_id: str) -> DriveUsage:
        return cast(DriveUsage, await self._get("usage", {"user_id": user_id}))

    async def place(self, sandbox_id: str, user_id: str, paths: Sequence[str]) -> list[PlacedFile]:
        call = Call(
            "POST",
            _route(sandbox_id, "place"),
            {"user_id": user_id},
            json={"paths": list(several(paths))},
            seconds=FILE_SECONDS,
        )
        return cast(list[PlacedFile], await self._caller.json(call))

    async def place_bytes(self, sandbox_id: str, files: Sequence[tuple[str, bytes]]) -> list[PlacedFile]:
        parcel = parcel_of(files)
        head = head_of(parcel)
        size = len(head) + sum(one.size for one in parcel.files)
        call = Call(
            "PUT",
            _route(sandbox_id, "bytes"),
            content=_all(head, parcel.pieces),
            headers={**_STREAM, "content-length": str(size)},
            seconds=FILE_SECONDS,
            repeat=False,
        )
        return cast(list[PlacedFile], await self._caller.json(call))

    async def save(self, sandbox_id: str, user_id: str, filename: str, path: str) -> DriveFile:
        body = {"filename": filename, "path": path}
        call = Call("POST", _route(sandbox_id, "save"), {"user_id": user_id}, json=body, seconds=FILE_SECONDS)
        return cast(DriveFile, await self._caller.json(call))


def _route(sandbox_id: str, rest: str) -> str:
    return f"/v1/sandboxes/{segment(sandbox_id)}/drive/{rest}"


async def _all(head: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield head
    async for piece in pieces:
        yield piece
