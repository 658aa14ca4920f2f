"""Sessions: one sandbox for each (tenant, thread), however many callers ask for it at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from hutch.engine.live import LiveSandbox
from hutch.engine.observe import EventName, Observation, Watchers, about, ended
from hutch.engine.pool import Pool
from hutch.engine.sandboxes import Sandboxes, expired
from hutch.model.clock import iso
from hutch.model.errors import HutchError, InvalidRequest, SessionExpiredError, ThreadOwnedByOther
from hutch.model.ids import new_session_id
from hutch.model.session import WORKSPACE_DIR, SandboxInfo, SessionInfo
from hutch.store.records import SandboxRecord, SessionRecord
from hutch.store.store import Store

MAX_NAME_LENGTH = 512
MAX_TIMEOUT_MINUTES = 60 * 24 * 365


@dataclass(frozen=True, slots=True)
class SessionRequest:
    tenant: str
    user_id: str
    thread_id: str
    timeout_minutes: float | None = None  # None: the setting's
    template: str = "bash"
    shared: bool = False  # other users of the tenant may join the thread
    renews: bool = False  # the caller had a session, which expired


@dataclass(slots=True)
class _ThreadLocks:
    """A lock for each thread while somebody needs it."""

    locks: dict[tuple[str, str], tuple[asyncio.Lock, int]] = field(
        default_factory=dict[tuple[str, str], tuple[asyncio.Lock, int]]
    )

    @asynccontextmanager
    async def of(self, key: tuple[str, str]) -> AsyncIterator[None]:
        lock, users = self.locks.get(key, (asyncio.Lock(), 0))
        self.locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self.locks[key]
            if users == 1:
                del self.locks[key]
            else:
                self.locks[key] = (lock, users - 1)


class Sessions:
    def __init__(
        self,
        *,
        store: Store,
        sandboxes: Sandboxes,
        pool: Pool,
        default_timeout: float,
        changed: Callable[[], None],
        watchers: Watchers,
    ) -> None:
        self._store = store
        self._sandboxes = sandboxes
        self._pool = pool
        self._default_timeout = default_timeout
        self._changed = changed  # tells the sweeper that there is a new deadline
        self._watchers = watchers
        self._locks = _ThreadLocks()

    async def get_or_create(self, request: SessionRequest) -> tuple[SessionInfo, str]:
        """The session of a thread and the id of its sandbox, which runs when this returns.

        Raises: InvalidRequest, ThreadOwnedByOther, PoolExhausted, WallMissing, SandboxUnavailable, StoreUnavailable,
        SandboxMoved.
        """
        timeout = self._check(request)
        began = time.perf_counter()
        try:
            live, created = await self._found_or_made(request, timeout)
        except HutchError as error:
            self._watchers.tell(_failed(request, error))
            raise
        event: EventName = ("session_renewed" if request.renews else "session_created") if created else "session_reused"
        if self._watchers:
            took = (time.perf_counter() - began) * 1000
            self._watchers.tell(about(event, live, duration_ms=took, renews=request.renews))
        return _info(live, "created" if created else "existing"), live.sandbox_id

    async def _found_or_made(self, request: SessionRequest, timeout: float) -> tuple[LiveSandbox, bool]:
        async with self._locks.of((request.tenant, request.thread_id)):
            live = await self._existing(request)
            if live is not None:
                await self._sandboxes.machine(live)
                return live, False
            made = await self._create(request, timeout)
        self._changed()
        return made

    def _check(self, request: SessionRequest) -> float:
        for name, value in (("user_id", request.user_id), ("thread_id", request.thread_id)):
            if not isinstance(value, str) or not value or len(value) > MAX_NAME_LENGTH or "\0" in value:
                raise InvalidRequest(f"{name} must be a text of 1 to {MAX_NAME_LENGTH} characters, not {value!r:.60}.")
        if request.template not in self._sandboxes.templates:
            known = ", ".join(sorted(self._sandboxes.templates))
            raise InvalidRequest(f"There is no template {request.template!r}; there are: {known}.")
        minutes = request.timeout_minutes
        if minutes is None:
            return self._default_timeout
        if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 < minutes <= MAX_TIMEOUT_MINUTES:
            raise InvalidRequest(f"timeout_minutes must be more than 0 and at most {MAX_TIMEOUT_MINUTES}.")
        return minutes * 60

    async def _existing(self, request: SessionRequest) -> LiveSandbox | None:
        live = await self.find(request.tenant, request.thread_id, request.user_id)
        if live is None:
            return None
        if live.template.name != request.template:
            raise InvalidRequest(
                f"Thread {request.thread_id!r} has a sandbox of template {live.template.name!r} already; "
                f"close it before asking for {request.template!r}, or use another thread."
            )
        live.touch()
        return live

    async def find(self, tenant: str, thread_id: str, user_id: str | None) -> LiveSandbox | None:
        """The live session of a thread, if there is one.

        Raises: ThreadOwnedByOther when it is not `user_id`'s (None asks for the tenant).
        """
        pair = await self._store.session_by_thread(tenant, thread_id)
        if pair is None:
            return None
        session, record = pair
        if user_id is not None and session.user_id != user_id and not session.shared:
            raise ThreadOwnedByOther(
                f"Thread {thread_id!r} belongs to another user. Use a thread_id of your own.", thread_id=thread_id
            )
        try:
            live = await self._sandboxes.find(tenant, record.sandbox_id)
        except SessionExpiredError:
            await self._finish_removal(record)
            return None
        live.session = session
        return live

    async def _finish_removal(self, record: SandboxRecord) -> None:
        """A session that ended but was not cleared away yet makes place for the next one."""
        row = await self._store.sandbox(record.sandbox_id)
        if row is None:
            return
        live = self._sandboxes.adopt(row)
        if row.state in ("removing", "removed"):
            await self._sandboxes.remove(live, "expire")
        else:
            await self._sandboxes.expire(live)

    async def _create(self, request: SessionRequest, timeout: float) -> tuple[LiveSandbox, bool]:
        live = await self._pool.take(request.tenant, self._sandboxes.templates[request.template], timeout)
        now = time.time()
        wanted = SessionRecord(
            session_id=new_session_id(),
            tenant=request.tenant,
            thread_id=request.thread_id,
            user_id=request.user_id,
            sandbox_id=live.sandbox_id,
            created_at=now,
            timeout_seconds=timeout,
            shared=request.shared,
        )
        try:
            session, record, created = await self._store.bind_session(wanted, live.record)
        except BaseException:
            await asyncio.shield(self._sandboxes.remove(live, "remove"))  # nobody knows of it
            raise
        if created:
            live.session, live.record = session, record
            live.touch()
            return live, True
        await self._sandboxes.remove(live, "remove")  # another process was first
        if session.user_id != request.user_id and not session.shared:
            raise ThreadOwnedByOther(f"Thread {request.thread_id!r} belongs to another user.")
        self._sandboxes.check_ours(record)
        live = self._sandboxes.adopt(record)
        live.session = session
        await self._sandboxes.machine(live)
        return live, False

    async def sandbox_of(self, tenant: str, session_id: str) -> str:
        """The sandbox of a session. Raises: SessionExpiredError."""
        pair = await self._store.session(session_id)
        if pair is None or pair[0].tenant != tenant:
            raise expired()
        return pair[1].sandbox_id

    async def close(self, tenant: str, sandbox_id: str) -> None:
        """End a session and delete its files. Fine when it has ended already."""
        try:
            live = await self._sandboxes.find(tenant, sandbox_id)
        except SessionExpiredError:
            return
        await self._sandboxes.remove(live, "remove")
        self._watchers.tell(ended("session_cleaned_up", live))
        self._changed()

    async def find_info(self, tenant: str, thread_id: str, user_id: str | None) -> SandboxInfo | None:
        """As `find`, for those who ask from outside."""
        live = await self.find(tenant, thread_id, user_id)
        return await self.info(tenant, live.sandbox_id) if live is not None else None

    async def list(self, tenant: str) -> list[SandboxInfo]:
        rows = await self._store.sessions(tenant)
        return [self._sandbox_info(session, record) for session, record in rows]

    async def info(self, tenant: str, sandbox_id: str) -> SandboxInfo:
        """Raises: SessionExpiredError."""
        await self._sandboxes.find(tenant, sandbox_id)
        bound = await self._store.session_of_sandbox(sandbox_id)
        if bound is None:
            raise expired()
        return self._sandbox_info(*bound)

    def _sandbox_info(self, session: SessionRecord, record: SandboxRecord) -> SandboxInfo:
        live = self._sandboxes.live.get(record.sandbox_id)
        seen = max(record.last_activity_at, live.last_activity if live is not None else 0.0)
        return {
            "sandbox_id": record.sandbox_id,
            "session_id": session.session_id,
            "thread_id": session.thread_id,
            "user_id": session.user_id,
            "template": record.template,
            "provider": record.provider,
            "state": record.state,
            "cwd": record.cwd,
            "created_at": iso(session.created_at),
            "last_activity": iso(seen),
            "expires_at": iso(seen + session.timeout_seconds),
            "processes": sum(1 for _ in live.running_processes()) if live is not None else 0,
        }


def _info(live: LiveSandbox, status: str) -> SessionInfo:
    session = live.session
    assert session is not None
    return {
        "session_id": session.session_id,
        "thread_id": session.thread_id,
        "user_id": session.user_id,
        "status": "created" if status == "created" else "existing",
        "workspace_dir": WORKSPACE_DIR,
        "created_at": iso(session.created_at),
        "last_activity": iso(live.last_activity),
        "expires_at": iso(live.last_activity + session.timeout_seconds),
        "template": live.template.name,
    }


def _failed(request: SessionRequest, error: HutchError) -> Observation:
    return Observation(
        "session_creation_failed",
        tenant=request.tenant,
        thread_id=request.thread_id,
        user_id=request.user_id,
        renews=request.renews,
        code=error.code,
    )
