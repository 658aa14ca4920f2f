"""A started session of the OpenAI Agents SDK on our sandbox, deleted at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hutch.client.async_client import AsyncSandboxClient
from hutch.tools.openai_agents import HutchSandboxClient


@asynccontextmanager
async def started(client: AsyncSandboxClient, **wanted: Any) -> AsyncIterator[Any]:
    maker = HutchSandboxClient(client, exec_seconds=30, **wanted.pop("maker", {}))
    session = await maker.create(**wanted)
    await session.start()
    try:
        yield session
    finally:
        await maker.delete(session)
