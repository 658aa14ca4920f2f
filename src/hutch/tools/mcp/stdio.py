"""MCP on standard input and output: one conversation, for as long as the input is open."""

from __future__ import annotations

import asyncio

from hutch.client.async_client import AsyncSandboxClient
from hutch.tools.mcp.calls import Conversation, Request
from hutch.tools.mcp.joining import joined, owner
from hutch.tools.mcp.server import HutchMcp


class _OneThread:
    """Implements `Reach`."""

    def __init__(self, client: AsyncSandboxClient, thread: str, user: str | None) -> None:
        self._client = client
        self._thread = thread
        self._user = user

    async def conversation(self, request: Request, *, makes: bool) -> Conversation:
        return await joined(self._client, self._thread, self._user, makes=makes)

    async def owner(self, request: Request) -> Conversation:
        return await owner(self._client, self._thread, self._user)

    def may_use(self, request: Request) -> bool:
        return True

    def gone(self, request: Request) -> asyncio.Event | None:
        return None


async def serve(client: AsyncSandboxClient, thread: str, user: str | None, *, temporary: bool) -> None:
    """Until the input ends. A `temporary` conversation goes with its sandbox then."""
    try:
        await HutchMcp(_OneThread(client, thread, user)).run_stdio_async()
    finally:
        if temporary:
            client.thread_id = thread
            await client.close_session()
        await client.aclose()
