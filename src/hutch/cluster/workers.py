"""What a worker says of itself, and who gets the next sandbox. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from hutch.model.wire import PROTOCOL

OLDEST_PROTOCOL = PROTOCOL - 1  # one number older serves beside a new one


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    worker_id: str
    url: str  # where coordinators reach it
    protocol: int
    version: str
    capacity: int  # sandboxes that may run at once
    incarnation: str = ""  # of this start of it
    running: int = 0
    spare: int = 0  # of those that run, started ahead for nobody yet
    preview_url: str | None = None
    draining: bool = False
    ended_at: float = 0.0  # it was told to end, and kept sandboxes that it could give to nobody
    token: str = ""  # other workers show it when they bring a sandbox; Redis is as secret as the database
    alive: bool = True

    @property
    def free(self) -> int:
        return max(0, self.capacity - self.running + self.spare)

    @property
    def takes_more(self) -> bool:
        return self.alive and not self.draining and self.understood

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def understood(self) -> bool:
        return OLDEST_PROTOCOL <= self.protocol <= PROTOCOL

    def dumps(self) -> str:
        fields = asdict(self)
        del fields["alive"]
        return json.dumps(fields)


def loads(text: str | bytes) -> WorkerInfo | None:
    """None for what no worker of ours wrote."""
    try:
        return checked(json.loads(text))
    except (ValueError, RecursionError):
        return None


def checked(said: Any) -> WorkerInfo | None:
    """None for what no worker of ours says. What a newer one says beside is left away; an older one says less."""
    try:
        known = {name: said[name] for name in WorkerInfo.__dataclass_fields__ if name in said and name != "alive"}
        info = WorkerInfo(**known)
    except TypeError:
        return None
    right = (
        all(isinstance(value, str) for value in (info.worker_id, info.url, info.incarnation, info.version, info.token))
        and all(type(value) is int for value in (info.protocol, info.capacity, info.running, info.spare))
        and isinstance(info.preview_url, str | None)
        and isinstance(info.ended_at, int | float)
    )
    return replace(info, draining=bool(info.draining)) if right else None


def by_preference(workers: Iterable[WorkerInfo], first: str | None = None) -> Sequence[WorkerInfo]:
    """Those who take a new sandbox: `first` if it does, then who has the most room, as a share of its own size."""
    able = [worker for worker in workers if worker.takes_more]
    return sorted(
        able, key=lambda worker: (worker.worker_id != first, -worker.free / max(1, worker.capacity), worker.worker_id)
    )
