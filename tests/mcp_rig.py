"""The protocol's own client, against a server of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from hutch.settings import Settings
from hutch.tools.mcp.http import McpHttp
from tests.server_rig import Served, served

T = TypeVar("T")
ERAS = ("legacy", "2026-07-28")  # with sessions, and without
HANG = 60.0  # far above what anything here takes


@contextmanager
def mcp_served(data_dir: Path, make: Callable[[], McpHttp] = McpHttp, **options: Any) -> Iterator[Served]:
    with served(Settings(data_dir=data_dir), mcp=make, **options) as server:
        yield server


@asynccontextmanager
async def connected(
    server: Served, era: str, *, thread: str | None = "work", key: str | None = None, **headers: str
) -> AsyncIterator[Client]:
    given = {"authorization": f"Bearer {key or server.key}", **headers}
    if thread is not None:
        given["hutch-thread"] = thread
    async with http(given) as client:
        async with Client(streamable_http_client(f"{server.url}/mcp", http_client=client), mode=era) as found:
            yield found


def http(headers: Mapping[str, str]) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(headers=dict(headers), trust_env=False, timeout=HANG)


def running(work: Callable[[], Awaitable[T]]) -> T:
    async def main() -> T:
        async with asyncio.timeout(HANG):
            return await work()

    return asyncio.run(main())


def text(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def said(client: Client, tool: str, **arguments: Any) -> str:
    """What a tool answers, which is no failure."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text(result)
    return text(result)


async def failure(client: Client, tool: str, **arguments: Any) -> str:
    """The code that a tool fails with."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text(result)
    assert text(result).startswith("ERROR: "), text(result)
    return text(result).split(": ")[1]
