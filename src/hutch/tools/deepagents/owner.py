"""Whose sandbox or drive a call is for: said once, or told anew by each run of a graph that many users share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hutch.client.async_client import AsyncSandboxClient
from hutch.client.binding import FixedSlot
from hutch.client.by_settings import client_at, place_by_settings
from hutch.client.sync_client import SandboxClient
from hutch.model.errors import NoActiveSession

HANDLES_AT_MOST = 1024

AnyClient = AsyncSandboxClient | SandboxClient


class Owner:
    """Finds the client's handle for the caller.

    What was given here counts first, then what a handle (`for_thread`) is bound to, then the LangGraph run that we are
    called in: `user_id` of its context (or of its `configurable`), `thread_id` of its `configurable`; last what the
    calling task or thread bound the client to.
    """

    def __init__(
        self,
        client: AnyClient | None,
        user_id: str | None,
        thread_id: str | None,
        timeout_minutes: float | None = None,
    ) -> None:
        self.client = _async(client)
        self._for_good = isinstance(self.client._slot, FixedSlot)
        self._user_id = user_id
        self._thread_id = thread_id
        self._timeout_minutes = timeout_minutes
        self._handles: dict[tuple[str, str], AsyncSandboxClient] = {}

    def user_id(self) -> str:
        """Raises: NoActiveSession."""
        bound = self.client.user_id
        found = self._user_id or (bound if self._for_good else None) or run_user() or bound
        if not found:
            raise NoActiveSession(_nobody("user", "a `user_id` in the run's context"))
        return found

    def thread_id(self) -> str:
        """Raises: NoActiveSession."""
        bound = self.client.thread_id
        found = self._thread_id or (bound if self._for_good else None) or run_thread() or bound
        if not found:
            raise NoActiveSession(_nobody("thread", "a `thread_id` in the run's `configurable`"))
        return found

    def handle(self) -> AsyncSandboxClient:
        """The client bound to the caller's thread for good. Raises: NoActiveSession."""
        if self._for_good and self._user_id is None and self._thread_id is None:
            return self.client
        key = self.user_id(), self.thread_id()
        handle = self._handles.get(key)
        if handle is None:
            if len(self._handles) >= HANDLES_AT_MOST:
                self._handles.clear()  # they only remember which sandbox it was
            handle = self._handles[key] = self.client.for_thread(*key, self._timeout_minutes)
        return handle


def run_user() -> str | None:
    """The user of the LangGraph run that we are called in."""
    from langgraph.runtime import get_runtime

    try:
        context = get_runtime().context
    except (RuntimeError, KeyError):  # no run
        context = None
    found = context.get("user_id") if isinstance(context, Mapping) else getattr(context, "user_id", None)
    return _text(found) or _text(_configurable().get("user_id"))


def run_thread() -> str | None:
    """The conversation of the LangGraph run that we are called in."""
    return _text(_configurable().get("thread_id"))


def _configurable() -> Mapping[str, Any]:
    from langgraph.config import get_config

    try:
        return get_config().get("configurable") or {}
    except RuntimeError:  # no run
        return {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _nobody(what: str, where: str) -> str:
    return f"No {what} to act for: give {what}_id=…, a client bound by for_thread(user_id, thread_id), or {where}."


def _async(client: AnyClient | None) -> AsyncSandboxClient:
    if client is None:
        return client_at(place_by_settings(), template="open")
    if isinstance(client, SandboxClient):
        return client._core
    return client
