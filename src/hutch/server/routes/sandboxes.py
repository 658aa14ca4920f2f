"""A sandbox itself: what it is, where its commands run, and its end."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from hutch.model.session import SandboxInfo
from hutch.server.answers import Json
from hutch.server.auth import Reader, User
from hutch.server.bodies import ContextBody
from hutch.server.schemas import shape
from hutch.server.services import Shared
from hutch.server.trail import note

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}", tags=["sandboxes"])


@router.get("", response_model=shape(SandboxInfo))
async def info(sandbox_id: str, caller: Reader, services: Shared) -> Response:
    """Its session, state and deadline."""
    return Json(await services.engine.sessions.info(caller.tenant, sandbox_id))


@router.patch("", status_code=204)
async def set_context(sandbox_id: str, body: ContextBody, caller: User, services: Shared) -> Response:
    """Set the working folder or the environment of later commands."""
    note(" ".join([f"cwd {body.cwd}"] * (body.cwd is not None) + [f"env {name}" for name in body.env or ()]))
    await services.engine.context.set(caller.tenant, sandbox_id, cwd=body.cwd, env=body.env)
    return Response(status_code=204)


@router.delete("", status_code=204)
async def close(sandbox_id: str, caller: User, services: Shared) -> Response:
    """End it and delete its files. Fine when it has ended already."""
    await services.engine.sessions.close(caller.tenant, sandbox_id)
    return Response(status_code=204)
