"""Callers of a coordinator that mean no good, or leave without a word: it is as safe as the one server behind it."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path

import httpx
import pytest
import redis
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hutch.model.location import Location
from hutch.store.database import open_database
from hutch.store.locations import Locations
from tests.cluster_rig import Cluster, Member, running_cluster, wait_for
from tests.hostile.test_server_keys import NEED_A_KEY, OF_A_SANDBOX, OF_A_SESSION, OPERATIONS, call

pytestmark = pytest.mark.once

LEAVERS = 50
NOTICED_SECONDS = 20.0
KEPT = 10  # at most as many connections to workers stay in use between calls of one caller
ESTABLISHED, CLOSE_WAIT = "01", "08"  # as /proc/net/tcp has them
OUTSIDE = "hutch-was-outside"


class Stage:
    """A coordinator, its workers, and a sandbox of the tenant `local` with a file and a process."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.coordinator = cluster.coordinator("c1")
        self.workers = [cluster.worker(name) for name in ("w1", "w2")]
        cluster.ready(self.coordinator, "w1", "w2")
        self.key = cluster.key(scope="admin")
        self.own = self.client(self.key)
        made = self.own.put("/v1/sessions", json={"user_id": "u", "thread_id": "t", "template": "open"}).json()
        self.sandbox: str = made["sandbox_id"]
        self.session: str = made["session_id"]
        self.base = f"/v1/sandboxes/{self.sandbox}"
        assert self.own.put(f"{self.base}/files?path=a", content=b"secret").status_code == 200
        started = self.own.post(f"{self.base}/processes", json={"command": "cat", "stdin": "pipe"})
        self.process: str = started.json()["process_id"]
        self.holder = next(one for one in self.workers if (one.folder / "sandboxes" / self.sandbox).exists())
        self.second = cluster.worker("second", WORKER_ID=self.holder.name)  # by mistake; it takes a while to find out

    def client(self, key: str | None) -> httpx.Client:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.coordinator.url, headers=headers, trust_env=False, timeout=30)

    def running(self) -> int:
        return sum(one["status"] == "running" for one in self.own.get(f"{self.base}/processes").json())

    def raw(self, head: str, body: bytes = b"", at: Member | None = None) -> socket.socket:
        """A connection with a request on it; `head` is its first line and what follows the usual ones."""
        line, _, rest = head.partition("\r\n")
        made = socket.create_connection(("127.0.0.1", (at or self.coordinator).port), timeout=30)
        usual = f"Host: localhost\r\nAuthorization: Bearer {self.key}\r\n"
        made.sendall(f"{line} HTTP/1.1\r\n{usual}{rest}\r\n".encode() + body)
        return made


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), HUTCH_DRAIN_SECONDS="1") as cluster:
        made = Stage(cluster)
        with closing(made.own):
            yield made


# -- keys and tenants


def test_without_a_key_a_coordinator_says_nothing(stage: Stage) -> None:
    made = stage.own.post("/v1/keys", json={"name": "soon revoked", "scope": "use"}).json()
    assert stage.own.delete(f"/v1/keys/{made['key_id']}").status_code == 204
    for key in (None, made["key"], "x" * 5000):
        with stage.client(key) as client:
            for method, path in NEED_A_KEY:
                answer = call(client, method, path, stage.sandbox, stage.process, stage.session)
                assert (answer.status_code, stage.sandbox in answer.text) == (401, False), (method, path, answer.text)
    assert len(NEED_A_KEY) > 30


def test_what_is_another_tenants_is_not_there_through_a_coordinator(stage: Stage) -> None:
    fine = {("DELETE", "/v1/sandboxes/{sandbox_id}"): 204, ("POST", "/cleanup"): 200}  # as for what has ended
    with stage.client(stage.cluster.key("other", "admin")) as client:
        for method, path in OF_A_SANDBOX + OF_A_SESSION:
            theirs = call(client, method, path, stage.sandbox, stage.process, stage.session)
            missing = call(client, method, path, "sbaaaaaaaaaaaaaaaa", stage.process, "none")
            expected = fine.get((method, path), 404)
            assert theirs.status_code == missing.status_code == expected, (method, path, theirs.text, missing.text)
            assert stage.sandbox not in theirs.text
        assert client.get("/v1/sessions").json() == []
        for query in ("thread_id=t", "thread_id=none&thread_id=t", "thread_id=t&thread_id=none"):
            assert client.get(f"/v1/sessions?{query}").status_code in (400, 404)
    assert stage.own.get(f"{stage.base}/files?path=a").content == b"secret"


def test_a_key_that_may_only_read_changes_nothing_through_a_coordinator(stage: Stage) -> None:
    with stage.client(stage.cluster.key(scope="read")) as client:
        for method, path in OPERATIONS:
            if method != "GET":
                answer = call(client, method, path, stage.sandbox, stage.process, stage.session)
                assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (method, path)


@pytest.mark.parametrize(
    "path",
    [
        "/internal/sandboxes/{0}",
        "/v1/sandboxes/{0}/../../../internal/sandboxes/{0}",
        "/v1/sandboxes/{0}/%2e%2e/%2e%2e/%2e%2e/internal/sandboxes/{0}",
        "/v1/%73andboxes/{0}",
        "//v1/sandboxes/{0}",
        "/v1/./sandboxes/{0}",
        "/v1/sandboxes//{0}",
        "/V1/sandboxes/{0}",
        "/v1/sandboxes/x/../{0}",
        "/v1/sandboxes/{0}%2f..%2f{0}",
        "/v1/sandboxes/{0};x",
        "/v1/sandboxes/{0}/;x",
        "/v1/sandboxes/{0}/\\..\\x",
        "/v1/sandboxes/{0}/%0d%0aX-Hutch-Worker-Token:%20x",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_no_spelling_of_a_path_leads_elsewhere(stage: Stage, method: str, path: str) -> None:
    with closing(stage.raw(f"{method} {path.format(stage.sandbox)}\r\nContent-Length: 0\r\n")) as caller:
        assert caller.recv(4096).split()[1] == b"404"


# -- WebSockets


@pytest.mark.parametrize("path", ["/v1/sessions", "/openapi.json", "/status/x", "/get_session?thread_id=t", "/nowhere"])
def test_where_no_websocket_is_there_is_none(stage: Stage, path: str) -> None:
    headers = {"authorization": f"Bearer {stage.key}"}
    address = stage.coordinator.url.replace("http", "ws", 1) + path
    with pytest.raises(InvalidStatus) as caught, connect(address, additional_headers=headers, proxy=None):
        pass
    assert caught.value.response.status_code < 500


# -- those who stay


@pytest.mark.parametrize(
    ("method", "path", "status"), [("HEAD", "/get_session?thread_id=t", 405), ("DELETE", "/v1/sandboxes/sbaaaa", 204)]
)
def test_a_connection_goes_on_after_an_answer_without_a_body(stage: Stage, method: str, path: str, status: int) -> None:
    for _ in range(50):
        assert stage.own.request(method, path).status_code == status


# -- those who leave


def test_a_coordinator_tells_the_worker_that_a_caller_left(stage: Stage) -> None:
    idle = stage.running()
    body = json.dumps({"command": "sleep 1000"}).encode()
    head = f"POST {stage.base}/exec\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    with ExitStack() as callers:
        for _ in range(LEAVERS):
            callers.enter_context(closing(stage.raw(head, body)))
        wait_for(lambda: stage.running() == idle + LEAVERS, NOTICED_SECONDS)
    wait_for(lambda: stage.running() == idle, NOTICED_SECONDS)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("GET {0}/files/watch?path=.\r\n", b""),
        ("GET {0}/processes/{1}/events\r\n", b""),
        ("PUT {0}/files?path=upload\r\nContent-Length: 1000000\r\n", b"x" * 70_000),
        ("PUT {0}/files?path=upload\r\nTransfer-Encoding: chunked\r\n", b"ff\r\nx"),
        ("POST /upload_file\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: 9999\r\n", b"--B\r\n"),
    ],
)
def test_those_who_leave_in_mid_stream_leave_no_connection(stage: Stage, head: str, body: bytes) -> None:
    def connections() -> int:
        """To the coordinator, and from it to workers."""
        assert stage.own.get(stage.base).status_code == 200  # whoever asks closes what was kept for too long
        ports = {f"{one.port:04X}" for one in (stage.coordinator, *stage.workers)}
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(row[1].partition(":")[2] in ports and row[3] in (ESTABLISHED, CLOSE_WAIT) for row in rows)

    before = connections()
    with ExitStack() as callers:
        for _ in range(LEAVERS):
            callers.enter_context(closing(stage.raw(head.format(stage.base, stage.process), body)))
        wait_for(lambda: connections() >= before + LEAVERS, NOTICED_SECONDS)
    wait_for(lambda: connections() <= before + KEPT, NOTICED_SECONDS)
    assert stage.own.get(f"{stage.base}/files?path=upload").status_code == 404
    assert stage.own.get(f"{stage.base}/files?path=a").content == b"secret"


# -- names


def test_a_second_worker_of_a_name_harms_nothing_of_the_first(stage: Stage) -> None:
    """It has another data folder: to it, nothing of what the name has is there."""
    assert stage.second.process.wait(NOTICED_SECONDS) != 0
    assert "WORKER_ID" in stage.second.said()
    assert stage.own.get(f"{stage.base}/files?path=a").content == b"secret"


# -- what is brought to a worker


Entry = tuple[str, bytes, bytes, str, int]  # name, kind, data, where a link points, mode
ODD: list[Entry] = [
    ("a", tarfile.REGTYPE, b"kept", "", 0o644),
    (f"/tmp/{OUTSIDE}", tarfile.REGTYPE, b"absolute", "", 0o644),
    ("out", tarfile.SYMTYPE, b"", "/tmp", 0o777),
    ("root", tarfile.REGTYPE, b"#!/bin/sh", "", 0o6755),
]
HARMFUL: list[Entry] = [
    *ODD,
    (f"../../../../../../../../tmp/{OUTSIDE}", tarfile.REGTYPE, b"climbs", "", 0o644),
    (f"out/{OUTSIDE}", tarfile.REGTYPE, b"through a link", "", 0o644),
    ("hard", tarfile.LNKTYPE, b"", "/etc/hostname", 0o644),
    ("device", tarfile.BLKTYPE, b"", "", 0o666),
]


def _hostile_archive(entries: list[Entry]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, kind, data, link, mode in entries:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname, info.mode = kind, len(data), link, mode
            info.devmajor = info.devminor = 1
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def _bring(stage: Stage, archive: bytes, thread: str) -> tuple[httpx.Response, str]:
    """As a worker does it that is told to end: the answer of `w2`, and the sandbox that was brought."""
    order = {"user_id": "u", "thread_id": thread, "template": "open"}
    sandbox = str(stage.own.put("/v1/sessions", json=order).json()["sandbox_id"])
    holder = next(one for one in stage.workers if (one.folder / "sandboxes" / sandbox).exists())
    location = asyncio.run(_given_away(stage.cluster.database_url, sandbox))
    wait_for(lambda: not (holder.folder / "sandboxes" / sandbox).exists(), NOTICED_SECONDS)
    with redis.Redis.from_url(stage.cluster.redis.url) as told:
        token = json.loads(told.hget("hutch:workers", "w2") or b"{}")["token"]
    where = asdict(location)
    address = f"{stage.workers[1].url}/internal/sandboxes/{where.pop('sandbox_id')}"
    answer = httpx.put(address, params=where, headers={"x-hutch-worker-token": token}, content=archive, timeout=60)
    return answer, sandbox


async def _given_away(database_url: str, sandbox: str) -> Location:
    """To a worker that there is not, so that who has it lets go."""
    database = await open_database(database_url)
    try:
        locations = Locations(database)
        location = await locations.sandbox(sandbox)
        assert location is not None
        assert await locations.move(location, "elsewhere")
        return replace(location, worker_id="elsewhere", fence=location.fence + 1)
    finally:
        await database.aclose()


def test_an_archive_that_means_harm_reaches_only_its_own_sandbox(stage: Stage) -> None:
    outside = Path("/tmp", OUTSIDE)
    folder = stage.workers[1].folder / "sandboxes"
    try:
        before = set(folder.iterdir())
        answer, sandbox = _bring(stage, _hostile_archive(HARMFUL), "harmful")
        assert answer.json()["code"] == "sandbox_unavailable", answer.text  # tar says what it refuses
        assert set(folder.iterdir()) == before
        answer, sandbox = _bring(stage, _hostile_archive(ODD), "odd")
        assert answer.status_code == 200, answer.text
        run = {"command": f"cat a; ls {OUTSIDE} tmp/{OUTSIDE}; stat -c %a root; ls -d ../tmp/{OUTSIDE}"}
        result = stage.own.post(f"/v1/sandboxes/{sandbox}/exec", json=run).json()
        assert result["stdout"].startswith("kept"), result
        assert not outside.exists()
    finally:
        outside.unlink(missing_ok=True)


@pytest.mark.parametrize("archive", [b"no archive at all" * 100, b"\xff" * 100_000])
def test_an_archive_that_is_none_is_refused_and_leaves_nothing(stage: Stage, archive: bytes) -> None:
    answer, sandbox = _bring(stage, archive, f"none{len(archive)}")
    assert (answer.status_code, answer.json()["code"]) == (503, "sandbox_unavailable")
    assert not (stage.workers[1].folder / "sandboxes" / sandbox).exists()


# -- secrets


def test_what_servers_say_holds_no_secret(stage: Stage) -> None:
    wrong = "postgresql://u:s3cret-1@127.0.0.1:9/x"
    lost = [
        stage.cluster.coordinator("lost1", DATABASE_URL=wrong, HUTCH_REDIS_URL="redis://:s3cret-2@127.0.0.1:9/0"),
        stage.cluster.coordinator("lost2", HUTCH_REDIS_URL="redis://u:s3cret-2@127.0.0.1:9/0"),
        stage.cluster.coordinator("lost3", DATABASE_URL="postgresql://u:s3cret-3%zz@127.0.0.1:9/x?what=ever"),
    ]
    for member in lost:
        wait_for(lambda member=member: member.process.poll() is not None or "start_waits" in member.said(), 20)  # type: ignore[misc]  # bound now
        member.kill()
    with redis.Redis.from_url(stage.cluster.redis.url) as told:
        tokens = [json.loads(text)["token"] for text in told.hvals("hutch:workers")]
    pages = [stage.own.get(path).text for path in ("/health", "/ready", "/metrics", "/v1/doctor", "/v1/version")]
    said = "\n".join([one.said() for one in (*lost, stage.coordinator, *stage.workers)] + pages)
    assert all(tokens)
    assert [secret for secret in (*tokens, "s3cret", stage.key) if secret in said] == []
