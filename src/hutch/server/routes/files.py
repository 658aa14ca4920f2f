"""Files of a sandbox. Paths are relative to /workspace, or absolute below it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from hutch.engine.files import WriteRequest
from hutch.engine.loop import close_items, closing_items
from hutch.model.errors import HutchError, InvalidRequest
from hutch.model.files import FileEvent, FileInfo, FileListing, UploadResult
from hutch.model.wire import sse
from hutch.server.answers import Json
from hutch.server.auth import Reader, User
from hutch.server.bodies import FolderBody, MoveBody, Whole, raw_query
from hutch.server.events import event_stream
from hutch.server.schemas import shape
from hutch.server.services import Shared
from hutch.server.streamed import Streamed
from hutch.server.trail import note

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/files", tags=["files"])
LINGER_SECONDS = 5.0  # how long we go on reading an upload that was refused, so that its sender hears why


async def _path(request: Request, path: Annotated[str, Query(description="Odd bytes are percent-encoded.")]) -> str:
    found = raw_query(request, "path") or ""
    note(found)
    return found


async def _folder(request: Request, path: Annotated[str, Query(description="Default: the workspace.")] = ".") -> str:
    found = raw_query(request, "path")
    note(found or ".")
    return "." if found is None else found


Path = Annotated[str, Depends(_path)]
Folder = Annotated[str, Depends(_folder)]


@router.get("", response_class=Response)
async def read(
    sandbox_id: str, path: Path, caller: Reader, services: Shared, offset: Whole = 0, length: Whole | None = None
) -> Response:
    """The bytes of a file, or a range of them."""
    pieces = services.engine.files.read(caller.tenant, sandbox_id, path, offset=offset, length=length)
    first = await anext(pieces, None)  # an error shows now, while the answer can still say so by its status
    return Streamed(from_first(first, pieces), partial(close_items, pieces), media_type="application/octet-stream")


async def from_first(first: bytes | None, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first is not None:
        yield first
    async for piece in rest:
        yield piece


@router.put("", response_model=shape(UploadResult))
async def write(
    sandbox_id: str,
    path: Path,
    caller: User,
    services: Shared,
    request: Request,
    mode: Annotated[str, Query(pattern="^[0-7]{1,4}$", description="In octal.")] = "644",
    overwrite: bool = True,
) -> Response:
    """Store the body as a file. It appears whole, or not at all."""
    order = WriteRequest(path, _length(request), int(mode, 8), overwrite)
    try:
        return Json(await services.engine.files.write(caller.tenant, sandbox_id, order, whole_body(request)))
    except HutchError:
        await read_out(request)
        raise


def _length(request: Request) -> int | None:
    given = request.headers.get("content-length")
    if given is None:
        return None
    if not given.isdecimal() or len(given) > 18:
        raise InvalidRequest("Content-Length is no number.")
    return int(given)


async def whole_body(request: Request) -> AsyncIterator[bytes]:
    """The body; one whose sender hangs up half-way is no file."""
    try:
        async for piece in request.stream():
            if piece:
                yield piece
    except ClientDisconnect:
        raise InvalidRequest("The upload ended before all of it had come.") from None


async def read_out(request: Request) -> None:
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            async for _ in request.stream():
                pass
    except (TimeoutError, ClientDisconnect, RuntimeError):  # RuntimeError: it was read to its end already
        pass


@router.delete("", status_code=204)
async def remove(sandbox_id: str, path: Path, caller: User, services: Shared, recursive: bool = False) -> Response:
    """Remove a file, or a folder; with `recursive` all that is in it."""
    await services.engine.files.remove(caller.tenant, sandbox_id, path, recursive=recursive)
    return Response(status_code=204)


@router.get("/top", response_model=shape(FileListing))
async def list_top(sandbox_id: str, caller: Reader, services: Shared) -> Response:
    """Regular files at the top of the workspace, newest first."""
    return Json(await services.engine.files.list_files(caller.tenant, sandbox_id))


@router.get("/list", response_model=list[shape(FileInfo)])  # type: ignore[misc]  # a type made at run time
async def list_folder(
    sandbox_id: str, path: Folder, caller: Reader, services: Shared, recursive: bool = False
) -> Response:
    """What lies in a folder; with `recursive` also below it. Links are shown, never followed."""
    return Json(await services.engine.files.list(caller.tenant, sandbox_id, path, recursive=recursive))


@router.get("/stat", response_model=shape(FileInfo))
async def stat(sandbox_id: str, path: Path, caller: Reader, services: Shared) -> Response:
    """What a name stands for."""
    return Json(await services.engine.files.stat(caller.tenant, sandbox_id, path))


@router.post("/mkdir", status_code=204)
async def mkdir(sandbox_id: str, body: FolderBody, caller: User, services: Shared) -> Response:
    """Make a folder."""
    note(body.path)
    await services.engine.files.mkdir(caller.tenant, sandbox_id, body.path, parents=body.parents)
    return Response(status_code=204)


@router.post("/move", status_code=204)
async def move(sandbox_id: str, body: MoveBody, caller: User, services: Shared) -> Response:
    """Give a file or folder another name."""
    note(f"{body.source} -> {body.target}")
    await services.engine.files.move(caller.tenant, sandbox_id, body.source, body.target, overwrite=body.overwrite)
    return Response(status_code=204)


@router.get("/watch", response_class=Response)
async def watch(sandbox_id: str, path: Folder, caller: Reader, services: Shared, recursive: bool = False) -> Response:
    """Changes from now on, as server-sent events: `ready` once watching, then `change`, or `error`."""
    await services.engine.files.stat(caller.tenant, sandbox_id, path)
    return event_stream(_changes(services.engine.files.watch(caller.tenant, sandbox_id, path, recursive=recursive)))


async def _changes(events: AsyncIterator[FileEvent]) -> AsyncIterator[bytes]:
    yield sse("ready", {})
    async with closing_items(events):
        async for event in events:
            yield sse("change", event)
