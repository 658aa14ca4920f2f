"""Where another worker brings a sandbox, when it is told to end. No part of the API: only workers know the token."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import APIRouter, Header
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from hutch.model.errors import RouteNotFound
from hutch.model.location import Location
from hutch.server.answers import Json
from hutch.server.bodies import Whole
from hutch.server.services import Shared

WORKER_TOKEN_HEADER = "x-hutch-worker-token"

router = APIRouter(prefix="/internal", include_in_schema=False)


@router.put("/sandboxes/{sandbox_id}")
async def receive(
    sandbox_id: str,
    request: Request,
    services: Shared,
    tenant: str,
    state: str,
    worker_id: str,
    fence: Whole,
    x_hutch_worker_token: Annotated[str, Header()] = "",
) -> Response:
    """Take over a sandbox; the body is the archive of its files."""
    token = services.options.worker_token
    if token is None or not hmac.compare_digest(token.encode(), x_hutch_worker_token.encode("utf-8", "replace")):
        raise RouteNotFound("There is nothing at this address.")
    location = Location(sandbox_id, tenant, state, worker_id, fence)  # type: ignore[arg-type]  # compared with the row
    try:
        await services.engine.moving.receive(location, request.stream())
    except ClientDisconnect:
        return Response(status_code=400)
    return Json({"worker_id": services.options.worker_id})
