"""Files by the flat routes of older clients."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from typing import IO
from urllib.parse import quote

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from hutch.engine.files import WriteRequest
from hutch.engine.gauge import file_too_large
from hutch.engine.loop import close_items, closing_items
from hutch.model.errors import HutchError, InvalidRequest, PathRejected, SandboxFileNotFound, StoreUnavailable
from hutch.model.files import FileListing, UploadResult
from hutch.model.principal import Principal
from hutch.model.session import WORKSPACE_DIR
from hutch.server.answers import Json
from hutch.server.bodies import Text
from hutch.server.routes.files import from_first, read_out
from hutch.server.routes.mypa_dialect import Caller, Looker, MypaRoute, failed
from hutch.server.schemas import shape
from hutch.server.services import Services, Shared
from hutch.server.streamed import Streamed
from hutch.server.upload_form import UploadForm

router = APIRouter(tags=["mypa"], route_class=MypaRoute)
PIECE_BYTES = 256 * 1024


class DownloadBody(BaseModel):
    session_id: Text
    filename: Text


@router.post(
    "/upload_file",
    response_model=shape(UploadResult),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["session_id", "file"],
                        "properties": {
                            "session_id": {"type": "string"},
                            "filename": {"type": "string", "description": "Default: the file's own name."},
                            "file": {"type": "string", "format": "binary"},
                        },
                    }
                }
            },
        }
    },
)
async def upload_file(caller: Caller, services: Shared, request: Request) -> Response:
    """Store a file. Fields that stand before the file in the form let it go straight into the sandbox."""
    try:
        form = UploadForm(request)
        await form.begin()
        if "session_id" in form.fields:
            return await _store(services, caller, form, _straight(form), form.size)
        return await _spooled(services, caller, form)
    except HutchError:
        await read_out(request)
        raise


async def _store(
    services: Services, caller: Principal, form: UploadForm, data: AsyncIterator[bytes], size: int | None
) -> Response:
    async with closing_items(data):
        sandbox_id = await services.engine.sessions.sandbox_of(caller.tenant, form.fields["session_id"])
        order = WriteRequest(_name(form), size)
        return Json(await services.engine.files.write(caller.tenant, sandbox_id, order, data))


def _name(form: UploadForm) -> str:
    """Raises: InvalidRequest."""
    name = form.fields.get("filename") or form.file_name
    if not name:
        raise InvalidRequest("The upload has no name: give the file's part one, or the field filename.")
    return name


async def _straight(form: UploadForm) -> AsyncIterator[bytes]:
    """What is being stored already cannot be given another name; nothing is kept of it then."""
    name = _name(form)
    async for piece in form.pieces():
        yield piece
    if _name(form) != name:
        raise InvalidRequest("The field filename stands after the file; put it before.")


async def _spooled(services: Services, caller: Principal, form: UploadForm) -> Response:
    """An upload that says at its end where it belongs waits on disk, as large as a file of its sandbox may be."""
    most = services.engine.settings.bash_limits().file_bytes
    async with services.spools:
        with tempfile.TemporaryFile(dir=services.engine.settings.data_dir, prefix="upload-") as spool:
            size = 0
            async for piece in form.pieces():
                size += len(piece)
                if size > most:
                    raise file_too_large(most, size)
                await _kept(spool, piece)
            if "session_id" not in form.fields:
                raise InvalidRequest("The form has no field session_id.")
            spool.seek(0)

            async def again() -> AsyncIterator[bytes]:
                while piece := await asyncio.to_thread(spool.read, PIECE_BYTES):
                    yield piece

            return await _store(services, caller, form, again(), size)


async def _kept(spool: IO[bytes], piece: bytes) -> None:
    try:
        await asyncio.to_thread(spool.write, piece)
    except OSError as error:
        raise StoreUnavailable(f"The upload cannot be kept in the data folder: {error.strerror}.") from error


@router.post("/download_file", response_class=Response)
async def download_file(body: DownloadBody, caller: Caller, services: Shared) -> Response:
    """The bytes of a file."""
    sandbox_id = await services.engine.sessions.sandbox_of(caller.tenant, body.session_id)
    name = body.filename
    if name.startswith("/") or ".." in name.split("/"):
        raise PathRejected("filename is relative to the workspace, without '..'.", path=name)
    files = services.engine.files
    try:
        info = await files.stat(caller.tenant, sandbox_id, name)
        size = info["size_bytes"] if info["kind"] == "file" else None  # a link's is that of its text
        pieces = files.read(caller.tenant, sandbox_id, name, length=size)
        first = await anext(pieces, None)
    except SandboxFileNotFound as error:
        return failed(error, filename=name, workspace_dir=WORKSPACE_DIR)
    shown = quote(name.rpartition("/")[2].encode("utf-8", "surrogateescape"), safe="")
    headers = {"content-disposition": f"attachment; filename*=utf-8''{shown}"}
    if size is not None:
        headers["content-length"] = str(size)
    close = partial(close_items, pieces)
    return Streamed(from_first(first, pieces), close, media_type="application/octet-stream", headers=headers)


@router.get("/list_files", response_model=shape(FileListing))
async def list_files(caller: Looker, services: Shared, session_id: str) -> Response:
    """Regular files at the top of the workspace, newest first."""
    sandbox_id = await services.engine.sessions.sandbox_of(caller.tenant, session_id)
    return Json(await services.engine.files.list_files(caller.tenant, sandbox_id))
