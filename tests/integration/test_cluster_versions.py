"""A worker one protocol number older serves beside a new one. The older one is a recording of what it says."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client

from hutch import SandboxClient
from hutch.model.wire import PROTOCOL
from hutch.store.records import SandboxRecord, SessionRecord
from hutch.store.store import Store
from tests.cluster_rig import Cluster, running_cluster
from tests.redis_rig import running_redis

pytestmark = pytest.mark.once

RECORDING: dict[str, Any] = json.loads((Path(__file__).parent.parent / "recordings/worker_protocol_0.json").read_text())


class Recorded(BaseHTTPRequestHandler):
    """Answers what was recorded, and nothing else."""

    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        for one in RECORDING["exchanges"]:
            if (one["method"], one["path"].partition("?")[0]) == (self.command, self.path.partition("?")[0]):
                body = one["body"].encode()
                self.send_response(one["status"])
                self.send_header("content-type", one["type"])
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return
        self.send_error(500, f"not recorded: {self.command} {self.path}")

    do_GET = do_PUT = do_POST = _answer  # noqa: N815 - as the library names them

    def log_message(self, *args: Any) -> None: ...


@contextmanager
def old_worker(cluster: Cluster, protocol: int) -> Iterator[None]:
    """It serves its recording, and says in Redis that it is there."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorded)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    info = {**RECORDING["worker"], "protocol": protocol, "url": f"http://127.0.0.1:{server.server_port}"}
    over = threading.Event()
    connection = redis_client.Redis.from_url(cluster.redis.url)

    def renew() -> None:
        while not over.is_set():
            connection.hset("hutch:workers", info["worker_id"], json.dumps(info))
            connection.set(f"hutch:alive:{info['worker_id']}", info["incarnation"], px=6000)
            over.wait(1)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        connection.close()
        server.shutdown()
        server.server_close()


async def _written_by_the_old_worker(database_url: str) -> None:
    store = await Store.open(database_url)
    now = time.time()
    sandbox = SandboxRecord(
        RECORDING["sandbox_id"],
        *("local", "bash", "bubblewrap", "running", None, "/workspace", {}),
        *(now, now, now + 600, "remove", 600.0, False),
        worker_id="w0",
    )
    session = SessionRecord(
        RECORDING["session_id"], "local", "old", "u", RECORDING["sandbox_id"], now, 600.0, shared=False
    )
    await store.bind_session(session, sandbox)
    await store.aclose()


def test_an_older_worker_serves_beside_a_new_one(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster") as cluster:
        coordinator = cluster.coordinator("c1")
        cluster.worker("w1")
        with old_worker(cluster, PROTOCOL - 1):
            cluster.ready(coordinator, "w0", "w1")
            asyncio.run(_written_by_the_old_worker(cluster.database_url))
            client = SandboxClient(mode="remote", server_url=coordinator.url, api_key=cluster.key())
            old = client.for_thread("u", "old")
            assert old.execute("echo hello from the past")["stdout"] == "hello from the past\n"
            old.files.write("a.txt", b"kept")
            assert old.files.read("a.txt") == b"kept"
            # The new one serves as ever; of new threads each takes its share, as the old one is one to choose.
            workers = {row["worker_id"]: row for row in client.health()["workers"]}
            assert (workers["w0"]["protocol"], workers["w0"]["understood"]) == (PROTOCOL - 1, True)
            assert workers["w1"]["understood"]


def test_a_worker_that_is_only_named_is_found_by_asking(tmp_path: Path) -> None:
    """It registers with a Redis of its own, as one behind another network would."""
    with running_cluster(tmp_path / "cluster") as cluster, running_redis(tmp_path) as elsewhere:
        worker = cluster.worker("w1", HUTCH_REDIS_URL=elsewhere.url)
        coordinator = cluster.coordinator("c1", WORKERS=f"{worker.url},http://127.0.0.1:9")
        cluster.ready(coordinator, "w1")
        client = SandboxClient(mode="remote", server_url=coordinator.url, api_key=cluster.key())
        assert client.for_thread("u", "t").execute("echo found")["stdout"] == "found\n"
        worker.kill()
        cluster.ready(coordinator)


def test_a_worker_of_an_unknown_protocol_gets_nothing(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster") as cluster:
        coordinator = cluster.coordinator("c1")
        cluster.worker("w1")
        with old_worker(cluster, PROTOCOL + 1):
            cluster.ready(coordinator, "w0", "w1")
            client = SandboxClient(mode="remote", server_url=coordinator.url, api_key=cluster.key())
            for number in range(4):  # more than w1 would get were the two alike
                assert client.for_thread("u", f"t{number}").execute("echo new")["stdout"] == "new\n"
            workers = {row["worker_id"]: row for row in client.health()["workers"]}
            assert not workers["w0"]["understood"]
