"""Carries out what the life cycle of a sandbox asks for, and writes each step down first.

Only the process that holds a sandbox's folder lock steps it, except for its removal, which takes the lock over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hutch.engine.live import LiveSandbox
from hutch.engine.ownership import FolderLock, try_lock
from hutch.lifecycle.sandbox import (
    DeleteFiles,
    ForgetSession,
    Instruction,
    SandboxEvent,
    SandboxLife,
    StartMachine,
    StopMachine,
    SweepMachine,
    step,
)
from hutch.model.errors import HutchError, SandboxMoved, SandboxUnavailable
from hutch.model.session import SandboxState
from hutch.providers.base import Machine, Provider
from hutch.store.records import SandboxRecord
from hutch.store.store import Store

TAKE_OVER_SECONDS = 10.0  # how long another process may take to let go of a sandbox
RETRY_DELAY = 0.01

log = logging.getLogger(__name__)


class Steps:
    def __init__(self, store: Store, provider: Provider, released: Callable[[LiveSandbox], None]) -> None:
        self._store = store
        self._provider = provider
        self._released = released  # tells who counts running sandboxes
        self._watchers: set[asyncio.Task[None]] = set()

    async def apply(self, live: LiveSandbox, event: SandboxEvent, detail: str = "") -> None:
        """Step the sandbox by `event`, then do what follows from it.

        Raises: WallMissing, SandboxUnavailable (a start failed), StoreUnavailable; SandboxMoved, nothing was done.
        """
        for instruction in await self._write(live, event, detail):
            await self._carry_out(live, instruction)

    async def _write(self, live: LiveSandbox, event: SandboxEvent, detail: str) -> tuple[Instruction, ...]:
        while True:
            before = live.record.state
            life, instructions = step(SandboxLife(before), event)
            assert life.state is not None
            if life.state == before or await self._transition(live, life.state, event, detail):
                live.record = replace(live.record, state=life.state)
                return instructions
            record = await self._store.sandbox(live.sandbox_id)  # another process stepped it: judge from there
            if record is None:
                live.removed = True
                return ()
            if (record.worker_id, record.fence) != (live.record.worker_id, live.record.fence):
                raise moved(record)
            live.record = record

    async def _transition(self, live: LiveSandbox, new: SandboxState, event: SandboxEvent, detail: str) -> bool:
        """A removal that was begun is due from now on: whoever looks for what is due takes it up when it breaks off."""
        due = time.time() if new == "removing" else None
        return await self._store.transition(
            live.sandbox_id,
            live.record.state,
            new,
            event,
            deadline_at=due,
            deadline_action=None if due is None else "remove",
            detail=detail,
            fence=live.record.fence,
        )

    async def _carry_out(self, live: LiveSandbox, instruction: Instruction) -> None:
        match instruction:
            case StartMachine():
                await self._start(live, "restart_failed")
            case StopMachine():
                await self._stop(live)
            case SweepMachine():
                await self._provider.sweep(live.spec)
            case DeleteFiles():
                await self._provider.destroy(live.spec)
            case ForgetSession():
                await self._store.remove(live.sandbox_id, fence=live.record.fence)
                self.release(live)
            case _:
                raise SandboxUnavailable("Another process is starting this sandbox.")

    # -- starting

    async def start_new(self, live: LiveSandbox, make_folder: Callable[[Path], FolderLock]) -> None:
        """The first start of a sandbox: one that fails leaves nothing.

        Raises: WallMissing, SandboxUnavailable.
        """
        await self._start(live, "start_failed", make_folder)

    async def _start(
        self, live: LiveSandbox, failed: SandboxEvent, make_folder: Callable[[Path], FolderLock] | None = None
    ) -> None:
        try:
            if make_folder is not None:
                live.lock = make_folder(live.spec.folder)
            machine = await self._provider.start(live.spec)
            self.attach(live, machine)
            await self.apply(live, "started")
        except BaseException as error:
            await asyncio.shield(self._undo_start(live, failed, str(error)))
            raise

    async def _undo_start(self, live: LiveSandbox, failed: SandboxEvent, reason: str) -> None:
        """Whatever could not be written down, no machine is left that nobody counts."""
        machine, live.machine = live.machine, None
        try:
            if machine is not None:
                await machine.stop()
            await self.apply(live, failed, reason)
        except HutchError as error:  # why the start failed says more; its row is looked at again when it is due
            log.warning("undo_failed sandbox=%s code=%s reason=%s", live.sandbox_id, error.code, error)
        finally:
            self.release(live)

    async def reach(self, live: LiveSandbox) -> bool:
        """Use a machine that another process runs, if there is one."""
        machine = await self._provider.reach(live.spec)
        if machine is None:
            return False
        self.attach(live, machine)
        return True

    def attach(self, live: LiveSandbox, machine: Machine) -> None:
        live.machine = machine
        watcher = asyncio.create_task(self._watch(live, machine))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _watch(self, live: LiveSandbox, machine: Machine) -> None:
        """Notice that a machine ended without being told to: files stay, the next call starts it again."""
        reason = await machine.wait_stopped()
        if live.machine is not machine:
            return
        live.machine = None
        if live.lock is None or live.removed:
            return
        live.died = True
        log.warning("sandbox_died sandbox=%s reason=%s", live.sandbox_id, reason)
        async with live.waking:
            if live.machine is None and live.lock is not None and not live.removed:
                await self.apply(live, "died", reason)
                self.release(live)

    # -- ending

    async def _stop(self, live: LiveSandbox) -> None:
        machine, live.machine = live.machine, None
        if machine is not None:
            await machine.stop()
        if live.lock is None:
            await self._take_over(live)

    async def _take_over(self, live: LiveSandbox) -> None:
        """Get the lock of a sandbox that another process may be running, by ending its machine.

        Raises: SandboxUnavailable.
        """
        deadline = time.monotonic() + TAKE_OVER_SECONDS
        while live.spec.folder.exists():
            live.lock = try_lock(live.spec.folder)
            if live.lock is not None:
                await self._provider.sweep(live.spec)
                return
            machine = await self._provider.reach(live.spec)
            if machine is not None:
                await machine.stop()
            if time.monotonic() > deadline:
                raise SandboxUnavailable("Another process does not let go of this sandbox. Stop that process.")
            await asyncio.sleep(RETRY_DELAY)

    def release(self, live: LiveSandbox) -> None:
        if live.lock is not None:
            live.lock.release()
            live.lock = None
        self._released(live)

    def close(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()


def moved(record: SandboxRecord) -> SandboxMoved:
    return SandboxMoved("Another worker has this sandbox now. Ask a coordinator, which knows.", worker=record.worker_id)
