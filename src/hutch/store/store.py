"""The store: what the engine asks of durable state, one method per question.

Each call is one transaction. All of them raise StoreUnavailable (cause and remedy in the message) and, after `aclose`,
ClientClosed. A call that is cancelled may still be written.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from hutch.model.errors import InvalidRequest, SandboxNotFound
from hutch.model.session import DeadlineAction, SandboxState
from hutch.store import statements
from hutch.store.database import BUSY_SECONDS, Connection, Database, open_database
from hutch.store.records import LOCAL_WORKER, Binding, Bound, EventRecord, SandboxRecord, SessionRecord, Touch
from hutch.store.rows import EVENT_COLUMNS, encode_cwd, encode_env, event_record

_MAX_DETAIL = 2000  # characters of an event's detail: it may quote what came out of a sandbox


class Store:
    """Sandboxes, sessions and events of one worker: lists are of its own, changes to another's rows are refused."""

    def __init__(self, database: Database, worker_id: str = LOCAL_WORKER) -> None:
        self._database = database
        self.worker_id = worker_id

    @classmethod
    async def open(cls, place: Path | str, *, busy_seconds: float = BUSY_SECONDS) -> Store:
        """Open a file, made when missing, or the PostgreSQL of a URL; several processes may have it open.

        Raises: StoreUnavailable (locked, full, unwritable, unreachable, not a database, newer schema).
        """
        return cls(await open_database(place, busy_seconds=busy_seconds))

    async def aclose(self) -> None:
        await self._database.aclose()

    async def database_id(self) -> str:
        """A name that the database was given once, the same through every address and copy of it."""

        def named(connection: Connection) -> str:
            row = connection.execute("SELECT database_id FROM identity").fetchone()
            return "" if row is None else str(row[0])

        def name(connection: Connection) -> str:
            found = named(connection)
            if not found:
                found = secrets.token_hex(16)
                connection.execute("INSERT INTO identity (database_id) VALUES (?)", (found,))
            return found

        return await self._database.read(named) or await self._database.write(name)

    # Sandboxes and sessions come and go

    async def add_sandbox(self, record: SandboxRecord) -> None:
        """Raises: HostUidTaken (try another), InvalidRequest when the id exists."""

        def work(connection: Connection) -> None:
            if not statements.insert_sandbox(connection, record, "created"):
                raise InvalidRequest(f"There is a sandbox {record.sandbox_id} already.")

        await self._database.write(work)

    async def bind_session(self, session: SessionRecord, sandbox: SandboxRecord) -> Binding:
        """Lease `sandbox` to the session's thread, unless the thread has a sandbox already: then that one.

        The sandbox row is inserted unless it exists: then it is one made ahead (`pooled` says whether it still is), and
        takes owner, times, context and deadline from `sandbox`. Two callers never both get `created`.

        Raises: HostUidTaken, SandboxTaken: nothing was written, try again with another; InvalidRequest.
        """
        if session.sandbox_id != sandbox.sandbox_id or session.tenant != sandbox.tenant:
            raise InvalidRequest("The session and the sandbox it is bound to name different ids or tenants.")

        def work(connection: Connection) -> Binding:
            first = statements.one_pair(
                connection, "s.tenant = ? AND s.thread_id = ?", session.tenant, session.thread_id
            )
            if first is not None:
                return Binding(*first, created=False)
            return Binding(*statements.insert_session(connection, session, sandbox), created=True)

        return await self._database.write(work)

    async def take_pooled(self, template: str) -> SandboxRecord | None:
        """A running sandbox made ahead, no longer pooled and the caller's alone; the oldest first."""
        return await self._database.write(
            lambda connection: statements.take_pooled(connection, self.worker_id, template)
        )

    async def remove(self, sandbox_id: str, *, fence: int = 0) -> bool:
        """Forget the sandbox and its session; the events stay a while. False when there was none of ours (any more).

        To be called last: with the row goes the host uid, which must not be given out while files carry it.
        """

        def work(connection: Connection) -> bool:
            return statements.delete_sandbox(connection, (sandbox_id, self.worker_id, fence), "removed")

        return await self._database.write(work)

    # Questions

    async def session_by_thread(self, tenant: str, thread_id: str) -> Bound | None:
        return await self._one_pair("s.tenant = ? AND s.thread_id = ?", tenant, thread_id)

    async def session(self, session_id: str) -> Bound | None:
        return await self._one_pair("s.session_id = ?", session_id)

    async def session_of_sandbox(self, sandbox_id: str) -> Bound | None:
        return await self._one_pair("s.sandbox_id = ?", sandbox_id)

    async def sandbox(self, sandbox_id: str) -> SandboxRecord | None:
        return await self._database.read(lambda connection: statements.one_sandbox(connection, sandbox_id))

    async def sandboxes(
        self, states: Sequence[SandboxState] | None = None, tenant: str | None = None
    ) -> list[SandboxRecord]:
        """Those in one of `states` (None: any) and of `tenant` (None: all), the oldest first."""
        return await self._database.read(
            lambda connection: statements.all_sandboxes(connection, self.worker_id, states, tenant)
        )

    async def sessions(self, tenant: str | None = None) -> list[Bound]:
        """Sessions with their sandboxes, the oldest first."""
        return await self._database.read(lambda connection: statements.pairs(connection, self.worker_id, tenant))

    async def due(self, now: float) -> list[SandboxRecord]:
        """Sandboxes whose deadline has come, the most overdue first; those whose removal did not end, too."""
        return await self._database.read(lambda connection: statements.due_sandboxes(connection, self.worker_id, now))

    async def fences(self, *, of_all_workers: bool = False) -> dict[str, int]:
        """The sandboxes that are ours, with their fences."""

        def work(connection: Connection) -> dict[str, int]:
            where, values = ("", ()) if of_all_workers else (" WHERE worker_id = ?", (self.worker_id,))
            return dict(connection.execute(f"SELECT sandbox_id, fence FROM sandboxes{where}", values).fetchall())

        return await self._database.read(work)

    async def taken_uids(self) -> frozenset[int]:
        def work(connection: Connection) -> frozenset[int]:
            rows = connection.execute("SELECT host_uid FROM sandboxes WHERE host_uid IS NOT NULL")
            return frozenset(row[0] for row in rows)

        return await self._database.read(work)

    async def events(self, sandbox_id: str, limit: int = 100) -> list[EventRecord]:
        """The latest `limit` events of a sandbox, which may be gone, in the order they happened."""
        query = f"SELECT {', '.join(EVENT_COLUMNS)} FROM events WHERE sandbox_id = ? ORDER BY event_id DESC LIMIT ?"

        def work(connection: Connection) -> list[EventRecord]:
            return [event_record(row) for row in connection.execute(query, (sandbox_id, limit))][::-1]

        return await self._database.read(work)

    # Changes

    async def renew_fences(self) -> None:
        """Of all that is ours: what was seen or begun before is out of date, also by those who looked at it."""

        def work(connection: Connection) -> None:
            connection.execute("UPDATE sandboxes SET fence = fence + 1 WHERE worker_id = ?", (self.worker_id,))

        await self._database.write(work)

    async def transition(
        self,
        sandbox_id: str,
        expected: SandboxState,
        new: SandboxState,
        event: str,
        *,
        deadline_at: float | None = None,
        deadline_action: DeadlineAction | None = None,
        detail: str = "",
        fence: int = 0,
        unused_since: float | None = None,
    ) -> bool:
        """Change the state if it is still `expected`, and write the event with it. False: it was not, or not ours, or
        there was activity after `unused_since`."""
        given = {"deadline_at": deadline_at, "deadline_action": deadline_action}
        deadline = {name: value for name, value in given.items() if value is not None}

        def work(connection: Connection) -> bool:
            held = (sandbox_id, self.worker_id, fence)
            if not statements.set_state(connection, held, expected, new, deadline, unused_since):
                return False
            statements.add_event(connection, sandbox_id, event, expected, new, detail[:_MAX_DETAIL])
            return True

        return await self._database.write(work)

    async def set_context(self, sandbox_id: str, cwd: str, env: Mapping[str, str], *, fence: int = 0) -> None:
        """Raises: SandboxNotFound."""
        values = (encode_cwd(cwd), encode_env(env), sandbox_id, self.worker_id, fence)

        def work(connection: Connection) -> None:
            changed = connection.execute(f"UPDATE sandboxes SET cwd = ?, env = ? WHERE {statements.HELD}", values)
            if changed.rowcount != 1:
                raise SandboxNotFound(f"There is no sandbox {sandbox_id}.", sandbox_id=sandbox_id)

        await self._database.write(work)

    async def touch(self, rows: Mapping[str, Touch | tuple[float, float, DeadlineAction]]) -> None:
        """Write activity and the deadlines that follow from it, by sandbox id, in one go.

        A row that is older than what is known, or whose sandbox is being removed or gone, changes nothing.
        """
        values = [
            (last, at, action, sandbox_id, self.worker_id, last) for sandbox_id, (last, at, action) in rows.items()
        ]
        if values:
            await self._database.write(lambda connection: statements.touch_all(connection, values))

    async def use(self, sandbox_id: str, now: float, *, fence: int = 0) -> bool:
        """Write activity down before it begins. False: it is being removed, or gone, or not ours."""

        def work(connection: Connection) -> bool:
            changed = connection.execute(
                "UPDATE sandboxes SET"
                " last_activity_at = CASE WHEN last_activity_at < ? THEN ? ELSE last_activity_at END"
                f" WHERE {statements.HELD} AND state NOT IN ('removing', 'removed')",
                (now, now, sandbox_id, self.worker_id, fence),
            )
            return changed.rowcount == 1

        return await self._database.write(work)

    async def rearm(
        self, sandbox_id: str, expected_deadline_at: float, deadline_at: float, action: DeadlineAction
    ) -> bool:
        """Move a deadline, unless it was moved meanwhile (False)."""

        def work(connection: Connection) -> bool:
            changed = connection.execute(
                "UPDATE sandboxes SET deadline_at = ?, deadline_action = ?"
                " WHERE sandbox_id = ? AND deadline_at = ? AND state NOT IN ('removing', 'removed')",
                (deadline_at, action, sandbox_id, expected_deadline_at),
            )
            return changed.rowcount == 1

        return await self._database.write(work)

    async def _one_pair(self, where: str, *values: str) -> Bound | None:
        return await self._database.read(lambda connection: statements.one_pair(connection, where, *values))
