"""Files between a user's drive and a sandbox, without crossing the wire."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hutch.engine.parcel import open_parcel
from hutch.model.drive import DriveFile, PlacedFile
from hutch.model.errors import HutchError
from hutch.server.answers import Json
from hutch.server.auth import User
from hutch.server.bodies import PathsBody, SaveBody
from hutch.server.routes.drive import Whose
from hutch.server.routes.files import read_out, whole_body
from hutch.server.schemas import shape
from hutch.server.services import Shared
from hutch.server.trail import note

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/drive", tags=["drive"])


@router.post("/place", response_model=list[shape(PlacedFile)])  # type: ignore[misc]  # a type made at run time
async def place(sandbox_id: str, user_id: Whose, body: PathsBody, caller: User, services: Shared) -> Response:
    """Copy files of a drive into the sandbox. All are looked at before any is sent."""
    note(" ".join(body.paths))
    return Json(await services.engine.placing.place(caller.tenant, sandbox_id, user_id, body.paths))


@router.put("/bytes", response_model=list[shape(PlacedFile)])  # type: ignore[misc]  # a type made at run time
async def place_bytes(sandbox_id: str, caller: User, services: Shared, request: Request) -> Response:
    """The same for content from elsewhere: a JSON line of [name, size] pairs, then the bytes of each."""
    try:
        parcel = await open_parcel(whole_body(request))
        note(" ".join(one.name for one in parcel.files))
        return Json(await services.engine.placing.place_parcel(caller.tenant, sandbox_id, parcel))
    except HutchError:
        await read_out(request)
        raise


@router.post("/save", response_model=shape(DriveFile))
async def save(sandbox_id: str, user_id: Whose, body: SaveBody, caller: User, services: Shared) -> Response:
    """Copy a file of the sandbox into a drive."""
    note(f"{body.filename} -> {body.path}")
    placing = services.engine.placing
    return Json(await placing.save(caller.tenant, sandbox_id, user_id, body.filename, body.path))
