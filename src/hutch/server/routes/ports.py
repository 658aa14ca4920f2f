"""Previews: addresses at which browsers and programs reach a port of a sandbox."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from hutch.model.errors import NotSupported
from hutch.model.preview import Preview, PreviewInfo
from hutch.server.answers import Json
from hutch.server.auth import Reader, User
from hutch.server.bodies import Seconds
from hutch.server.preview.address import front
from hutch.server.schemas import shape
from hutch.server.services import Shared

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/ports", tags=["ports"])


@router.get("", response_model=list[shape(PreviewInfo)])  # type: ignore[misc]  # a type made at run time
async def list_previews(sandbox_id: str, caller: Reader, services: Shared) -> Response:
    """Tokens of previews that are good, without the tokens themselves."""
    return Json(await services.engine.previews.list(caller.tenant, sandbox_id))


@router.get("/{port}", response_model=shape(Preview))
async def preview(
    sandbox_id: str,
    port: int,
    caller: User,
    services: Shared,
    expires_in: Annotated[Seconds | None, Query(description="Default: an hour. At most a week.")] = None,
) -> Response:
    """Make a token that opens this one port, and say where: `url` for a browser, `address` for programs.

    Programs send the token as the header `hutch-preview-token`. HTTP, WebSocket and server-sent events pass.
    """
    at = services.options.preview_url
    if at is None:
        await services.engine.previews.list(caller.tenant, sandbox_id)  # whose it is not learns nothing
        raise NotSupported("This server has no previews: HUTCH_PREVIEW_PORT is 0.")
    made, info = await services.engine.previews.make(caller.tenant, sandbox_id, port, expires_in, key_id=caller.key_id)
    reached = front(at)
    answer: Preview = {
        **info,
        "token": made.text,
        "url": reached.url(sandbox_id, port, made.text),
        "address": reached.address(sandbox_id, port),
    }
    return Json(answer, headers={"cache-control": "no-store"})


@router.delete("/{port}", status_code=204)
async def revoke(
    sandbox_id: str,
    port: int,
    caller: User,
    services: Shared,
    token_id: Annotated[str | None, Query(description="Only this one; without it all of the port.")] = None,
) -> Response:
    """Revoke tokens of a port. Connections that they opened end within seconds."""
    await services.engine.previews.revoke(caller.tenant, sandbox_id, port, token_id)
    return Response(status_code=204)
