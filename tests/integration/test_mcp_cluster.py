"""MCP at a coordinator: it answers itself, and acts through what it does for any other caller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import httpx
import pytest

from tests.cluster_rig import Cluster, running_cluster
from tests.mcp_rig import ERAS, connected, failure, running, said
from tests.server_rig import Served

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("mcp-cluster")) as found:
        coordinator = found.coordinator("c")
        found.worker("w1")
        found.ready(coordinator, "w1")
        yield found


def test_conversations_on_a_worker_and_a_drive_on_none(cluster: Cluster) -> None:
    url, key = cluster.members[0].url, cluster.key()
    server = cast(Served, SimpleNamespace(url=url, key=key))

    async def one(era: str, number: int) -> None:
        heard: list[str | None] = []

        async def listen(progress: float, total: float | None, message: str | None) -> None:
            heard.append(message)

        async with connected(server, era, thread=f"{era}-{number}") as client:
            await said(client, "files_write", path="f", content=f"{number}\n")
            assert (await said(client, "execute", command="cat f")).startswith(f"{number}\n")
            result = await client.call_tool(
                "execute", {"command": "echo now; sleep 1; echo then"}, progress_callback=listen
            )
            assert not result.is_error
            assert len(heard) >= 2
            await said(client, "drive_write", path=f"/n/{era}-{number}", content="x")
            await said(client, "drive_place", paths=[f"/n/{era}-{number}"])
            call = asyncio.create_task(client.call_tool("execute", {"command": "sleep 777", "timeout": 600}))
            while "sleep 777" not in await said(client, "process_list"):
                await asyncio.sleep(0.1)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            while " running " in await said(client, "process_list"):
                await asyncio.sleep(0.1)

    async def work() -> None:
        await asyncio.gather(*(one(era, number) for era in ERAS for number in range(3)))
        async with connected(server, ERAS[1], thread="other", key=cluster.key("other")) as client:
            assert await said(client, "drive_list") == "Nothing."
        async with connected(server, ERAS[1], thread="r", key=cluster.key(scope="read")) as client:
            assert await failure(client, "execute", command="true") == "forbidden"

    running(work)
    with httpx.Client(base_url=url, trust_env=False) as plain:
        answer = plain.post("/mcp", json={})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        sandboxes = plain.get("/v1/sessions", headers={"authorization": f"Bearer {key}"}).json()
    assert len(sandboxes) == 6


def test_workers_have_no_mcp(cluster: Cluster) -> None:
    """They are spoken to by coordinators."""
    answer = httpx.post(
        f"{cluster.members[1].url}/mcp", headers={"authorization": f"Bearer {cluster.key()}"}, trust_env=False
    )
    assert answer.status_code == 404
