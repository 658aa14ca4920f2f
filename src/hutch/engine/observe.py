"""What the engine tells those who watch it: one observation for each thing worth counting or writing down.

Metrics, logs and the audit trail are made of these by whoever serves the engine. Watching costs a call; without
watchers nothing is made.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from hutch.engine.live import LiveSandbox
from hutch.model.limits import LimitName

EventName = Literal[
    "session_created",
    "session_reused",
    "session_renewed",  # made anew because the caller's had expired
    "session_expired",
    "session_cleaned_up",
    "session_creation_failed",
    "command_executed",
    "command_failed",  # could not run, or did not end by itself
    "validation_failed",  # refused by the policy
    "resource_limit_exceeded",
    "file_uploaded",
    "file_upload_failed",
    "file_downloaded",
    "file_download_failed",
    "list_files_failed",
]

CommandKind = Literal["command", "background", "shell"]  # somebody waits for it; it may go on for ever; on a terminal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Observation:
    event: EventName
    tenant: str
    sandbox_id: str = ""
    session_id: str = ""
    thread_id: str = ""
    user_id: str = ""
    command: str = ""  # or the path of a file
    kind: CommandKind = "command"
    exit_code: int | None = None
    duration_ms: float = 0.0  # of a session that ended: its life
    timed_out: bool = False
    renews: bool = False  # a session: the caller had one, which expired
    size_bytes: int = 0
    limit: LimitName | None = None
    code: str = ""  # of the error, when something failed


def about(event: EventName, live: LiveSandbox, **more: Any) -> Observation:
    """An observation of a sandbox, with whom it belongs to."""
    session = live.session
    return Observation(
        event,
        tenant=live.record.tenant,
        sandbox_id=live.sandbox_id,
        session_id=session.session_id if session is not None else "",
        thread_id=session.thread_id if session is not None else "",
        user_id=session.user_id if session is not None else "",
        **more,
    )


def ended(event: EventName, live: LiveSandbox) -> Observation:
    """The end of a session, with how long it lived."""
    began = live.session.created_at if live.session is not None else live.record.created_at
    return about(event, live, duration_ms=(time.time() - began) * 1000)


Watcher = Callable[[Observation], None]


class Watchers:
    """Those who watch one engine."""

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []

    def add(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def tell(self, observation: Observation) -> None:
        """A watcher that fails is a fault of its own: the call it watched goes on."""
        for watcher in self._watchers:
            try:
                watcher(observation)
            except Exception:
                log.exception("watcher_failed observed=%s", observation.event)
