"""The one sweeper: puts idle sandboxes to sleep, removes expired ones, and writes activity down now and then.

Activity is kept in memory and written at most every 15 seconds. Before it acts on a sandbox the sweeper reads its row,
because another process may have used the sandbox meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any

from hutch.engine.live import LiveSandbox
from hutch.engine.observe import Watchers, ended
from hutch.engine.ownership import try_lock
from hutch.engine.sandboxes import Sandboxes
from hutch.lifecycle.deadline import Deadline, Facts, next_deadline, rule_of, when_due
from hutch.model.errors import HutchError
from hutch.store.records import Touch
from hutch.store.store import Store

FLUSH_SECONDS = 15.0
SHORTEST_SLEEP = 0.02

log = logging.getLogger(__name__)


class Sweeper:
    def __init__(
        self, *, store: Store, sandboxes: Sandboxes, stop_after: float | None, interval: float, watchers: Watchers
    ) -> None:
        self._store = store
        self._sandboxes = sandboxes
        self._stop_after = stop_after
        self._interval = interval
        self._watchers = watchers
        self._changed = asyncio.Event()
        self._written: dict[str, Touch] = {}  # what the rows have
        self._next_flush = 0.0
        self._task: asyncio.Task[None] | None = None
        self._next_look = 0.0  # at sandboxes that no process holds

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def changed(self) -> None:
        """There is a new deadline: look when the next one is."""
        self._changed.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._flush()

    async def _run(self) -> None:
        while True:
            try:
                await self._sweep()
                if time.time() >= self._next_flush:
                    await self._flush()
            except Exception as error:
                # The store may be locked or full for a while; deadlines wait, sandboxes go on. And whatever else it is:
                # a sweeper that ended would let every sandbox live for ever.
                log.warning("sweep_failed reason=%s", error, exc_info=not isinstance(error, HutchError))
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._changed.wait()

    def _pause(self) -> float:
        now = time.time()
        deadlines = [self._deadline(live, now).at - now for live in self._held()]
        return max(SHORTEST_SLEEP, min([FLUSH_SECONDS, self._interval, *deadlines]))

    def _held(self) -> Iterable[LiveSandbox]:
        return [live for live in self._sandboxes.live.values() if not live.removed and not live.record.pooled]

    def _facts(self, live: LiveSandbox, now: float) -> Facts:
        return Facts(now=now, last_activity=live.last_activity, busy=live.busy > 0, machine_runs=live.lock is not None)

    def _deadline(self, live: LiveSandbox, now: float) -> Deadline:
        rule = rule_of(live.record.idle_seconds, live.record.deadline_at, self._stop_after)
        return next_deadline(rule, self._facts(live, now))

    async def _sweep(self) -> None:
        await self._sandboxes.remove_again()
        for live in self._held():
            await self._attend(live.sandbox_id, self._look_at(live))
        if time.time() >= self._next_look:
            self._next_look = time.time() + self._interval
            for record in await self._store.due(time.time()):
                if record.sandbox_id not in self._sandboxes.live:
                    live = self._sandboxes.adopt(record)
                    await self._attend(live.sandbox_id, self._look_at_unheld(live))

    async def _attend(self, sandbox_id: str, look: Coroutine[Any, Any, None]) -> None:
        """One sandbox that makes trouble does not keep the others from their deadlines."""
        try:
            await look
        except HutchError as error:
            log.warning("sweep_failed sandbox=%s code=%s reason=%s", sandbox_id, error.code, error)

    async def _look_at(self, live: LiveSandbox) -> None:
        now = time.time()
        rule = rule_of(live.record.idle_seconds, live.record.deadline_at, self._stop_after)
        if live.record.state == "removing":  # begun, and broken off by a crash or a failure
            return await self._sandboxes.remove(live, "remove")
        if isinstance(when_due(rule, self._facts(live, now)), Deadline):
            return
        record = await self._store.sandbox(live.sandbox_id)
        if record is None:
            return await self._sandboxes.remove(live, "expire")
        live.record = replace(live.record, state=record.state)
        live.last_activity = max(live.last_activity, record.last_activity_at)
        action = when_due(rule, self._facts(live, time.time()))
        if isinstance(action, Deadline):
            return
        if action == "remove":
            if await self._sandboxes.expire(live):
                self._watchers.tell(ended("session_expired", live))
        else:
            log.info("session_slept sandbox=%s", live.sandbox_id)
            await self._sandboxes.stop(live, only_idle=True)

    async def _look_at_unheld(self, live: LiveSandbox) -> None:
        """A sandbox of a process that is gone. One that another process holds is that process's to sweep."""
        lock = try_lock(live.spec.folder)
        if lock is None and live.spec.folder.exists():
            self._sandboxes.live.pop(live.sandbox_id, None)
            return
        if lock is not None:
            lock.release()
        await self._look_at(live)

    async def _flush(self) -> None:
        """Write what is news: activity, and deadlines that a running process moves on.

        Whoever finds the row after a crash must not think that a busy sandbox has expired.
        """
        now = time.time()
        self._next_flush = now + FLUSH_SECONDS
        for live in self._held():
            if live.busy:
                live.touch()  # what runs is activity, and other processes know it from the row only
        rows = {live.sandbox_id: Touch(live.last_activity, *self._deadline(live, now)) for live in self._held()}
        news = {name: row for name, row in rows.items() if self._written.get(name) != row}
        await self._store.touch(news)
        self._written = rows
