"""What the store keeps, as plain records. All times are seconds since the epoch, UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hutch.model.errors import StoreUnavailable
from hutch.model.session import DeadlineAction, SandboxState

LOCAL_WORKER = "standalone"  # the only one that a data folder of its own has


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    sandbox_id: str
    tenant: str
    template: str
    provider: str
    state: SandboxState
    host_uid: int | None  # its own among all rows; None where the server is not root
    cwd: str
    env: Mapping[str, str]
    created_at: float
    last_activity_at: float
    deadline_at: float  # infinity: none
    deadline_action: DeadlineAction
    idle_seconds: float  # the session's idle time-out; 0: `deadline_at` is absolute and activity does not move it
    pooled: bool  # made ahead, belongs to nobody yet
    worker_id: str = LOCAL_WORKER  # who may run it
    fence: int = 0  # grows whenever another worker gets it: what one writes that knows an older number is refused


@dataclass(frozen=True, slots=True)
class SessionRecord:
    session_id: str
    tenant: str
    thread_id: str
    user_id: str
    sandbox_id: str
    created_at: float
    timeout_seconds: float
    shared: bool  # other users of the tenant may use the thread


@dataclass(frozen=True, slots=True)
class EventRecord:
    event_id: int
    sandbox_id: str
    at: float
    event: str
    from_state: SandboxState
    to_state: SandboxState
    detail: str


class Bound(NamedTuple):
    """A session with the sandbox it leases."""

    session: SessionRecord
    sandbox: SandboxRecord


class Binding(NamedTuple):
    """What `bind_session` found or made. `created` False: somebody else was first, and this is theirs."""

    session: SessionRecord
    sandbox: SandboxRecord
    created: bool


class Touch(NamedTuple):
    """A sandbox's latest activity, and the deadline that follows from it."""

    last_activity_at: float
    deadline_at: float
    deadline_action: DeadlineAction


class HostUidTaken(StoreUnavailable):
    """Another sandbox got that host uid meanwhile. Nothing was written: choose another and try again."""


class SandboxTaken(StoreUnavailable):
    """That sandbox was given to somebody else meanwhile. Nothing was written: take another and try again."""
