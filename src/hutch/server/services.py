"""What the routes of one app share."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from hutch.engine.access import Access
from hutch.engine.assemble import Engine
from hutch.engine.audit import Audit
from hutch.engine.drive.assemble import Drives
from hutch.engine.keys import Keys
from hutch.model.wire import PROTOCOL
from hutch.server.calls import Calls
from hutch.server.metrics import Metrics
from hutch.server.rate import Rate
from hutch.server.tracing import Tracing

SPOOLS_AT_ONCE = 8  # uploads that wait on disk until they say which session they are for


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What `hutch serve` was told."""

    names: frozenset[str] = frozenset({"localhost", "127.0.0.1", "::1"})  # hosts a request may name; "*" is any
    peers: tuple[str, ...] = ()  # networks that may connect beside this machine; none: any may
    rate: str | None = None  # calls of one key, such as "600/minute"
    redis_url: str | None = None  # shared by all servers; their keys have one budget then
    mypa_open: bool = False  # the flat routes of older clients work without a key
    worker_id: str = "standalone"
    worker_token: str | None = None  # what other workers show when they bring a sandbox; None: none may
    tracing: Tracing | None = None
    preview_url: str | None = None  # where previews are reached from outside; None: there are none


@dataclass(frozen=True, slots=True)
class Services:
    runs: Engine | None  # a coordinator runs none
    options: ServerOptions
    version: str
    lent: Access | None = None  # keys and audit trail of a server without an engine
    lent_drive: Drives | None = None
    calls: Calls = field(default_factory=Calls)
    rate: Rate | None = None
    metrics: Metrics = field(default_factory=Metrics)
    spools: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SPOOLS_AT_ONCE))
    protocol: int = PROTOCOL
    started: float = field(default_factory=time.monotonic)

    @property
    def engine(self) -> Engine:
        assert self.runs is not None, "a coordinator has no routes that need an engine"
        return self.runs

    @property
    def keys(self) -> Keys:
        return self.engine.keys if self.lent is None else self.lent.keys

    @property
    def audit(self) -> Audit:
        return self.engine.audit if self.lent is None else self.lent.audit

    @property
    def drive(self) -> Drives:
        return self.engine.drive if self.lent_drive is None else self.lent_drive


def services_of(connection: HTTPConnection) -> Services:
    found: Services = connection.app.state.services
    return found


async def _shared(connection: HTTPConnection) -> Services:
    """What is not `async` here would go through a thread of a pool, for each call."""
    return services_of(connection)


Shared = Annotated[Services, Depends(_shared)]
