"""What a coordinator says of itself and of its workers."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from hutch.cluster.registry import Registry
from hutch.cluster.workers import WorkerInfo
from hutch.model.errors import HutchError
from hutch.server.answers import Json, refusal
from hutch.server.auth import Reader, has_key, principal_of
from hutch.server.services import Shared

router = APIRouter(tags=["health"])


async def _registry(connection: HTTPConnection) -> Registry:
    found: Registry = connection.app.state.registry
    return found


Workers = Annotated[Registry, Depends(_registry)]


@router.get("/health")
async def health(request: Request, services: Shared, registry: Workers) -> Response:
    """`{"status": "ok"}` for anybody; with a key also the workers."""
    if not has_key(request):
        return Json({"status": "ok"})
    await principal_of(request, services)
    workers = list(registry.view.workers.values())
    return Json(
        {
            "status": "ok",
            "worker_id": services.options.worker_id,
            "uptime_seconds": round(time.monotonic() - services.started),
            "redis_connected": registry.redis_answers,
            "workers_total": len(workers),
            "workers_healthy": sum(1 for worker in workers if worker.alive),
            "workers": [{"url": worker.url, "status": _status(worker)} for worker in workers],
            "active_sessions": sum(worker.running - worker.spare for worker in workers if worker.alive),
        }
    )


def _status(worker: WorkerInfo) -> str:
    return "healthy" if worker.alive else "unhealthy"


@router.get("/ready")
async def ready(services: Shared, registry: Workers) -> Response:
    """200 when the database and Redis answer and some worker takes sandboxes."""
    try:
        await services.keys.list("-")
        view = await registry.refresh()
    except HutchError as error:
        return refusal(error)
    able = any(worker.takes_more for worker in view.workers.values())
    return Json({"status": "ready" if able else "no worker"}, 200 if able else 503)


@router.get("/v1/version")
async def version(services: Shared) -> Response:
    """Of the program and of this API."""
    return Json({"version": services.version, "protocol": services.protocol})


@router.get("/v1/doctor")
async def doctor(caller: Reader, registry: Workers) -> Response:
    """How the workers stand. Each tells of its walls at its own address."""
    workers = list(registry.view.workers.values())
    alive = [worker for worker in workers if worker.alive]
    return Json(
        {
            "running": sum(worker.running for worker in alive),
            "spare": sum(worker.spare for worker in alive),
            "redis_connected": registry.redis_answers,
            "workers": [_row(worker) for worker in workers],
        }
    )


def _row(worker: WorkerInfo) -> dict[str, Any]:
    return {
        "worker_id": worker.worker_id,
        "url": worker.url,
        "status": _status(worker),
        "draining": worker.draining,
        "capacity": worker.capacity,
        "running": worker.running,
        "version": worker.version,
        "protocol": worker.protocol,
        "understood": worker.understood,
    }
