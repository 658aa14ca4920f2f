"""Whether the server lives, is ready, and how its machine stands."""

from __future__ import annotations

import os
import time
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hutch.model.errors import HutchError
from hutch.model.template import TemplateInfo
from hutch.server.answers import Json, refusal
from hutch.server.auth import Reader, has_key, principal_of
from hutch.server.schemas import shape
from hutch.server.services import Services, Shared

router = APIRouter(tags=["health"])


@router.get("/health")
async def health(request: Request, services: Shared) -> Response:
    """`{"status": "ok"}` for anybody; with a key also the pool, the sessions and the worker."""
    if not has_key(request):
        return Json({"status": "ok"})
    await principal_of(request, services)
    return Json({"status": "ok", **_counts(services)})


def _counts(services: Services) -> dict[str, Any]:
    engine, settings = services.engine, services.engine.settings
    running, spare = engine.sandboxes.running, engine.pool.spare
    return {
        "worker_id": services.options.worker_id,
        "pool_size": settings.pool_size,
        "pool_available": spare,
        "active_sessions": running - spare,
        "uptime_seconds": round(time.monotonic() - services.started),
        "redis_connected": services.rate is not None and services.rate.connected,
        "pool": {
            "available": spare,
            "allocated": running - spare,
            "total": running,
            "max_capacity": settings.max_pool_size,
        },
        "config": {
            "pool_size": settings.pool_size,
            "max_pool_size": settings.max_pool_size,
            "aggressive_cleanup": settings.aggressive_cleanup,
        },
        "pid": os.getpid(),
    }


@router.get("/ready")
async def ready(services: Shared) -> Response:
    """200 when sandboxes can be had: the store answers and no wall that is needed is down."""
    try:
        await services.engine.store.session("-")
        report = await services.engine.provider.report()
    except HutchError as error:
        return refusal(error)
    return Json({"status": "ready" if report.usable else "unusable"}, 200 if report.usable else 503)


@router.get("/v1/version")
async def version(services: Shared) -> Response:
    """Of the program and of this API."""
    return Json({"version": services.version, "protocol": services.protocol, "worker_id": services.options.worker_id})


@router.get("/v1/doctor")
async def doctor(caller: Reader, services: Shared) -> Response:
    """How the machine's walls and limits stand, and how many sandboxes run."""
    return Json(await services.engine.health())


@router.get("/v1/templates", response_model=list[shape(TemplateInfo)])  # type: ignore[misc]  # a type made at run time
async def templates(caller: Reader, services: Shared) -> Response:
    """The kinds of sandboxes there are: what may run in each, and its limits."""
    return Json(await services.engine.templates())
