"""The flat routes of older clients (`/create_session`, `/execute`, …), on the same engine and its strict template.

Files are in `mypa_files.py`. `GET /health`, the ninth of them, is the server's own.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from hutch.engine.sessions import SessionRequest
from hutch.model.errors import CommandRejected, NoActiveSession, SessionExpiredError
from hutch.model.process import ProcessSpec
from hutch.model.session import WORKSPACE_DIR
from hutch.server.answers import Json
from hutch.server.bodies import Seconds, Text
from hutch.server.calls import unless_gone
from hutch.server.routes.mypa_dialect import Caller, Looker, MypaRoute, failed
from hutch.server.schemas import shape
from hutch.server.services import Shared

router = APIRouter(tags=["mypa"], route_class=MypaRoute)
SHOWN_COMMAND = 200


class CreateBody(BaseModel):
    user_id: Text
    thread_id: Text
    timeout_minutes: Seconds | None = None


class ExecuteBody(BaseModel):
    session_id: Text
    command: Text
    timeout: Seconds | None = None


class CleanupBody(BaseModel):
    session_id: Text


class _Session(TypedDict):
    session_id: str
    thread_id: str
    workspace_dir: str


class Created(_Session):
    status: Literal["created"]
    user: str
    expires_at: str


class Existing(_Session):
    status: Literal["existing"]
    user: str
    created_at: str
    last_activity: str


class Active(_Session):
    status: Literal["active"]
    created_at: str
    last_activity: str
    files_count: int


class Ran(TypedDict):
    exit_code: int
    stdout: str
    stderr: str
    execution_time_ms: int


class CleanedUp(TypedDict):
    status: Literal["cleaned_up"]
    session_id: str


class Status(TypedDict):
    status: Literal["active"]
    worker: str
    created_at: str
    last_activity: str


@router.post(
    "/create_session",
    response_model=shape(Created),
    status_code=201,
    responses={409: {"model": shape(Existing), "description": "The thread has a session, which is this one."}},
)
async def create_session(body: CreateBody, caller: Caller, services: Shared) -> Response:
    """Make the session of a thread; 409 with the session when it has one already."""
    order = SessionRequest(caller.tenant, body.user_id, body.thread_id, body.timeout_minutes)
    session, _ = await services.engine.sessions.get_or_create(order)
    common = {name: session[name] for name in ("session_id", "thread_id", "status", "workspace_dir")}
    common["user"] = session["user_id"]
    if session["status"] == "created":
        return Json({**common, "expires_at": session["expires_at"]}, 201)
    return Json({**common, "created_at": session["created_at"], "last_activity": session["last_activity"]}, 409)


@router.get("/get_session", response_model=shape(Active))
async def get_session(caller: Looker, services: Shared, thread_id: Annotated[str, Query(min_length=1)]) -> Response:
    """The session of a thread."""
    info = await services.engine.sessions.find_info(caller.tenant, thread_id, None)
    if info is None:
        missing = NoActiveSession(f"No active session for thread {thread_id!r:.100}. POST /create_session makes one.")
        return failed(missing, http_status=404, thread_id=thread_id)
    listing = await services.engine.files.list_files(caller.tenant, info["sandbox_id"])
    found: Active = {
        "session_id": info["session_id"],
        "thread_id": info["thread_id"],
        "status": "active",
        "workspace_dir": WORKSPACE_DIR,
        "created_at": info["created_at"],
        "last_activity": info["last_activity"],
        "files_count": listing["total_files"],
    }
    return Json(found)


@router.post("/execute", response_model=shape(Ran))
async def execute(body: ExecuteBody, caller: Caller, services: Shared, request: Request) -> Response:
    """Run a command and wait for its result. What it leaves running in the background goes on."""
    sandbox_id = await services.engine.sessions.sandbox_of(caller.tenant, body.session_id)
    timeout = services.engine.settings.default_command_timeout if body.timeout is None else body.timeout
    spec = ProcessSpec(command=body.command, timeout=timeout, leftovers="keep", tag="mypa")
    try:
        result = await unless_gone(request.receive, services.engine.processes.execute(caller.tenant, sandbox_id, spec))
    except CommandRejected as error:
        return failed(error, command=body.command[:SHOWN_COMMAND])
    return Json({name: result[name] for name in Ran.__annotations__})  # type: ignore[literal-required]  # a subset


@router.post("/cleanup", response_model=shape(CleanedUp))
async def cleanup(body: CleanupBody, caller: Caller, services: Shared) -> Response:
    """End a session and delete its files. Fine when it has ended already, or never was."""
    sessions = services.engine.sessions
    try:
        await sessions.close(caller.tenant, await sessions.sandbox_of(caller.tenant, body.session_id))
    except SessionExpiredError:
        pass
    return Json({"status": "cleaned_up", "session_id": body.session_id})


@router.get("/status/{session_id}", response_model=shape(Status))
async def status(session_id: str, caller: Looker, services: Shared) -> Response:
    """Whether a session lives, and on which worker."""
    sessions = services.engine.sessions
    try:
        info = await sessions.info(caller.tenant, await sessions.sandbox_of(caller.tenant, session_id))
    except SessionExpiredError as error:
        return failed(error, status="not found")
    found: Status = {
        "status": "active",
        "worker": services.options.worker_id,
        "created_at": info["created_at"],
        "last_activity": info["last_activity"],
    }
    return Json(found)
