"""Workers that a coordinator was told of (`WORKERS`) are asked for their name, beside those that register."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable

import httpx

from hutch.cluster.registry import HEARTBEAT_SECONDS, Registry
from hutch.cluster.workers import WorkerInfo, checked

ASK_SECONDS = 2.0
UNKNOWN_CAPACITY = 1  # such a worker says by itself when it is full

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def asking(urls: Iterable[str], registry: Registry) -> AsyncIterator[None]:
    """Keeps what the registry knows of these workers fresh meanwhile."""
    async with httpx.AsyncClient(timeout=ASK_SECONDS, trust_env=False) as client:
        await asyncio.gather(*(_ask(client, url, registry) for url in urls))
        tasks = [asyncio.create_task(_keep_asking(client, url, registry)) for url in urls]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_asking(client: httpx.AsyncClient, url: str, registry: Registry) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        await _ask(client, url, registry)


async def _ask(client: httpx.AsyncClient, url: str, registry: Registry) -> None:
    try:
        answer = await client.get(url.rstrip("/") + "/v1/version")
        found = _worker(url.rstrip("/"), answer)
    except httpx.HTTPError:
        found = None
    registry.seeded(url, found)


def _worker(url: str, answer: httpx.Response) -> WorkerInfo | None:
    """None for what is no worker of ours."""
    try:
        said = answer.json()
        info = {**said, "url": url, "capacity": UNKNOWN_CAPACITY, "incarnation": "asked"}
    except (ValueError, TypeError):
        return None
    return checked(info) if answer.status_code == 200 else None
