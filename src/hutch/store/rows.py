"""Records to rows and back. Nothing else knows how a value lies in a column."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hutch.store.records import Bound, EventRecord, SandboxRecord, SessionRecord

SANDBOX_COLUMNS = (
    "sandbox_id",
    "tenant",
    "template",
    "provider",
    "state",
    "host_uid",
    "cwd",
    "env",
    "created_at",
    "last_activity_at",
    "deadline_at",
    "deadline_action",
    "idle_seconds",
    "pooled",
    "worker_id",
    "fence",
)
SESSION_COLUMNS = (
    "session_id",
    "tenant",
    "thread_id",
    "user_id",
    "sandbox_id",
    "created_at",
    "timeout_seconds",
    "shared",
)
LOCATION_COLUMNS = ("sandbox_id", "tenant", "state", "worker_id", "fence")
EVENT_COLUMNS = ("event_id", "sandbox_id", "at", "event", "from_state", "to_state", "detail")

Row = Sequence[Any]


def storable(text: str) -> str:
    """Text that every database takes. For what may quote a sandbox: anything else must not keep a row from being
    written."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def encode_cwd(cwd: str) -> str:
    return json.dumps(cwd)  # ASCII: bytes of a path that are no text (surrogates) come back as they were


def encode_env(env: Mapping[str, str]) -> str:
    return json.dumps(dict(env), separators=(",", ":"))


def sandbox_values(record: SandboxRecord) -> tuple[Any, ...]:
    return (
        record.sandbox_id,
        record.tenant,
        record.template,
        record.provider,
        record.state,
        record.host_uid,
        encode_cwd(record.cwd),
        encode_env(record.env),
        record.created_at,
        record.last_activity_at,
        record.deadline_at,
        record.deadline_action,
        record.idle_seconds,
        int(record.pooled),
        record.worker_id,
        record.fence,
    )


def session_values(record: SessionRecord) -> tuple[Any, ...]:
    return (
        record.session_id,
        record.tenant,
        record.thread_id,
        record.user_id,
        record.sandbox_id,
        record.created_at,
        record.timeout_seconds,
        int(record.shared),
    )


def sandbox_record(row: Row) -> SandboxRecord:
    values = dict(zip(SANDBOX_COLUMNS, row, strict=True))
    values["cwd"] = json.loads(values["cwd"])
    values["env"] = json.loads(values["env"])
    values["pooled"] = bool(values["pooled"])
    return SandboxRecord(**values)


def session_record(row: Row) -> SessionRecord:
    values = dict(zip(SESSION_COLUMNS, row, strict=True))
    values["shared"] = bool(values["shared"])
    return SessionRecord(**values)


def bound(row: Row) -> Bound:
    """A row of session columns followed by sandbox columns."""
    middle = len(SESSION_COLUMNS)
    return Bound(session_record(row[:middle]), sandbox_record(row[middle:]))


def event_record(row: Row) -> EventRecord:
    return EventRecord(*row)
