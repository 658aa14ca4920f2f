"""Code that keeps its state, in contexts of a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hutch.engine.loop import closing_items
from hutch.model.code import CODE_TIMEOUT, CodeContext, CodeEvent, CodeOrder, CodeResult
from hutch.model.errors import SandboxUnavailable
from hutch.model.wire import sse
from hutch.server.answers import Json
from hutch.server.auth import Reader, User
from hutch.server.bodies import Body, Seconds, Text
from hutch.server.calls import unless_gone
from hutch.server.events import event_stream
from hutch.server.schemas import shape
from hutch.server.services import Shared
from hutch.server.trail import note

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/code", tags=["code"])


class CodeBody(Body):
    code: Text
    context_id: Text | None = None
    timeout: Seconds = CODE_TIMEOUT


class ContextBody(Body):
    cwd: Text | None = None


@router.post("/run", response_model=shape(CodeResult))
async def run(sandbox_id: str, body: CodeBody, caller: User, services: Shared, request: Request) -> Response:
    """Run Python and wait for its end; with `Accept: text/event-stream` its output as it comes.

    Events: `output`, whose `type` is stdout, stderr (text), display, result (data by MIME type) or error (name, value,
    traceback); `end` (result); `error` when it could not be run. Hanging up interrupts the code.
    """
    order = CodeOrder(body.code, body.context_id, body.timeout)
    events = services.engine.code.run(caller.tenant, sandbox_id, order)
    if "text/event-stream" in request.headers.get("accept", ""):
        return event_stream(_packed(events))
    return Json(await unless_gone(request.receive, _end(events)))


async def _packed(events: AsyncIterator[CodeEvent]) -> AsyncIterator[bytes]:
    async with closing_items(events):
        async for event in events:
            yield sse("end" if event["type"] == "end" else "output", event)


async def _end(events: AsyncIterator[CodeEvent]) -> CodeResult:
    async with closing_items(events):
        async for event in events:
            if event["result"] is not None:
                return event["result"]
    raise SandboxUnavailable("The sandbox ended before the code did.")


@router.get("/contexts", response_model=list[shape(CodeContext)])  # type: ignore[misc]  # a type made at run time
async def contexts(sandbox_id: str, caller: Reader, services: Shared) -> Response:
    """The contexts there are."""
    return Json(await services.engine.code.contexts(caller.tenant, sandbox_id))


@router.post("/contexts", response_model=shape(CodeContext), status_code=201)
async def create_context(sandbox_id: str, body: ContextBody, caller: User, services: Shared) -> Response:
    """Make a context and start its interpreter."""
    return Json(await services.engine.code.create(caller.tenant, sandbox_id, body.cwd), 201)


@router.post("/contexts/{context_id}/restart", response_model=shape(CodeContext))
async def restart_context(sandbox_id: str, context_id: str, caller: User, services: Shared) -> Response:
    """Start it anew: what its code defined is gone."""
    note(context_id)
    return Json(await services.engine.code.restart(caller.tenant, sandbox_id, context_id))


@router.post("/contexts/{context_id}/interrupt", status_code=204)
async def interrupt(sandbox_id: str, context_id: str, caller: User, services: Shared) -> Response:
    """End the code that runs in it; what it defined stays."""
    await services.engine.code.interrupt(caller.tenant, sandbox_id, context_id)
    return Response(status_code=204)


@router.delete("/contexts/{context_id}", status_code=204)
async def close_context(sandbox_id: str, context_id: str, caller: User, services: Shared) -> Response:
    """End its interpreter."""
    await services.engine.code.close(caller.tenant, sandbox_id, context_id)
    return Response(status_code=204)
