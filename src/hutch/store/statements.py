"""The SQL: one function per step, over an open connection, inside a transaction of the caller.

Only what SQLite and PostgreSQL both speak. Compare-and-set everywhere: a writer says what it believes to be true, and
learns when it is not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from hutch.model.session import SandboxState
from hutch.store.database import Connection
from hutch.store.records import Bound, HostUidTaken, SandboxRecord, SandboxTaken, SessionRecord
from hutch.store.rows import (
    SANDBOX_COLUMNS,
    SESSION_COLUMNS,
    bound,
    encode_cwd,
    encode_env,
    sandbox_record,
    sandbox_values,
    session_values,
    storable,
)

EVENTS_KEPT = 10_000  # of all sandboxes together, those already removed included

_SANDBOX = ", ".join(SANDBOX_COLUMNS)
_PAIR = ", ".join([f"s.{name}" for name in SESSION_COLUMNS] + [f"b.{name}" for name in SANDBOX_COLUMNS])
_PAIRS = f"SELECT {_PAIR} FROM sessions s JOIN sandboxes b ON b.sandbox_id = s.sandbox_id"
_INSERT_SANDBOX = (
    f"INSERT INTO sandboxes ({_SANDBOX}) VALUES ({', '.join('?' * len(SANDBOX_COLUMNS))}) ON CONFLICT DO NOTHING"
)
# Sandbox id, worker and fence of who changes a row: nobody else may.
Held = tuple[str, str, int]
HELD = "sandbox_id = ? AND worker_id = ? AND fence = ?"
_INSERT_SESSION = (
    f"INSERT INTO sessions ({', '.join(SESSION_COLUMNS)}) VALUES ({', '.join('?' * len(SESSION_COLUMNS))})"
)


def one_pair(connection: Connection, where: str, *values: Any) -> Bound | None:
    row = connection.execute(f"{_PAIRS} WHERE {where}", values).fetchone()
    return None if row is None else bound(row)


def pairs(connection: Connection, worker_id: str, tenant: str | None) -> list[Bound]:
    where, values = ("", ()) if tenant is None else (" AND s.tenant = ?", (tenant,))
    query = f"{_PAIRS} WHERE b.worker_id = ?{where} ORDER BY s.created_at, s.session_id"
    return [bound(row) for row in connection.execute(query, (worker_id, *values))]


def one_sandbox(connection: Connection, sandbox_id: str) -> SandboxRecord | None:
    row = connection.execute(f"SELECT {_SANDBOX} FROM sandboxes WHERE sandbox_id = ?", (sandbox_id,)).fetchone()
    return None if row is None else sandbox_record(row)


def all_sandboxes(
    connection: Connection, worker_id: str, states: Sequence[SandboxState] | None, tenant: str | None
) -> list[SandboxRecord]:
    conditions = ["worker_id = ?"]
    values = [worker_id]
    if states is not None:
        if not states:
            return []
        conditions.append(f"state IN ({', '.join('?' * len(states))})")
        values.extend(states)
    if tenant is not None:
        conditions.append("tenant = ?")
        values.append(tenant)
    where = " AND ".join(conditions)
    rows = connection.execute(f"SELECT {_SANDBOX} FROM sandboxes WHERE {where} ORDER BY created_at, sandbox_id", values)
    return [sandbox_record(row) for row in rows]


def due_sandboxes(connection: Connection, worker_id: str, now: float) -> list[SandboxRecord]:
    query = f"SELECT {_SANDBOX} FROM sandboxes WHERE worker_id = ? AND deadline_at <= ? ORDER BY deadline_at"
    rows = connection.execute(query, (worker_id, now))
    return [sandbox_record(row) for row in rows]


def insert_sandbox(connection: Connection, record: SandboxRecord, event: str) -> bool:
    """False when a sandbox of that id exists.

    Raises: HostUidTaken.
    """
    if connection.execute(_INSERT_SANDBOX, sandbox_values(record)).rowcount == 1:
        add_event(connection, record.sandbox_id, event, record.state, record.state)
        return True
    if one_sandbox(connection, record.sandbox_id) is None:
        raise HostUidTaken(f"Host uid {record.host_uid} belongs to another sandbox.", host_uid=record.host_uid)
    return False


def insert_session(connection: Connection, session: SessionRecord, sandbox: SandboxRecord) -> Bound:
    """The session with its sandbox, which is new, pooled, or without a session.

    Raises: HostUidTaken, SandboxTaken.
    """
    if not insert_sandbox(connection, sandbox, "created"):
        _hand_over(connection, sandbox)
    connection.execute(_INSERT_SESSION, session_values(session))
    made = one_pair(connection, "s.session_id = ?", session.session_id)
    if made is None:  # it was written a moment ago, in this transaction
        raise RuntimeError(f"session {session.session_id} is not there")
    return made


def _hand_over(connection: Connection, sandbox: SandboxRecord) -> None:
    """Give an existing sandbox to a new owner. What it is (state, template, uid) stays; whose it is changes."""
    given = connection.execute(
        "UPDATE sandboxes SET pooled = 0, tenant = ?, cwd = ?, env = ?, created_at = ?, last_activity_at = ?,"
        " deadline_at = ?, deadline_action = ?, idle_seconds = ?"
        " WHERE sandbox_id = ? AND pooled = ? AND state NOT IN ('removing', 'removed')"
        " AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.sandbox_id = sandboxes.sandbox_id)"
        " RETURNING state",
        (
            sandbox.tenant,
            encode_cwd(sandbox.cwd),
            encode_env(sandbox.env),
            sandbox.created_at,
            sandbox.last_activity_at,
            sandbox.deadline_at,
            sandbox.deadline_action,
            sandbox.idle_seconds,
            sandbox.sandbox_id,
            int(sandbox.pooled),
        ),
    ).fetchall()
    if not given:
        raise SandboxTaken(f"Sandbox {sandbox.sandbox_id} belongs to somebody else.", sandbox_id=sandbox.sandbox_id)
    add_event(connection, sandbox.sandbox_id, "handed_over", given[0][0], given[0][0])


def take_pooled(connection: Connection, worker_id: str, template: str) -> SandboxRecord | None:
    rows = connection.execute(
        "UPDATE sandboxes SET pooled = 0 WHERE pooled = 1 AND sandbox_id ="
        " (SELECT sandbox_id FROM sandboxes WHERE worker_id = ? AND pooled = 1 AND template = ? AND state = 'running'"
        "  ORDER BY created_at, sandbox_id LIMIT 1)"
        f" RETURNING {_SANDBOX}",
        (worker_id, template),
    ).fetchall()
    if not rows:
        return None
    taken = sandbox_record(rows[0])
    add_event(connection, taken.sandbox_id, "taken", taken.state, taken.state)
    return taken


def set_state(
    connection: Connection,
    held: Held,
    expected: SandboxState,
    new: SandboxState,
    deadline: dict[str, Any],
    unused_since: float | None = None,
) -> bool:
    """Change the state, and with it the columns of `deadline`, when the state is still `expected`, and ours, and nobody
    used it after `unused_since`."""
    assignments = ", ".join(f"{name} = ?" for name in ("state", *deadline))
    unused, since = ("", ()) if unused_since is None else (" AND last_activity_at <= ?", (unused_since,))
    changed = connection.execute(
        f"UPDATE sandboxes SET {assignments} WHERE {HELD} AND state = ?{unused}",
        (new, *deadline.values(), *held, expected, *since),
    )
    return changed.rowcount == 1


def touch_all(connection: Connection, rows: Iterable[tuple[float, float, str, str, str, float]]) -> None:
    """Rows of (last activity, deadline, action, sandbox id, worker, last activity again). News that is older than what
    is known changes nothing: another process may have written later activity, and the deadline that belongs to it."""
    connection.executemany(
        "UPDATE sandboxes SET last_activity_at = ?, deadline_at = ?, deadline_action = ?"
        " WHERE sandbox_id = ? AND worker_id = ? AND last_activity_at <= ? AND state NOT IN ('removing', 'removed')",
        rows,
    )


def add_event(
    connection: Connection,
    sandbox_id: str,
    event: str,
    from_state: SandboxState,
    to_state: SandboxState,
    detail: str = "",
) -> None:
    """One more event, and the oldest away when there are too many."""
    number = connection.execute(
        "INSERT INTO events (sandbox_id, at, event, from_state, to_state, detail) VALUES (?, ?, ?, ?, ?, ?)"
        " RETURNING event_id",
        (sandbox_id, time.time(), event, from_state, to_state, storable(detail)),
    ).fetchall()[0][0]
    connection.execute("DELETE FROM events WHERE event_id <= ?", (number - EVENTS_KEPT,))


def delete_sandbox(connection: Connection, held: Held, event: str) -> bool:
    """Forget the sandbox with all that is its own; the events stay a while. False when it is not there, or not ours."""
    gone = connection.execute(f"SELECT state FROM sandboxes WHERE {HELD}", held).fetchone()
    if gone is None:
        return False
    for table in ("sessions", "egress_rules", "egress_log"):
        connection.execute(f"DELETE FROM {table} WHERE sandbox_id = ?", held[:1])
    connection.execute("DELETE FROM sandboxes WHERE sandbox_id = ?", held[:1])
    add_event(connection, held[0], event, gone[0], "removed")
    return True
