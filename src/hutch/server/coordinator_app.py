"""The whole of a coordinator: what it answers itself, what it passes on, and what guards both."""

from __future__ import annotations

from starlette.types import ASGIApp

from hutch.cluster.desk import Desk
from hutch.server.app import bare, guarded, program_version, rate_of
from hutch.server.coordinator import Coordinator
from hutch.server.forward import Forward
from hutch.server.mounts import NO_MOUNTS, Mounts
from hutch.server.routes import access, cluster, drive, metrics
from hutch.server.services import ServerOptions, Services
from hutch.server.trail import Trail


def create_coordinator(
    desk: Desk, options: ServerOptions, forward: Forward, max_upload_bytes: int, mounts: Mounts = NO_MOUNTS
) -> ASGIApp:
    services = Services(None, options, program_version(), desk.access, desk.drive, rate=rate_of(options))
    own = bare(services)
    own.state.registry = desk.registry
    for module in (cluster, metrics, access, drive):
        own.include_router(module.router)
    trail = Trail(own, desk.access.audit)  # what is passed on, its worker writes down
    return guarded(Coordinator(trail, services, desk.locator, forward, max_upload_bytes), services, mounts)
