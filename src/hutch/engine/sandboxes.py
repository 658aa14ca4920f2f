"""The sandboxes this process knows: found, made, woken, put to sleep, removed."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from hutch.engine.gauge import WorkspaceGauge
from hutch.engine.live import LiveSandbox
from hutch.engine.ownership import FolderLock, try_lock
from hutch.engine.steps import RETRY_DELAY, TAKE_OVER_SECONDS, Steps, moved
from hutch.lifecycle.sandbox import SandboxEvent
from hutch.model.errors import PoolExhausted, SandboxMoved, SandboxUnavailable, SessionExpiredError, StoreUnavailable
from hutch.model.ids import new_sandbox_id
from hutch.model.session import WORKSPACE_DIR
from hutch.model.template import Template
from hutch.providers.base import Machine, MachineSpec, Provider
from hutch.store.records import HostUidTaken, SandboxRecord
from hutch.store.store import Store

UID_TRIES = 8
USE_SHOWN_SECONDS = 1.0  # how old the row's activity may be where another process goes by it


class Sandboxes:
    def __init__(
        self,
        *,
        store: Store,
        provider: Provider,
        folder: Path,
        templates: Mapping[str, Template],
        max_running: int,
        trees: Path | None = None,
    ) -> None:
        self._store = store
        self._provider = provider
        self._folder = folder
        self.templates = templates
        self._max_running = max_running
        self._trees = trees  # what all but strict sandboxes see read-only
        self._naming = asyncio.Lock()
        self._claims: set[str] = set()  # sandboxes that run here, or are about to
        self.live: dict[str, LiveSandbox] = {}
        self._steps = Steps(store, provider, self.unclaim)
        self._unremoved: dict[str, LiveSandbox] = {}
        self.moving: set[str] = set()  # on their way to another worker
        self.on_capacity_needed: Callable[[], bool] = lambda: False  # the pool gives up a spare machine
        self.on_machine: Callable[[LiveSandbox, Machine], Awaitable[None]] = _nothing  # before it is used again

    # -- looking up

    async def find(self, tenant: str, sandbox_id: str) -> LiveSandbox:
        """Raises: SessionExpiredError when it is not there (any more), or is another tenant's; SandboxMoved."""
        live = self.live.get(sandbox_id)
        if live is None or live.removed:
            record = await self._store.sandbox(sandbox_id)
            if record is None or record.tenant != tenant:
                raise expired()
            self.check_ours(record)
            if record.state in ("removing", "removed"):
                raise expired()
            live = self.adopt(record)
        if live.record.tenant != tenant:
            raise expired()
        if sandbox_id in self.moving:
            raise moved(live.record)
        if live.overdue() and await self._really_overdue(live):
            raise expired()
        return live

    async def _really_overdue(self, live: LiveSandbox) -> bool:
        """Another process may have used it since we last did."""
        record = await self._store.sandbox(live.sandbox_id)
        if record is None:
            return True
        live.last_activity = max(live.last_activity, record.last_activity_at)
        return live.overdue()

    def check_ours(self, record: SandboxRecord) -> None:
        """Raises: SandboxMoved when another worker has it."""
        if record.worker_id != self._store.worker_id:
            raise moved(record)

    def adopt(self, record: SandboxRecord) -> LiveSandbox:
        """The one `LiveSandbox` of this process for a row."""
        live = self.live.get(record.sandbox_id)
        if live is None or live.removed:
            live = self.live[record.sandbox_id] = self.unlisted(record)
        return live

    def unlisted(self, record: SandboxRecord) -> LiveSandbox:
        """As `adopt`, of a row that is not this worker's yet."""
        template = self.templates[record.template]
        spec = MachineSpec(
            sandbox_id=record.sandbox_id,
            folder=self._folder / record.sandbox_id,
            limits=template.limits,
            strict=template.strict,
            host_uid=record.host_uid,
            trees=None if template.strict else self._trees,
        )
        gauge = WorkspaceGauge(template.limits)
        return LiveSandbox(record, template, spec, gauge, last_activity=record.last_activity_at)

    # -- capacity

    @property
    def running(self) -> int:
        return len(self._claims)

    def _claim(self, sandbox_id: str) -> None:
        if self.running >= self._max_running and not self.on_capacity_needed():
            raise PoolExhausted(
                f"Pool at max capacity: {self.running} sandboxes are running and MAX_POOL_SIZE is {self._max_running}. "
                "Close sessions that are done, or raise MAX_POOL_SIZE.",
                running=self.running,
                maximum=self._max_running,
            )
        self._claims.add(sandbox_id)

    def unclaim(self, live: LiveSandbox) -> None:
        """Its place may be taken, even when it is still being removed."""
        self._claims.discard(live.sandbox_id)

    # -- making and waking

    async def make(self, tenant: str, template: Template, *, idle_seconds: float, pooled: bool = False) -> LiveSandbox:
        """A new, running sandbox with a row of its own.

        Raises: PoolExhausted, WallMissing, SandboxUnavailable, StoreUnavailable.
        """
        sandbox_id = new_sandbox_id()
        self._claim(sandbox_id)
        try:
            live = self.adopt(await self._add_row(sandbox_id, tenant, template, idle_seconds, pooled))
            async with live.waking:
                await self._steps.start_new(live, make_folder)
            if live.machine is not None:
                live.gauge.starts_empty(live.machine)
            return live
        except BaseException:
            self._claims.discard(sandbox_id)
            self.live.pop(sandbox_id, None)
            raise

    async def _add_row(
        self, sandbox_id: str, tenant: str, template: Template, idle_seconds: float, pooled: bool
    ) -> SandboxRecord:
        now = time.time()
        async with self._naming:  # within this process no two ask for a free uid at once
            for _ in range(UID_TRIES):
                record = SandboxRecord(
                    sandbox_id=sandbox_id,
                    tenant=tenant,
                    template=template.name,
                    provider=self._provider.name,
                    state="creating",
                    host_uid=self._provider.allocate_uid(await self._store.taken_uids()),
                    cwd=WORKSPACE_DIR,
                    env={},
                    created_at=now,
                    last_activity_at=now,
                    deadline_at=now + idle_seconds,
                    deadline_action="remove",
                    idle_seconds=idle_seconds,
                    pooled=pooled,
                    worker_id=self._store.worker_id,
                )
                try:
                    await self._store.add_sandbox(record)
                    return record
                except HostUidTaken:
                    continue  # another process took the same one in the same moment
        raise SandboxUnavailable("No host uid of its own could be had for the sandbox. Widen HUTCH_UID_RANGE.")

    async def machine(self, live: LiveSandbox) -> Machine:
        """The running machine of `live`, started from its files when it does not run.

        Raises: SessionExpiredError, SandboxMoved, PoolExhausted, WallMissing, SandboxUnavailable.
        """
        machine = live.machine
        if machine is None or not machine.alive:
            machine = await self._woken(live)
        if live.lock is None:
            await self._show_use(live)
        return machine

    async def _show_use(self, live: LiveSandbox) -> None:
        """Another process runs the machine, and stops or removes it when the row says that nobody uses it.

        Raises: SessionExpiredError, SandboxMoved.
        """
        now = time.time()
        if now - live.use_shown < USE_SHOWN_SECONDS:
            return
        if not await self._store.use(live.sandbox_id, now, fence=live.record.fence):
            await self._refresh(live)
            raise SandboxUnavailable("The sandbox is changing hands. Try again.")
        live.use_shown = now

    async def _woken(self, live: LiveSandbox) -> Machine:
        async with live.waking:
            deadline = time.monotonic() + TAKE_OVER_SECONDS
            while (machine := live.machine) is None or not machine.alive:
                await self._refresh(live)
                if not await self._wake_here(live) and not await self._steps.reach(live):
                    if time.monotonic() > deadline:
                        raise SandboxUnavailable(
                            "Another process holds this sandbox but does not answer. Stop that process, or wait for it."
                        )
                    await asyncio.sleep(RETRY_DELAY)
            await self.on_machine(live, machine)
            return machine

    async def _refresh(self, live: LiveSandbox) -> None:
        record = await self._store.sandbox(live.sandbox_id)
        if record is not None and record.worker_id != self._store.worker_id:
            self._drop(live)
            raise moved(record)
        if live.removed or record is None or record.state in ("removing", "removed"):
            self._drop(live)
            raise expired()
        live.record = record

    async def keeps_files(self, live: LiveSandbox) -> bool:
        """Whether what is in it will be there at the next call; as far as can be told while the store is away."""
        try:
            await self._refresh(live)
        except (SessionExpiredError, SandboxMoved, StoreUnavailable):
            return not live.removed
        return True

    async def _wake_here(self, live: LiveSandbox) -> bool:
        """Start it, unless another process holds it (False)."""
        if live.lock is None:
            live.lock = try_lock(live.spec.folder)
        if live.lock is None:
            return False
        try:
            if live.sandbox_id not in self._claims:
                self._claim(live.sandbox_id)
            if live.record.state != "stopped":  # whoever ran it is gone, and its machine with it
                live.died = True
                live.machine = None
                await self._steps.apply(live, "died", "its machine, or the process that ran it, ended")
            await self._steps.apply(live, "wake")
        except BaseException:
            self._steps.release(live)
            raise
        return True

    # -- stopping and removing

    async def expire(self, live: LiveSandbox) -> bool:
        """Remove it, its time is over. False: another process has begun to use it."""
        began = await self._store.transition(
            live.sandbox_id,
            live.record.state,
            "removing",
            "expire",
            deadline_at=time.time(),
            deadline_action="remove",
            fence=live.record.fence,
            unused_since=live.last_activity if live.record.idle_seconds > 0 else None,
        )
        if began:
            live.record = replace(live.record, state="removing")
            await self.remove(live, "remove")
        return began

    async def put_to_rest(self, live: LiveSandbox) -> None:
        """Of a sandbox whose process died (we hold its lock): end what is left running, keep the files."""
        live.died = True
        try:
            await self._steps.apply(live, "died", "the process that ran it ended")
        finally:
            self._steps.release(live)

    async def stop(self, live: LiveSandbox, *, only_idle: bool = False) -> None:
        """End the processes; session and files stay. Only of machines that this process runs."""
        async with live.waking:
            if only_idle and live.busy:
                return  # somebody began to use it while we waited
            if live.lock is not None and not live.removed:
                await self._steps.apply(live, "stop")
                await self._steps.apply(live, "stopped")
                self._steps.release(live)

    async def remove(self, live: LiveSandbox, event: SandboxEvent) -> None:
        """End it and delete its files and its row, whichever process runs it.

        A removal that fails on the way is taken up again by the sweeper: the row says that it was begun.
        """
        live.removed = True
        try:
            await self._steps.apply(live, event)
        except StoreUnavailable:
            self._unremoved[live.sandbox_id] = live  # not even its row says so
            raise
        finally:
            self._steps.release(live)
            self._drop(live)

    async def remove_again(self) -> None:
        """What could not be removed while the store was away. Raises: HutchError."""
        while self._unremoved:
            _, live = self._unremoved.popitem()
            await self.remove(live, "remove")

    def _drop(self, live: LiveSandbox) -> None:
        live.removed = True
        live.drop_processes()
        if self.live.get(live.sandbox_id) is live:
            del self.live[live.sandbox_id]

    async def set_context(self, live: LiveSandbox, *, cwd: str | None, env: Mapping[str, str] | None) -> None:
        """Working folder and environment of later commands; kept across restarts."""
        record = live.record
        record = replace(record, cwd=record.cwd if cwd is None else cwd, env=dict(record.env if env is None else env))
        await self._store.set_context(live.sandbox_id, record.cwd, record.env, fence=record.fence)
        live.record = replace(live.record, cwd=record.cwd, env=record.env)

    async def let_go_of_others(self, *, keep_files: bool) -> int:
        """End what another worker took over while we were away; with its files, unless that worker uses the same.

        Raises: StoreUnavailable.
        """
        held = [live for live in self.live.values() if not live.removed]  # before the rows are read: all of it has one
        ours = await self._store.fences()
        lost = [live for live in held if ours.get(live.sandbox_id) != live.record.fence and not live.removed]
        await asyncio.gather(*(self._let_go(live, keep_files) for live in lost), return_exceptions=True)
        return len(lost)

    async def _let_go(self, live: LiveSandbox, keep_files: bool) -> None:
        live.removed = True
        async with live.waking:
            await self.forget(live, keep_files=keep_files)

    async def forget(self, live: LiveSandbox, *, keep_files: bool) -> None:
        """End what is here of a sandbox whose row is another worker's, or gone. With `live.waking` held."""
        live.removed = True
        machine, live.machine = live.machine, None
        try:
            if machine is not None:
                await machine.stop()
            if not keep_files:
                await self._provider.destroy(live.spec)
            elif live.lock is not None:
                await self._provider.sweep(live.spec)
        finally:
            self._steps.release(live)
            self._drop(live)

    async def close(self) -> None:
        """Stop what this process runs; files and sessions stay for the next one."""
        owned = [live for live in self.live.values() if live.lock is not None]
        await asyncio.gather(*(self.stop(live) for live in owned), return_exceptions=True)
        self._steps.close()

    def forget_after_fork(self) -> None:
        """In a forked child: nothing here is ours; give up copies of locks so that they die with the parent."""
        for live in self.live.values():
            if live.lock is not None:
                live.lock.forget()


async def _nothing(live: LiveSandbox, machine: Machine) -> None:
    pass


def make_folder(folder: Path) -> FolderLock:
    """The folder appears together with its lock: one that is there and not locked is always nobody's."""
    unnamed = folder.with_name(f".{folder.name}")
    lock: FolderLock | None = None
    try:
        unnamed.mkdir(mode=0o700)
        lock = try_lock(unnamed)
        unnamed.rename(folder)
        assert lock is not None
        return lock
    except OSError as error:
        if lock is not None:
            shutil.rmtree(unnamed, ignore_errors=True)
            lock.release()
        raise SandboxUnavailable(
            f"The folder for the sandbox cannot be made ({error.strerror}). Free space, or set HUTCH_DATA_DIR."
        ) from error


def expired() -> SessionExpiredError:
    return SessionExpiredError(
        "The session has ended and its files are gone. Call get_or_create_session to start a new one."
    )
