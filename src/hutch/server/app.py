"""The app: routes over one engine."""

from __future__ import annotations

import importlib
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import ASGIApp

from hutch.engine.assemble import Engine
from hutch.server import answers
from hutch.server.answers import Json
from hutch.server.auth import Reader
from hutch.server.guard import Guard
from hutch.server.logs import Chronicle
from hutch.server.mounts import NO_MOUNTS, Beside, Mounts
from hutch.server.noting import Noting
from hutch.server.rate import Rate
from hutch.server.routes import (
    access,
    code,
    drive,
    egress,
    files,
    git,
    handover,
    health,
    metrics,
    mypa,
    mypa_files,
    placing,
    ports,
    processes,
    sandboxes,
    sessions,
    streams,
)
from hutch.server.schemas import ERRORS
from hutch.server.services import ServerOptions, Services
from hutch.server.trail import Trail

PUBLIC = frozenset({"/health", "/ready", "/v1/version"})
TITLE = "Hutch"
DESCRIPTION = "Sandboxes for AI agents. Errors have codes of one closed table; `retryable` says whether to try again."


def create_api(engine: Engine, options: ServerOptions) -> FastAPI:
    """The routes, without what guards them."""
    app = bare(Services(engine, options, program_version(), rate=rate_of(options)))
    parts = (
        *(health, metrics, sessions, sandboxes, processes, files, egress, code, git, streams, ports, drive, placing),
        *(access, handover, mypa, mypa_files),
    )
    for module in parts:
        app.include_router(module.router)
    _describe(app)
    return app


def program_version() -> str:
    found: str = importlib.import_module("hutch").__version__
    return found


def rate_of(options: ServerOptions) -> Rate | None:
    return Rate(options.rate, options.redis_url) if options.rate is not None else None


def bare(services: Services) -> FastAPI:
    app = FastAPI(
        title=TITLE,
        description=DESCRIPTION,
        version=services.version,
        responses=ERRORS,
        openapi_url=None,
        # Its own would tell what callers sent, in spans and logs; ours is `tracing`, which is told nothing of that.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.services = services
    answers.install(app)
    return app


def _describe(app: FastAPI) -> None:
    """The API's description, for those with a key: which of its calls need one is part of it."""
    plain = app.openapi

    def with_keys() -> dict[str, Any]:
        described = plain()
        described["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, operations in described["paths"].items():
            for operation in operations.values():
                operation["security"] = [] if path in PUBLIC else [{"key": []}]
        return described

    app.openapi = with_keys  # type: ignore[method-assign]  # as FastAPI documents it

    @app.get("/openapi.json", tags=["health"])
    async def description(caller: Reader) -> Response:
        """This description."""
        return Json(app.openapi())


def create_app(engine: Engine, options: ServerOptions, mounts: Mounts = NO_MOUNTS) -> ASGIApp:
    """`mounts`: apps beside the API, by their paths."""
    api = create_api(engine, options)
    services: Services = api.state.services
    trail = Trail(api, engine.audit)
    for watcher in (trail, services.metrics, Chronicle(), options.tracing):
        if watcher is not None:
            engine.watchers.add(watcher.watch)
    return guarded(trail, services, mounts)


def guarded(app: ASGIApp, services: Services, mounts: Mounts = NO_MOUNTS) -> Noting:
    options = services.options
    guard = Guard(Beside(app, services, mounts) if mounts else app, options.names, peers=options.peers)
    closing = None if services.rate is None else services.rate.aclose
    return Noting(guard, services.metrics, options.tracing, closing)
