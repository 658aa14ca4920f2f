"""Which conversation a request over HTTP belongs to."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

from starlette.requests import HTTPConnection

from hutch.client.async_client import AsyncSandboxClient
from hutch.model.errors import InvalidRequest, NoActiveSession
from hutch.model.principal import CALLER, Caller
from hutch.tools.mcp.calls import Conversation, Request
from hutch.tools.mcp.joining import USER, joined, owner

SESSION_HEADER = "mcp-session-id"
THREAD_HEADER, USER_HEADER = "hutch-thread", "hutch-user"
THREAD_META, USER_META = "io.hutch/thread", "io.hutch/user"
GONE = "hutch.gone"  # in the scope of a request: what is set when its caller is gone


class HttpReach:
    """Implements `Reach`: what a request names counts, then its headers, then the session it came in."""

    def __init__(self, client: Callable[[Caller], AsyncSandboxClient]) -> None:
        self._client = client

    async def conversation(self, request: Request, *, makes: bool) -> Conversation:
        http = _http(request)
        client = self._client(http.scope[CALLER])
        thread, user = _named(request, THREAD_META, THREAD_HEADER), _named(request, USER_META, USER_HEADER)
        session = http.headers.get(SESSION_HEADER)
        if thread is None and session is not None:
            return await joined(client, thread_of(session), user or USER, makes=makes)
        if thread is None:
            raise NoActiveSession(
                "Which conversation is this? Calls of this protocol version belong to no session. Let the client send "
                f"the header {THREAD_HEADER.title()} (or {THREAD_META!r} in _meta) with a name of your choice."
            )
        return await joined(client, thread, user, makes=makes)

    async def owner(self, request: Request) -> Conversation:
        http = _http(request)
        thread, user = _named(request, THREAD_META, THREAD_HEADER), _named(request, USER_META, USER_HEADER)
        return await owner(self._client(http.scope[CALLER]), thread, user)

    def may_use(self, request: Request) -> bool:
        caller: Caller = _http(request).scope[CALLER]
        return caller.principal.may("use")

    def gone(self, request: Request) -> asyncio.Event | None:
        found: asyncio.Event = _http(request).scope[GONE]
        return found


def _http(request: Request) -> HTTPConnection:
    assert isinstance(request.request, HTTPConnection), "it came over HTTP"
    return request.request


def _named(request: Request, meta: str, header: str) -> str | None:
    """Raises: InvalidRequest."""
    given: Any = (request.meta or {}).get(meta)
    if given is not None and not isinstance(given, str):
        raise InvalidRequest(f"{meta!r} in _meta is a text.")
    found: str | None = given if given is not None else _http(request).headers.get(header)
    return found or None


def thread_of(session: str) -> str:
    """A conversation without a name of its own. What opens the session is not to be read off it."""
    return f"mcp-{hashlib.sha256(session.encode()).hexdigest()[:32]}"
