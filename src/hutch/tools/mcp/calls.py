"""A call of a tool: for whom it acts, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import anyio
from mcp.server.context import ServerRequestContext

from hutch.client.async_client import AsyncSandboxClient
from hutch.client.async_drive import AsyncDrive
from hutch.model.errors import ClientClosed
from hutch.tools.mcp.progress import Progress

T = TypeVar("T")
Request = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Whose sandbox and drive a call uses."""

    client: AsyncSandboxClient  # bound to it
    user_id: str
    is_new: bool = False  # its sandbox was made a moment ago


@dataclass(frozen=True, slots=True)
class Call:
    """What a tool works with."""

    conversation: Conversation
    progress: Progress | None  # None: its caller asked for none

    @property
    def client(self) -> AsyncSandboxClient:
        return self.conversation.client

    @property
    def drive(self) -> AsyncDrive:
        """Of the conversation's user."""
        return self.conversation.client.drive_of(self.conversation.user_id)


class Reach(Protocol):
    """How requests find the conversation they belong to."""

    async def conversation(self, request: Request, *, makes: bool) -> Conversation:
        """With `makes`, its sandbox is made where there is none. Raises: HutchError."""
        ...

    async def owner(self, request: Request) -> Conversation:
        """Its user, for what needs no sandbox. Raises: HutchError."""
        ...

    def may_use(self, request: Request) -> bool:
        """Whether its caller may do more than read."""
        ...

    def gone(self, request: Request) -> asyncio.Event | None:
        """Set once nobody is there to read the answer."""
        ...


async def to_its_end(work: Coroutine[Any, Any, T], gone: asyncio.Event | None) -> T:
    """The outcome of `work`. Whoever cancels it, or hangs up, waits until what it started has ended, too.

    In a task of its own: what is cancelled by a scope is cancelled again at each step of its clearing up.
    Raises: ClientClosed when the caller hung up.
    """
    task = asyncio.create_task(work)
    left = asyncio.create_task((gone or asyncio.Event()).wait())
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientClosed("The caller hung up.")
        return task.result()
    finally:
        left.cancel()
        if not task.done():
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # of no interest any more, and said to be so
