"""Wires an engine, and keeps the one engine that a process has for a data folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
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
from hutch.engine.loop import LoopThread, close_items
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


class EngineHome:
    """The engine of one data folder in this process, started at first use on a thread of its own."""

    def __init__(self, settings: Settings, make: Callable[[Settings], Coroutine[Any, Any, Engine]] = assemble) -> None:
        self.settings = settings
        self.thread = LoopThread("hutch-engine")
        self._make = make
        self._starting: asyncio.Task[Engine] | None = None
        self._engine: Engine | None = None
        self.closed = False

    async def do(self, act: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        """Run `act` on the engine's loop, from any loop."""
        if not self.thread.inside():
            return await self.thread.call(self.do, act)
        return await act(self._engine or await self._started())

    async def each(self, items: Callable[[Engine], AsyncIterator[T]]) -> AsyncIterator[T]:
        """Walk an engine's iterator from any loop."""

        async def begin(engine: Engine) -> AsyncIterator[T]:
            return items(engine)

        iterator = await self.do(begin)
        walk = iterator if self.thread.inside() else self.thread.iterate(iterator)
        try:
            async for item in walk:
                yield item
        finally:
            await close_items(walk)

    async def _started(self) -> Engine:
        if self._starting is None or (self._starting.done() and not _succeeded(self._starting)):
            self._starting = asyncio.create_task(self._make(self.settings))
        # Shielded: the first caller may give up while others wait for the same start.
        self._engine = await asyncio.shield(self._starting)
        return self._engine

    def close(self) -> None:
        """End the engine and its thread."""
        if self.closed:
            return
        self.closed = True

        async def end() -> None:
            if self._starting is not None:
                await asyncio.wait({self._starting})
                if _succeeded(self._starting):
                    await self._starting.result().aclose()

        try:
            if self._starting is not None:
                self.thread.run(end())
        finally:
            self.thread.stop()

    def forget_after_fork(self) -> object:
        """In a forked child: what runs is the parent's. Returns what must not be collected here."""
        relics = (self._engine, self._starting, self.thread.forget_after_fork())
        if self._engine is not None:
            self._engine.sandboxes.forget_after_fork()
        self._engine = self._starting = None
        return relics


def _succeeded(task: asyncio.Task[Engine]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


class _Homes:
    """One engine for each data folder of this process; a forked child starts its own at its first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._homes: dict[Path, EngineHome] = {}
        self._hooked = False
        self._relics: list[object] = []  # of the parent, in a forked child

    def get(self, settings: Settings) -> EngineHome:
        key = settings.data_dir.absolute()
        with self._lock:
            home = self._homes.get(key)
            if home is None or home.closed:
                home = self._homes[key] = EngineHome(settings)
                self._hook()
            return home

    def use(self, home: EngineHome) -> None:
        """Let this process use `home` for its data folder: an engine that was put together in another way."""
        with self._lock:
            self._homes[home.settings.data_dir.absolute()] = home
            self._hook()

    def _hook(self) -> None:
        if not self._hooked:
            self._hooked = True
            import concurrent.futures.thread  # noqa: F401 - registers its end before ours, which so comes first

            # Not `atexit`: by then the threads that the store and file calls use may start no more work.
            threading._register_atexit(self.close)  # type: ignore[attr-defined]  # used by concurrent.futures too
            os.register_at_fork(after_in_child=self._after_fork)

    def close(self) -> None:
        with self._lock:
            homes, self._homes = list(self._homes.values()), {}
        for home in homes:
            home.close()

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._relics += [home.forget_after_fork() for home in self._homes.values()]


# The one module-level instance there is: two engines on one data folder in one process would fight over its sandboxes.
HOMES = _Homes()
