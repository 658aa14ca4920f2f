"""Drives: files of the users of a tenant. They need no sandbox; any server answers for all."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from hutch.engine.drive.grep import Wanted
from hutch.engine.loop import close_items
from hutch.model.drive import (
    DriveEdit,
    DriveEntry,
    DriveFile,
    DriveHits,
    DriveMatches,
    DriveUsage,
    DriveVersion,
)
from hutch.model.errors import HutchError
from hutch.server.answers import Json
from hutch.server.auth import Reader, User
from hutch.server.bodies import EditBody, MoveBody, PathBody, raw_query
from hutch.server.routes.files import from_first, read_out, whole_body
from hutch.server.schemas import shape
from hutch.server.services import Shared
from hutch.server.streamed import Streamed
from hutch.server.trail import note, on_behalf_of

router = APIRouter(prefix="/v1/drive", tags=["drive"])


async def whose(request: Request, user_id: Annotated[str, Query(description="Whose drive it is.")]) -> str:
    """As it was sent: what the framework replaces would make one user of two."""
    found = raw_query(request, "user_id") or ""
    on_behalf_of(found)
    return found


async def _path(request: Request, path: Annotated[str, Query(description="Absolute.")]) -> str:
    found = raw_query(request, "path") or ""
    note(found)
    return found


async def _folder(request: Request, path: Annotated[str, Query(description="Absolute. Default: /.")] = "/") -> str:
    found = raw_query(request, "path")
    note(found or "/")
    return "/" if found is None else found


Whose = Annotated[str, Depends(whose)]
Path = Annotated[str, Depends(_path)]
Folder = Annotated[str, Depends(_folder)]


@router.get("/files", response_class=Response)
async def read(
    user_id: Whose,
    path: Path,
    caller: Reader,
    services: Shared,
    offset: int = 0,
    length: int | None = None,
    version: int | None = None,
) -> Response:
    """The bytes of a file, or a range of them; of a version, when one is named."""
    files = services.drive.files
    pieces = files.read(caller.tenant, user_id, path, offset=offset, length=length, version=version)
    first = await anext(pieces, None)  # an error shows now, while the answer can still say so by its status
    return Streamed(from_first(first, pieces), partial(close_items, pieces), media_type="application/octet-stream")


@router.put("/files", response_model=shape(DriveFile))
async def write(
    user_id: Whose, path: Path, caller: User, services: Shared, request: Request, overwrite: bool = True
) -> Response:
    """Store the body as a file. It appears whole, or not at all; what it replaces stays a version of it."""
    try:
        made = services.drive.files.write(caller.tenant, user_id, path, whole_body(request), overwrite=overwrite)
        return Json(await made)
    except HutchError:
        await read_out(request)
        raise


@router.delete("/files", status_code=204)
async def delete(user_id: Whose, path: Path, caller: User, services: Shared, recursive: bool = False) -> Response:
    """Delete a file, or with `recursive` a folder. Undo brings a file back, for thirty days."""
    await services.drive.files.delete(caller.tenant, user_id, path, recursive=recursive)
    return Response(status_code=204)


@router.post("/edit", response_model=shape(DriveEdit))
async def edit(user_id: Whose, body: EditBody, caller: User, services: Shared) -> Response:
    """Replace a text that stands in a file once, or with `replace_all` wherever it stands."""
    note(body.path)
    files = services.drive.files
    edited = files.edit(caller.tenant, user_id, body.path, body.old, body.new, replace_all=body.replace_all)
    return Json(await edited)


@router.post("/move", status_code=204)
async def move(user_id: Whose, body: MoveBody, caller: User, services: Shared) -> Response:
    """Give a file or folder another path."""
    note(f"{body.source} -> {body.target}")
    await services.drive.files.move(caller.tenant, user_id, body.source, body.target, overwrite=body.overwrite)
    return Response(status_code=204)


@router.post("/undo", response_model=shape(DriveFile))
async def undo(user_id: Whose, body: PathBody, caller: User, services: Shared) -> Response:
    """Take the last change of a file back; a deleted one is there again."""
    note(body.path)
    return Json(await services.drive.files.undo(caller.tenant, user_id, body.path))


@router.get("/versions", response_model=list[shape(DriveVersion)])  # type: ignore[misc]  # a type made at run time
async def versions(user_id: Whose, path: Path, caller: Reader, services: Shared) -> Response:
    """The versions of a file that are kept, the latest first."""
    return Json(await services.drive.files.versions(caller.tenant, user_id, path))


@router.get("/list", response_model=list[shape(DriveEntry)])  # type: ignore[misc]  # a type made at run time
async def list_folder(
    user_id: Whose, path: Folder, caller: Reader, services: Shared, recursive: bool = False
) -> Response:
    """What lies in a folder; with `recursive` also below it."""
    return Json(await services.drive.files.ls(caller.tenant, user_id, path, recursive=recursive))


@router.get("/stat", response_model=shape(DriveEntry))
async def stat(user_id: Whose, path: Path, caller: Reader, services: Shared) -> Response:
    """What a path stands for."""
    return Json(await services.drive.files.stat(caller.tenant, user_id, path))


@router.get("/glob", response_model=list[shape(DriveEntry)])  # type: ignore[misc]  # a type made at run time
async def glob(user_id: Whose, pattern: str, path: Folder, caller: Reader, services: Shared) -> Response:
    """Files whose path fits a pattern of `*`, `?`, `[…]` and `**`."""
    return Json(await services.drive.files.glob(caller.tenant, user_id, pattern, path))


@router.get("/grep", response_model=shape(DriveMatches))
async def grep(
    user_id: Whose,
    pattern: str,
    path: Folder,
    caller: Reader,
    services: Shared,
    regex: bool = False,
    ignore_case: bool = False,
    glob: str | None = None,
    max_matches: int = 1_000,
) -> Response:
    """Lines of text files that hold a text, or match a regular expression."""
    wanted = Wanted(pattern, regex, ignore_case, glob, max_matches)
    return Json(await services.drive.grep.grep(caller.tenant, user_id, wanted, path))


@router.get("/search", response_model=shape(DriveHits))
async def search(
    user_id: Whose, query: str, path: Folder, caller: Reader, services: Shared, limit: int = 20
) -> Response:
    """Files about something: by words, and by meaning where an embedder is set; `by` says which it was."""
    return Json(await services.drive.search.search(caller.tenant, user_id, query, path=path, limit=limit))


@router.get("/usage", response_model=shape(DriveUsage))
async def usage(user_id: Whose, caller: Reader, services: Shared) -> Response:
    """What the drive holds, and may hold."""
    return Json(await services.drive.files.usage(caller.tenant, user_id))
