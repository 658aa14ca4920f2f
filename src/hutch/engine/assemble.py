"""Wires an engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from hutch.engine.audit import Audit
from hutch.engine.belonging import SHARED, Belonging
from hutch.engine.context import Context
from hutch.engine.deadlines import Sweeper
from hutch.engine.drive.assemble import Drives, open_drives
from hutch.engine.egress.service import Egress
from hutch.engine.files import Files
from hutch.engine.git.service import Git
from hutch.engine.interpreter.service import Interpreter
from hutch.engine.interpreter.trees import Trees, trees_folder
from hutch.engine.keys import Keys
from hutch.engine.moving import Moving
from hutch.engine.observe import Watchers
from hutch.engine.placing import Placing
from hutch.engine.pool import Pool, PoolPlan
from hutch.engine.ports import Ports
from hutch.engine.previews import Previews
from hutch.engine.processes import Processes
from hutch.engine.recovery import recover
from hutch.engine.sandboxes import Sandboxes
from hutch.engine.sessions import Sessions
from hutch.engine.survey import Surveyor
from hutch.model.errors import SettingsInvalid, StoreUnavailable
from hutch.model.template import BASH, OPEN, Template, TemplateInfo
from hutch.model.wire import plain
from hutch.policy import OPEN as OPEN_PROFILE
from hutch.policy import STRICT, Judge
from hutch.providers.base import Provider
from hutch.providers.registry import make_provider
from hutch.settings import Settings
from hutch.store.audit import AuditStore
from hutch.store.database import Database, open_database
from hutch.store.egress import EgressStore
from hutch.store.keys import KeyStore
from hutch.store.locations import Locations
from hutch.store.previews import PreviewStore
from hutch.store.records import LOCAL_WORKER
from hutch.store.store import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Engine:
    settings: Settings
    store: Store
    provider: Provider
    sandboxes: Sandboxes
    sessions: Sessions
    processes: Processes
    files: Files
    code: Interpreter
    git: Git
    trees: Trees
    ports: Ports
    previews: Previews
    egress: Egress
    context: Context
    drive: Drives
    placing: Placing
    moving: Moving
    pool: Pool
    sweeper: Sweeper
    keys: Keys
    audit: Audit
    watchers: Watchers
    surveyor: Surveyor
    belonging: Belonging

    async def health(self) -> Mapping[str, Any]:
        """Walls, limits and counts, for doctor and the health page."""
        report = plain(await self.provider.report())
        if gap := await asyncio.to_thread(self.trees.gap):
            report["notes"].append(gap)
        return {"provider": report, "running": self.sandboxes.running, "spare": self.pool.spare}

    async def templates(self) -> list[TemplateInfo]:
        """What each kind of sandbox may do and use here."""
        return [_facts(template) for _, template in sorted(self.sandboxes.templates.items())]

    async def aclose(self) -> None:
        """End what this process runs. Sessions and files stay. A step that fails does not stop the next one."""
        async with contextlib.AsyncExitStack() as steps:
            steps.callback(self.belonging.close)
            for close in (
                self.store.aclose,
                self.provider.aclose,
                self.sandboxes.close,
                self.egress.close,
                self.pool.close,
                self.drive.close,
                self.audit.close,
                self.sweeper.close,
            ):
                steps.push_async_callback(close)  # the last one pushed is the first one called


@dataclass(frozen=True, slots=True)
class Place:
    """Where an engine stands among others that share its database."""

    worker_id: str = LOCAL_WORKER
    shared_data: bool = False  # the others see the same data folder
    database_url: str | None = None  # None: SQLite in the data folder
    announced: bool = False  # its name was claimed elsewhere


ALONE = Place()


async def assemble(settings: Settings, provider: Provider | None = None, place: Place = ALONE) -> Engine:
    """An engine that is ready: what earlier processes left is cleared up.

    Raises: StoreUnavailable, SettingsInvalid, NotSupported.
    """
    folder = _sandbox_folder(settings.data_dir)
    provider = provider or make_provider(
        settings.provider, settings.data_dir, settings.allow_missing, settings.uid_range
    )
    templates = _templates(settings)
    database = await open_database(place.database_url or settings.data_dir / "hutch.db")
    if not place.announced and not await database.claim(place.worker_id):
        await database.aclose()
        raise SettingsInvalid(
            f"A server named {place.worker_id!r} uses this database with a data folder of its own, and would take "
            "this one's sandboxes for its own. Give each a WORKER_ID, or a database of its own.",
            variable="WORKER_ID",
        )
    store = Store(database, place.worker_id)
    watchers = Watchers()
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(store.aclose)
        belonging = await _belonging(settings.data_dir, store, place)
        undo.callback(belonging.close)
        if place.announced:  # nobody else has this name: a coordinator that saw an earlier life of ours is too late
            await store.renew_fences()
        sandboxes = Sandboxes(
            store=store,
            provider=provider,
            folder=folder,
            templates=templates,
            max_running=settings.max_pool_size,
            trees=trees_folder(settings.data_dir),
        )
        await recover(store, provider, sandboxes, folder, BASH.limits, shared_data=place.shared_data)
        undo.pop_all()
    drives = open_drives(settings, None if place.database_url is None else database)
    engine = _wired(settings, provider, database, store, sandboxes, watchers, belonging, drives)
    engine.sweeper.start()
    engine.egress.start()
    engine.pool.fill()
    return engine


def _wired(
    settings: Settings,
    provider: Provider,
    database: Database,
    store: Store,
    sandboxes: Sandboxes,
    watchers: Watchers,
    belonging: Belonging,
    drives: Drives,
) -> Engine:
    judges = {"strict": Judge(STRICT), "open": Judge(OPEN_PROFILE)}
    pool, sweeper, sessions = _keeping(settings, store, sandboxes, watchers)
    egress = Egress(
        sandboxes=sandboxes,
        store=EgressStore(database),
        worker_id=store.worker_id,
        capabilities=provider.capabilities,
        private_tenants=settings.egress_private_tenants,
    )
    processes = Processes(sandboxes, judges.__getitem__, settings.max_command_timeout, watchers, egress)
    trees = Trees(trees_folder(settings.data_dir))
    files = Files(sandboxes, watchers)
    return Engine(
        settings=settings,
        store=store,
        provider=provider,
        sandboxes=sandboxes,
        sessions=sessions,
        processes=processes,
        files=files,
        code=Interpreter(sandboxes, trees, settings.max_command_timeout, watchers),
        trees=trees,
        git=Git(sandboxes, processes, settings.max_command_timeout),
        ports=Ports(sandboxes),
        previews=Previews(PreviewStore(database), sandboxes),
        egress=egress,
        context=Context(sandboxes),
        drive=drives,
        placing=Placing(drives.files, files, sandboxes),
        moving=Moving(sandboxes=sandboxes, store=store, locations=Locations(database), provider=provider),
        pool=pool,
        sweeper=sweeper,
        keys=Keys(KeyStore(database)),
        audit=Audit(AuditStore(database)),
        watchers=watchers,
        surveyor=Surveyor(sandboxes, pool, egress, settings.max_pool_size),
        belonging=belonging,
    )


def _keeping(
    settings: Settings, store: Store, sandboxes: Sandboxes, watchers: Watchers
) -> tuple[Pool, Sweeper, Sessions]:
    """What makes sandboxes ahead, ends them in time, and leases them."""
    pool = Pool(
        sandboxes=sandboxes,
        template=sandboxes.templates["bash"],
        plan=PoolPlan(settings.pool_size, settings.min_pool_size, settings.pool_refill_delay),
    )
    sweeper = Sweeper(
        store=store,
        sandboxes=sandboxes,
        stop_after=settings.idle_stop_seconds(),
        interval=settings.cleanup_interval,
        watchers=watchers,
    )
    sessions = Sessions(
        store=store,
        sandboxes=sandboxes,
        pool=pool,
        default_timeout=settings.session_timeout_minutes * 60,
        changed=sweeper.changed,
        watchers=watchers,
    )
    return pool, sweeper, sessions


def _templates(settings: Settings) -> dict[str, Template]:
    return {"bash": replace(BASH, limits=settings.bash_limits()), "open": OPEN}


def _facts(template: Template) -> TemplateInfo:
    limits = template.limits
    return {
        "name": template.name,
        "policy": template.policy,
        "programs": sorted(STRICT.programs) if template.strict else [],
        "timeout": limits.timeout,
        "memory_bytes": limits.memory_bytes,
        "file_bytes": limits.file_bytes,
        "workspace_bytes": limits.workspace_bytes,
        "workspace_files": limits.workspace_files,
    }


def _sandbox_folder(data_dir: Path) -> Path:
    folder = data_dir / "sandboxes"
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(data_dir, error) from error
    return folder


async def _belonging(data_dir: Path, store: Store, place: Place) -> Belonging:
    """Raises: SettingsInvalid, StoreUnavailable."""
    try:
        return Belonging(data_dir, await store.database_id(), SHARED if place.shared_data else place.worker_id)
    except OSError as error:
        raise _unusable(data_dir, error) from error


def _unusable(data_dir: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"The data folder {str(data_dir)!r} cannot be used: {error.strerror}. "
        "Set HUTCH_DATA_DIR to a folder that this user may write.",
        path=str(data_dir),
    )
