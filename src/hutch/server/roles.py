"""What `hutch serve` puts together for each of its roles: an app, and what is to be done before it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from hutch.engine.access import ensure_first_key
from hutch.engine.assemble import Engine, Place, assemble
from hutch.model.errors import StoreUnavailable
from hutch.model.wire import PROTOCOL
from hutch.server.app import create_app, program_version
from hutch.server.mounts import NO_MOUNTS, Mounts
from hutch.server.preview.app import preview_app
from hutch.server.services import ServerOptions
from hutch.server.tracing import Tracing, open_tracing
from hutch.settings import ServerSettings, Settings

PATIENCE_SECONDS = 60.0
FORM_BYTES = 1024 * 1024  # of a form beside the file in it

log = logging.getLogger(__name__)


async def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class Role:
    app: ASGIApp
    previews: ASGIApp | None  # on a port of their own
    made_key: bool  # the first one, a moment ago
    begin: Callable[[], Awaitable[None]] = _nothing  # as soon as calls are answered
    before_end: Callable[[], Awaitable[None]] = _nothing  # while calls are still answered


@contextlib.asynccontextmanager
async def playing(
    settings: Settings, server: ServerSettings, url: str, mounts: Mounts = NO_MOUNTS
) -> AsyncIterator[Role]:
    """The role that `server` names; `url` is where it listens, `mounts` what callers find there beside the API.

    What the servers of a cluster share may start later than they, or be away for a moment: it is waited for.
    Raises: HutchError.
    """
    roles: dict[str, Callable[..., contextlib.AbstractAsyncContextManager[Role]]] = {
        "all": partial(_all, mounts=mounts),
        "worker": _worker,  # spoken to by coordinators, which have the mounts
        "coordinator": partial(_coordinator, mounts=mounts),
    }
    play = roles[server.role]
    deadline = time.monotonic() + (0 if server.role == "all" else PATIENCE_SECONDS)
    async with contextlib.AsyncExitStack() as ends:
        tracing = await ends.enter_async_context(_traced(server))
        options = options_of(server, tracing)
        while True:
            try:
                role = await ends.enter_async_context(play(settings, server, url, options))
                break
            except StoreUnavailable as error:
                if time.monotonic() > deadline:
                    raise
                log.warning("start_waits code=%s reason=%s", error.code, error)
                await asyncio.sleep(1)
        yield role


def options_of(server: ServerSettings, tracing: Tracing | None) -> ServerOptions:
    return ServerOptions(
        names=ServerOptions().names | {server.host} | server.allowed_hosts,
        peers=server.trusted_proxies,
        rate=server.rate,
        redis_url=server.redis_address(),
        mypa_open=server.mypa_open,
        worker_id=server.worker_id,
        preview_url=server.preview_address(),
        tracing=tracing,
    )


@contextlib.asynccontextmanager
async def _traced(server: ServerSettings) -> AsyncIterator[Tracing | None]:
    tracing = open_tracing() if server.traces else None
    try:
        yield tracing
    finally:
        if tracing is not None:
            await asyncio.to_thread(tracing.close)


@contextlib.asynccontextmanager
async def _engine(settings: Settings, server: ServerSettings) -> AsyncIterator[tuple[Engine, bool]]:
    place = Place()
    if server.database_url is not None:  # others may use it, too
        announced = server.role != "all"  # in Redis
        place = Place(server.worker_id, server.shared_data, server.database_url, announced)
    engine = await assemble(settings, place=place)
    try:
        yield engine, await ensure_first_key(engine.keys, settings.data_dir)
    finally:
        await engine.aclose()


def _previews(engine: Engine, options: ServerOptions) -> ASGIApp | None:
    return preview_app(engine, options) if options.preview_url is not None else None


@contextlib.asynccontextmanager
async def _all(
    settings: Settings, server: ServerSettings, url: str, options: ServerOptions, mounts: Mounts
) -> AsyncIterator[Role]:
    async with _engine(settings, server) as (engine, made):
        yield Role(create_app(engine, options, mounts), _previews(engine, options), made)


@contextlib.asynccontextmanager
async def _worker(settings: Settings, server: ServerSettings, url: str, options: ServerOptions) -> AsyncIterator[Role]:
    """Calls are counted by the coordinators that they come through."""
    # Here and below: one machine alone needs nothing of a cluster, Redis' library least of all.
    from hutch.cluster.membership import Membership
    from hutch.cluster.registry import Announcer, Registry, connect_redis
    from hutch.cluster.workers import WorkerInfo
    from hutch.server.drain import Drain

    async with contextlib.AsyncExitStack() as ends:
        redis = connect_redis(_redis(server))
        ends.push_async_callback(redis.aclose)
        reached = (server.advertise_url or url).rstrip("/")
        info = WorkerInfo(
            worker_id=server.worker_id,
            url=reached,
            preview_url=_with_port(reached, server.preview_port) if server.preview_port else None,
            protocol=PROTOCOL,
            version=program_version(),
            capacity=settings.max_pool_size,
        )
        announcer = Announcer(redis, info)
        async with announcer.starting():
            engine, made = await ends.enter_async_context(_engine(settings, server))
        membership = Membership(engine, announcer, shared_data=server.shared_data)
        names = options.names | {announcer.info.host}
        app = create_app(engine, replace(options, names=names, rate=None, worker_token=announcer.info.token))
        drain = Drain(engine.moving, membership, Registry(redis), server.shared_data)

        async def before_end() -> None:
            await drain.run(server.drain_seconds)

        await ends.enter_async_context(membership.joined())
        yield Role(app, _previews(engine, options), made, membership.begin, before_end)


@contextlib.asynccontextmanager
async def _coordinator(
    settings: Settings, server: ServerSettings, url: str, options: ServerOptions, mounts: Mounts
) -> AsyncIterator[Role]:
    from hutch.cluster.desk import open_desk
    from hutch.server.coordinator_app import create_coordinator
    from hutch.server.forward import Forward
    from hutch.server.preview.passing import passing_previews
    from hutch.server.seeds import asking

    assert server.database_url is not None, "checked with the settings"
    async with contextlib.AsyncExitStack() as ends:
        desk = await ends.enter_async_context(
            open_desk(server.database_url, _redis(server), settings, shared_data=server.shared_data)
        )
        made = await ensure_first_key(desk.access.keys, settings.data_dir)
        forward = Forward(desk.registry.alive)
        ends.push_async_callback(forward.aclose)
        await ends.enter_async_context(asking(server.workers, desk.registry))
        app = create_coordinator(desk, options, forward, settings.bash_limits().file_bytes + FORM_BYTES, mounts)
        yield Role(app, passing_previews(desk.locator, forward, options), made)


def _with_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def _redis(server: ServerSettings) -> str:
    found = server.redis_address()
    assert found is not None, "checked with the settings"
    return found
