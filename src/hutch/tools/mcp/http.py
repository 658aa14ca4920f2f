"""MCP over HTTP: an app to be mounted beside the API, on which it acts with the key of whoever calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hutch.client.async_client import AsyncSandboxClient
from hutch.client.in_app import client_in
from hutch.model.principal import CALLER, Caller
from hutch.tools.mcp.calls import Reach
from hutch.tools.mcp.http_reach import GONE, SESSION_HEADER, HttpReach, thread_of
from hutch.tools.mcp.joining import TEMPLATE
from hutch.tools.mcp.server import HutchMcp
from hutch.tools.mcp.sessions import Sessions

CLIENTS_KEPT = 1_000
SESSIONS_EACH = 100  # of one key; they end after half an hour without a call


class McpHttp:
    """`mount` is given to a server, which serves it while it is `running`."""

    def __init__(self, sessions_each: int = SESSIONS_EACH, make: Callable[[Reach], MCPServer[Any]] = HutchMcp) -> None:
        self._api: ASGIApp | None = None
        self._clients: OrderedDict[str, AsyncSandboxClient] = OrderedDict()  # by key
        self._sessions = Sessions(sessions_each)
        server = make(HttpReach(self.client))
        # Names and origins were checked by what guards the whole server.
        checked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        server.streamable_http_app(transport_security=checked)
        self._manager = server.session_manager

    def mount(self, api: ASGIApp) -> ASGIApp:
        self._api = api
        return self._answer

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._manager.run():
            yield

    def client(self, caller: Caller) -> AsyncSandboxClient:
        """Of that key, bound to nothing."""
        assert self._api is not None, "mounted before it is called"
        found = self._clients.pop(caller.key, None) or client_in(self._api, caller.key, TEMPLATE)
        self._clients[caller.key] = found
        if len(self._clients) > CLIENTS_KEPT:
            self._clients.popitem(last=False)
        return found

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("POST", "DELETE"):
            # Nothing is told that was not asked for, so that there is no stream to listen to.
            return await Response(status_code=405, headers={"allow": "POST, DELETE"})(scope, receive, send)
        caller: Caller = scope[CALLER]
        gone = asyncio.Event()
        status, session = 0, Headers(scope=scope).get(SESSION_HEADER)

        async def heard() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect":
                gone.set()
            return message

        async def watched(message: Message) -> None:
            nonlocal status, session
            if message["type"] == "http.response.start":
                status, session = int(message["status"]), Headers(raw=message["headers"]).get(SESSION_HEADER, session)
                message = {**message, "status": status}  # for logs: the library gives a name, not a number
            await send(message)

        try:
            await self._manager.handle_request({**scope, "user": _user(caller), GONE: gone}, heard, watched)
        finally:
            gone.set()  # who does not hang up, but reads no more, is as gone
        if session is not None and 0 < status < 400:
            await self._remember(caller, session, over=scope["method"] == "DELETE")

    async def _remember(self, caller: Caller, session: str, *, over: bool) -> None:
        if over:
            self._sessions.ended(caller.principal.key_id, session)
            return await self._close(caller, session)
        for old in self._sessions.used(caller.principal.key_id, session):
            await self._manager.handle_request(_ending(caller, old), _nothing_more, _dropped)
            await self._close(caller, old)

    async def _close(self, caller: Caller, session: str) -> None:
        """Its sandbox, where it is named after the session: nobody else can mean it."""
        client = self.client(caller)
        client.thread_id = thread_of(session)
        await client.close_session()


def _user(caller: Caller) -> AuthenticatedUser:
    """To whom a session belongs, for the library: another key's is as good as none."""
    return AuthenticatedUser(AccessToken(token="", client_id=caller.principal.key_id, scopes=[]))


def _ending(caller: Caller, session: str) -> Scope:
    """A session's end, as its client would ask for it."""
    return {
        "type": "http",
        "method": "DELETE",
        "path": "/",
        "query_string": b"",
        "headers": [(SESSION_HEADER.encode(), session.encode())],
        "user": _user(caller),
    }


async def _nothing_more() -> Message:
    return {"type": "http.disconnect"}


async def _dropped(message: Message) -> None: ...
