"""Sessions: the sandbox of a thread, found or made."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from hutch.engine.sessions import SessionRequest
from hutch.model.errors import NoActiveSession
from hutch.model.session import SandboxInfo, SessionInfo
from hutch.server.answers import Json
from hutch.server.auth import Reader, User
from hutch.server.bodies import SessionBody
from hutch.server.schemas import shape
from hutch.server.services import Services, Shared

router = APIRouter(prefix="/v1/sessions", tags=["sessions"])
Key = Annotated[str | None, Header(alias="Idempotency-Key", description="The same key gives the same answer again.")]


class SessionAnswer(SessionInfo):
    """A session, and what to use it by."""

    sandbox_id: str
    policy: str  # name of the profile that judges its commands


@router.put("", response_model=shape(SessionAnswer), responses={201: {"model": shape(SessionAnswer)}})
async def find_or_make(body: SessionBody, caller: User, services: Shared, key: Key = None) -> Response:
    """The session of `thread_id`: 201 when it was made just now, 200 when it was there."""
    request = SessionRequest(caller.tenant, **body.model_dump())

    async def work() -> SessionAnswer:
        return await ensure(services, request)

    answer = await (work() if key is None else services.calls.once(caller.tenant, f"session {key}", request, work))
    return Json(answer, 201 if answer["status"] == "created" else 200)


async def ensure(services: Services, request: SessionRequest) -> SessionAnswer:
    session, sandbox_id = await services.engine.sessions.get_or_create(request)
    policy = services.engine.sandboxes.templates[session["template"]].policy
    return {**session, "sandbox_id": sandbox_id, "policy": policy}


@router.get("", response_model=list[shape(SandboxInfo)])  # type: ignore[misc]  # a type made at run time
async def list_or_find(
    caller: Reader,
    services: Shared,
    thread_id: Annotated[str | None, Query(description="Only the session of this thread; 404 without one.")] = None,
    user_id: Annotated[str | None, Query(description="With thread_id: who asks. Another's thread is refused.")] = None,
) -> Response:
    """All sessions of the caller's tenant, or that of one thread."""
    sessions = services.engine.sessions
    if thread_id is None:
        return Json(await sessions.list(caller.tenant))
    found = await sessions.find_info(caller.tenant, thread_id, user_id)
    if found is None:
        raise NoActiveSession(f"No active session for thread {thread_id!r:.100}. PUT /v1/sessions makes one.")
    return Json([found])
