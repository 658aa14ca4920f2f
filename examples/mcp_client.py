"""A program that serves many users: it speaks MCP with a Hutch server, and says with each call whose sandbox it means.

hutch serve &
HUTCH_API_KEY=$(cat ~/.local/share/hutch/api-key) python examples/mcp_client.py http://localhost:8000
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import cast

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import RequestParamsMeta, TextContent


async def main(url: str, key: str) -> None:
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=60) as http:
        async with Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
            for user, command in (("ada", "echo 'scale=3; 22/7' | bc"), ("bob", "seq 3 | paste -sd+ | bc")):
                whose = cast(RequestParamsMeta, {"io.hutch/user": user, "io.hutch/thread": f"sums-of-{user}"})
                done = await client.call_tool("execute", {"command": command}, meta=whose)
                assert isinstance(done.content[0], TextContent)
                print(f"{user}: {done.content[0].text}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], os.environ["HUTCH_API_KEY"]))
