"""Sandboxes made ahead of their sessions.

A sandbox that a session has used is never handed to another one: it is destroyed, and a fresh one takes its place.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace

from hutch.engine.live import LiveSandbox
from hutch.engine.sandboxes import Sandboxes
from hutch.model.errors import HutchError, PoolExhausted
from hutch.model.template import Template

POOL_TENANT = "-"  # nobody's, until a session takes it
POOLED_LIFE = 365 * 24 * 3600.0  # its process decides when it goes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoolPlan:
    size: int  # made at start
    minimum: int  # kept ready from then on
    refill_delay: float


class Pool:
    def __init__(self, *, sandboxes: Sandboxes, template: Template, plan: PoolPlan) -> None:
        self._sandboxes = sandboxes
        self._template = template
        self._plan = plan
        self._spare: list[LiveSandbox] = []
        self.hits = self.misses = 0  # new sessions that found a spare sandbox, and that had to wait for theirs
        self._made = asyncio.Event()  # clear while a spare sandbox is being made
        self._made.set()
        self._refilling: asyncio.Task[None] | None = None
        self._giving_up: set[asyncio.Task[None]] = set()
        sandboxes.on_capacity_needed = self._give_up_one

    @property
    def spare(self) -> int:
        return len(self._spare)

    def fill(self) -> None:
        """Start filling up to the pool's size, in the background."""
        if self._plan.size:
            self._refilling = asyncio.create_task(self._refill(0.0, self._plan.size))

    async def take(self, tenant: str, template: Template, idle_seconds: float) -> LiveSandbox:
        """A running sandbox for a new session: a spare one, else one made now.

        Its row becomes the session's when the session is bound to it.
        """
        while True:
            while template.name == self._template.name and self._spare:
                live = self._spare.pop()
                self._refill_later()
                if live.running:
                    self.hits += 1
                    return _handed_over(live, tenant, idle_seconds)
                await self._sandboxes.remove(live, "remove")
            try:
                made = await self._sandboxes.make(tenant, template, idle_seconds=idle_seconds)
                self.misses += 1
                return made
            except PoolExhausted:
                if self._made.is_set():
                    raise
                await self._made.wait()  # the last place is a spare sandbox's that is being made: use it or its place

    def _refill_later(self) -> None:
        if self._plan.minimum and (self._refilling is None or self._refilling.done()):
            self._refilling = asyncio.create_task(self._refill(self._plan.refill_delay, self._plan.minimum))

    async def _refill(self, delay: float, target: int) -> None:
        await asyncio.sleep(delay)
        while len(self._spare) < target:
            self._made.clear()
            try:
                live = await self._sandboxes.make(POOL_TENANT, self._template, idle_seconds=POOLED_LIFE, pooled=True)
            except PoolExhausted:
                return  # sessions have all the places; the next take asks again
            except HutchError as error:
                log.warning("pool_refill_failed code=%s reason=%s", error.code, error)
                return
            finally:
                self._made.set()
            self._spare.append(live)

    def _give_up_one(self) -> bool:
        """A session needs a place and all are taken: a spare sandbox goes. True when one did."""
        if not self._spare:
            return False
        live = self._spare.pop()
        self._sandboxes.unclaim(live)
        task = asyncio.create_task(self._sandboxes.remove(live, "remove"))
        self._giving_up.add(task)
        task.add_done_callback(self._giving_up.discard)
        return True

    async def close(self) -> None:
        if self._refilling is not None:
            self._refilling.cancel()
            await asyncio.gather(self._refilling, return_exceptions=True)
        spare, self._spare = self._spare, []
        await asyncio.gather(
            *self._giving_up, *(self._sandboxes.remove(live, "remove") for live in spare), return_exceptions=True
        )


def _handed_over(live: LiveSandbox, tenant: str, idle_seconds: float) -> LiveSandbox:
    now = time.time()
    live.record = replace(
        live.record, tenant=tenant, last_activity_at=now, deadline_at=now + idle_seconds, idle_seconds=idle_seconds
    )
    return live
