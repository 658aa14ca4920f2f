"""Which worker a call belongs to: the database says whose a sandbox is, Redis who is alive.

Placement of a new thread is a lease in Redis, so that coordinators agree; that there is one sandbox for a thread is
kept by the database alone. What a dead worker had is taken over by compare-and-set on its row, whose `fence` grows: the
old worker, should it come back, can write nothing there any more.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from hutch.cluster.leases import Places
from hutch.cluster.registry import ALIVE_SECONDS, HEARTBEAT_SECONDS, Registry
from hutch.cluster.workers import WorkerInfo, by_preference
from hutch.model.errors import PoolExhausted, SandboxUnavailable, SessionExpiredError, WorkerLost
from hutch.model.location import Location
from hutch.store.locations import Locations

KNOWN_SECONDS = 1.0  # where a sandbox was, is believed for that long; its worker says when it is wrong
RETURN_SECONDS = 120.0  # a worker that was told to end and kept sandboxes is expected back for that long
KNOWN_AT_MOST = 50_000
PLACED_AT_MOST = 10_000


class Locator:
    def __init__(self, locations: Locations, registry: Registry, places: Places, *, shared_data: bool) -> None:
        self._locations = locations
        self._registry = registry
        self._places = places
        self._shared = shared_data
        self._placed: deque[tuple[float, str]] = deque(maxlen=PLACED_AT_MOST)
        self._known: dict[str, tuple[Location, float]] = {}

    @property
    def workers(self) -> Sequence[WorkerInfo]:
        return tuple(self._registry.view.workers.values())

    def forget(self, sandbox_id: str) -> None:
        """Its worker says that it is not there."""
        self._known.pop(sandbox_id, None)

    async def sandbox(self, tenant: str, sandbox_id: str) -> WorkerInfo:
        """Raises: SessionExpiredError (also of another tenant's), WorkerLost, StoreUnavailable."""
        return await self._of(await self._location(sandbox_id), tenant)

    async def anybodys(self, sandbox_id: str) -> WorkerInfo:
        """For those whose right to it its worker judges. Raises: as `sandbox`."""
        location = await self._location(sandbox_id)
        return await self._of(location, "" if location is None else location.tenant)

    async def _location(self, sandbox_id: str) -> Location | None:
        known = self._known.get(sandbox_id)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        location = await self._locations.sandbox(sandbox_id)
        if location is not None:
            self._remember(location)
        return location

    async def session(self, tenant: str, session_id: str) -> WorkerInfo:
        """Raises: as `sandbox`."""
        return await self._of(await self._locations.session(session_id), tenant)

    async def thread(self, tenant: str, thread_id: str) -> WorkerInfo | None:
        """The worker of a thread that has a sandbox; None when it has none (any more). Raises: WorkerLost."""
        location = await self._locations.thread(tenant, thread_id)
        if location is None:
            return None
        if location.state in ("removing", "removed") and (holder := self._alive(location)) is not None:
            return holder  # only it can finish the removal, and make place for the next one
        try:
            return await self._of(location, tenant)
        except SessionExpiredError:
            return None

    async def place(self, tenant: str, thread_id: str, tried: frozenset[str] = frozenset()) -> WorkerInfo:
        """A worker for a thread that has no sandbox. Raises: PoolExhausted, StoreUnavailable."""
        view = await self._registry.refresh()  # now: a stale view would crowd one worker
        counted = [self._with_recent(worker) for worker in view.workers.values() if worker.worker_id not in tried]
        able = by_preference(counted)
        if not any(worker.alive for worker in view.workers.values()):
            raise nobody()
        if not able:
            raise PoolExhausted(
                f"Pool at max capacity: none of {len(view.workers)} workers takes another sandbox. "
                "Close sessions that are done, raise MAX_POOL_SIZE of the workers, or add one.",
                workers=len(view.workers),
            )
        chosen = await self._places.claim(tenant, thread_id, able[0].worker_id)
        found = view.workers.get(chosen)
        if found is None or not found.takes_more:
            await self._places.release(tenant, thread_id, chosen)  # it went in between
            found = able[0]
        self._placed.append((time.monotonic(), found.worker_id))
        return found

    def _with_recent(self, worker: WorkerInfo) -> WorkerInfo:
        """With what was given to it since it last counted, or a crowd would all go to one."""
        while self._placed and self._placed[0][0] < time.monotonic() - HEARTBEAT_SECONDS:
            self._placed.popleft()
        recent = sum(1 for _, worker_id in self._placed if worker_id == worker.worker_id)
        return replace(worker, running=worker.running + recent)

    async def not_there(self, tenant: str, thread_id: str, worker: WorkerInfo) -> None:
        """The worker could not take the thread: let another one be chosen."""
        await self._places.release(tenant, thread_id, worker.worker_id)

    # -- whose it is

    async def _of(self, location: Location | None, tenant: str) -> WorkerInfo:
        if location is None or location.tenant != tenant or location.state in ("removing", "removed"):
            raise SessionExpiredError(
                "The session has ended and its files are gone. Call get_or_create_session to start a new one."
            )
        holder = self._alive(location)
        if holder is not None:
            return holder
        if not self._registry.view.trusted:
            if (worker := self._registry.view.workers.get(location.worker_id)) is not None:
                return worker  # Redis is away, not the worker: whoever tries it learns more
            raise _silent(location.worker_id)
        if self._comes_back(location):
            raise _silent(location.worker_id)
        return await self._bury(location)

    def _comes_back(self, location: Location) -> bool:
        worker = self._registry.view.workers.get(location.worker_id)
        return worker is not None and time.time() < worker.ended_at + RETURN_SECONDS

    def _alive(self, location: Location) -> WorkerInfo | None:
        worker = self._registry.view.workers.get(location.worker_id)
        return worker if worker is not None and worker.alive else None

    async def bury_left_behind(self) -> int:
        """What dead workers had and nobody will ask for any more: its time has come, or it was spare.

        Raises: StoreUnavailable.
        """
        view = self._registry.view
        if not view.trusted:
            return 0
        alive = [worker.worker_id for worker in view.workers.values() if worker.alive]
        found = await self._locations.left_behind(alive, time.time())
        count = 0
        for location in found:
            if self._alive(location) is not None or self._comes_back(location) or not self._registry.view.trusted:
                continue
            with contextlib.suppress(SessionExpiredError, SandboxUnavailable):
                count += 1
                await self._bury(location)
        return count

    async def _bury(self, location: Location) -> WorkerInfo:
        """Its worker is dead: another takes the files over, or, where none can, the sandbox has ended."""
        self.forget(location.sandbox_id)
        if self._shared:
            heirs = by_preference(self._registry.view.workers.values())
            if not heirs:
                raise nobody()
            heir = heirs[0]
            if await self._locations.move(location, heir.worker_id):
                return heir
            return await self._of(await self._locations.sandbox(location.sandbox_id), location.tenant)
        await self._locations.abandon(location)
        raise SessionExpiredError(
            f"The machine {location.worker_id} that ran this sandbox died, and its files with it. "
            "Call get_or_create_session to start a new one.",
            worker=location.worker_id,
        )

    def _remember(self, location: Location) -> None:
        if len(self._known) >= KNOWN_AT_MOST:
            self._known.clear()
        self._known[location.sandbox_id] = (location, time.monotonic() + KNOWN_SECONDS)


def nobody() -> SandboxUnavailable:
    return SandboxUnavailable("No worker is there. Start one with hutch serve --role worker.")


def _silent(worker_id: str) -> WorkerLost:
    return WorkerLost(
        f"The machine {worker_id} that runs this sandbox does not answer. Whether it comes back is known in a moment.",
        retry_after=round(ALIVE_SECONDS),
        worker=worker_id,
    )
