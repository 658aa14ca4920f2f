"""The audit trail of a server: who did what, for every call that somebody with a key makes.

What the engine tells its watchers becomes rows (commands with exit code and duration, files, sessions). A call of which
it told nothing gets a row of its own, named after its route, so that no action goes without one.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from hutch.engine.audit import Audit
from hutch.engine.observe import Observation
from hutch.model.errors import ClientClosed, HutchError
from hutch.model.principal import Principal

# Who is behind what happens now: set for each request, inherited by what it starts.
ACTOR: ContextVar[Principal | None] = ContextVar("hutch_actor", default=None)
LOOKING = "health"  # the tag of routes that only tell how the server is


@dataclass(slots=True)
class Act:
    """One request."""

    action: str = ""
    sandbox_id: str = ""
    user_id: str = ""
    detail: str = ""
    outcome: str = "ok"
    told: bool = False  # the engine told of it, so that there is a row


_ACT: ContextVar[Act | None] = ContextVar("hutch_act", default=None)


def nobody_yet() -> None:
    """At the beginning of a request. Its context may be that of an earlier one on the same connection: whoever stopped
    and started reading a long body hands it on."""
    ACTOR.set(None)
    _ACT.set(None)


def begins(connection: HTTPConnection, principal: Principal) -> None:
    """From here on this caller is behind what happens."""
    ACTOR.set(principal)
    act = _ACT.get()
    if act is None:
        return
    route, endpoint = connection.scope.get("route"), connection.scope["endpoint"]
    tags = getattr(route, "tags", None)  # WebSockets have none; they are called after their module
    noun = tags[0] if tags else endpoint.__module__.rpartition(".")[2]
    act.action = "" if noun == LOOKING else f"{noun}.{endpoint.__name__}"
    names = dict(connection.path_params)
    act.sandbox_id = str(names.pop("sandbox_id", ""))
    # What was noted before it was known who calls stays.
    act.detail = " ".join([*map(str, names.values()), act.detail]).strip()


def note(detail: str) -> None:
    """What the call is about, where its address does not say it."""
    act = _ACT.get()
    if act is not None:
        act.detail = f"{act.detail} {detail}".strip()


def on_behalf_of(user_id: str) -> None:
    """Whose things the call is about, where no session says it."""
    act = _ACT.get()
    if act is not None:
        act.user_id = user_id


def failed(error: HutchError) -> None:
    act = _ACT.get()
    if act is not None:
        act.outcome = error.code


class Trail:
    """Wraps an app."""

    def __init__(self, app: ASGIApp, audit: Audit) -> None:
        self._app = app
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        act, began = Act(), time.perf_counter()
        _ACT.set(act)
        ACTOR.set(None)
        try:
            await self._app(scope, receive, send)
        except BaseException as error:
            gone = isinstance(error, asyncio.CancelledError | ClientDisconnect | ConnectionError)
            failed(error if isinstance(error, HutchError) else ClientClosed("") if gone else HutchError(""))
            raise
        finally:
            caller = ACTOR.get()
            if caller is not None and act.action and not act.told:
                self._audit.add(
                    tenant=caller.tenant,
                    key_id=caller.key_id,
                    action=act.action,
                    user_id=act.user_id,
                    sandbox_id=act.sandbox_id,
                    detail=act.detail,
                    outcome=act.outcome,
                    duration_ms=(time.perf_counter() - began) * 1000,
                )

    def watch(self, told: Observation) -> None:
        """A watcher of the engine: what was observed is a row."""
        caller, act = ACTOR.get(), _ACT.get()
        if act is not None:
            act.told = True
        self._audit.add(
            tenant=told.tenant,
            key_id=caller.key_id if caller is not None else "",
            user_id=told.user_id,
            action=told.event,
            sandbox_id=told.sandbox_id,
            detail=told.command or told.thread_id,
            outcome=told.code or ("ok" if told.limit is None else "limit_exceeded"),
            exit_code=told.exit_code,
            duration_ms=told.duration_ms,
        )
