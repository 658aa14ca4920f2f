"""API keys and the audit trail of the caller's tenant."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from hutch.model.audit import AuditEntry, AuditFilter
from hutch.model.errors import InvalidRequest
from hutch.model.principal import KeyInfo
from hutch.server.answers import Json
from hutch.server.auth import Admin
from hutch.server.bodies import KeyBody, Whole
from hutch.server.schemas import shape
from hutch.server.services import Shared
from hutch.server.trail import note

router = APIRouter(prefix="/v1", tags=["access"])


class NewKeyAnswer(KeyInfo):
    key: str  # shown now and never again


@router.get("/keys", response_model=list[shape(KeyInfo)])  # type: ignore[misc]  # a type made at run time
async def list_keys(caller: Admin, services: Shared) -> Response:
    """The keys of the caller's tenant, revoked ones too."""
    return Json(await services.keys.list(caller.tenant))


@router.post("/keys", response_model=shape(NewKeyAnswer), status_code=201)
async def create_key(body: KeyBody, caller: Admin, services: Shared) -> Response:
    """Make a key. Only here is its text shown."""
    if body.tenant not in (None, caller.tenant):
        raise InvalidRequest(
            "A key is made for the tenant of the key that makes it; hutch keys makes any, on the server."
        )
    note(f"{body.name} ({body.scope})")
    made, info = await services.keys.create(body.name, caller.tenant, body.scope)
    return Json({**info, "key": made.text}, 201)


@router.delete("/keys/{key_id}", status_code=204)
async def revoke_key(key_id: str, caller: Admin, services: Shared) -> Response:
    """Revoke a key. Fine when it was revoked already, or never was."""
    await services.keys.revoke(key_id, caller.tenant)
    return Response(status_code=204)


@router.get("/audit", response_model=list[shape(AuditEntry)])  # type: ignore[misc]  # a type made at run time
async def audit(
    caller: Admin,
    services: Shared,
    sandbox_id: str | None = None,
    key_id: str | None = None,
    user_id: str | None = None,
    action: str | None = None,
    failed: Annotated[bool, Query(description="Only what did not go well.")] = False,
    before: Annotated[Whole | None, Query(description="Only entries older than this one.")] = None,
    after: Annotated[Whole | None, Query(description="Only entries newer than this one.")] = None,
    limit: Whole = 100,
) -> Response:
    """Who did what, the newest first."""
    wanted = AuditFilter(caller.tenant, sandbox_id, key_id, user_id, action, failed, before, after, limit)
    return Json(await services.audit.list(wanted))
