"""Egress: which hosts a sandbox may reach, and which it asked for."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from hutch.model.egress import EgressRecord, HostRuleInfo
from hutch.server.answers import Json
from hutch.server.auth import Reader, User
from hutch.server.bodies import RulesBody
from hutch.server.schemas import shape
from hutch.server.services import Shared
from hutch.server.trail import note

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/egress", tags=["egress"])


@router.get("", response_model=list[shape(HostRuleInfo)])  # type: ignore[misc]  # a type made at run time
async def rules(sandbox_id: str, caller: Reader, services: Shared) -> Response:
    """The hosts that the sandbox may reach. Of secret headers only the names are told."""
    return Json(await services.engine.egress.rules(caller.tenant, sandbox_id))


@router.put("", response_model=list[shape(HostRuleInfo)])  # type: ignore[misc]  # a type made at run time
async def set_rules(sandbox_id: str, body: RulesBody, caller: User, services: Shared) -> Response:
    """Let the sandbox reach these hosts and no others; none: it reaches nothing. Connections that no rule allows any
    more are cut.
    """
    note(body.hosts())
    return Json(await services.engine.egress.set(caller.tenant, sandbox_id, body.documents()))


@router.patch("", response_model=list[shape(HostRuleInfo)])  # type: ignore[misc]  # a type made at run time
async def allow(sandbox_id: str, body: RulesBody, caller: User, services: Shared) -> Response:
    """Let the sandbox reach these hosts, too. A rule for a host that has one replaces it."""
    note(body.hosts())
    return Json(await services.engine.egress.allow(caller.tenant, sandbox_id, body.documents()))


@router.get("/log", response_model=list[shape(EgressRecord)])  # type: ignore[misc]  # a type made at run time
async def log(
    sandbox_id: str,
    caller: Reader,
    services: Shared,
    after: Annotated[int, Query(description="Only records with a larger number.")] = 0,
    limit: Annotated[int, Query(description="At most 1,000, which is what is kept.")] = 100,
) -> Response:
    """The latest requests of the sandbox, the oldest first."""
    return Json(await services.engine.egress.log(caller.tenant, sandbox_id, after=after, limit=limit))
