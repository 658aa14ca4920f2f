"""Many machines behind one address: placement, affinity, death, take-over, draining."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
import pytest

from hutch import SandboxClient
from hutch.cluster.registry import ALIVE_SECONDS
from hutch.model.errors import HutchError, SandboxMoved, SessionExpiredError, StoreUnavailable, WorkerLost
from tests.cluster_rig import Cluster, Member, running_cluster, wait_for

pytestmark = pytest.mark.once

T = TypeVar("T")
DEAD_SECONDS = 3 * ALIVE_SECONDS  # by then everybody knows that a worker is dead


class Play:
    """One coordinator, its workers, and clients."""

    def __init__(self, cluster: Cluster, **variables: str) -> None:
        self.cluster = cluster
        self.coordinator = cluster.coordinator("c1", **variables)
        self.workers = {name: cluster.worker(name, **variables) for name in ("w1", "w2")}
        cluster.ready(self.coordinator, *self.workers)
        self.key = cluster.key()

    def client(self, at: Member | None = None) -> SandboxClient:
        url = (at or self.coordinator).url
        return SandboxClient(mode="remote", server_url=url, api_key=self.key, policy="open", template="open")

    def get(self, path: str, at: Member | None = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.get((at or self.coordinator).url + path, headers=headers, timeout=30)

    def holder(self, thread: str) -> Member:
        """The worker that has a thread's sandbox: it is in the list of that worker alone."""
        held = [
            member
            for member in self.workers.values()
            if any(one["thread_id"] == thread for one in self.get("/v1/sessions", member).json())
        ]
        assert len(held) == 1, f"{thread} is at {[one.name for one in held]}"
        return held[0]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """For tests that leave the cluster as it was."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield Play(cluster)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path / "cluster") as cluster:
        yield cluster


def eventually(call: Callable[[], T], seconds: float, error: type[HutchError]) -> T:
    """What `call` gives at last; until then only this error."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except error:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


# -- placement


def test_threads_are_spread_and_stay_where_they_are(play: Play) -> None:
    client = play.client()
    handles = {f"spread{n}": client.for_thread("u", f"spread{n}") for n in range(6)}
    for name, handle in handles.items():
        assert handle.execute(f"echo {name} > mine")["exit_code"] == 0
    places = {name: play.holder(name).name for name in handles}
    assert set(places.values()) == {"w1", "w2"}
    for name, handle in handles.items():
        assert handle.execute("cat mine")["stdout"] == f"{name}\n"
    assert {name: play.holder(name).name for name in handles} == places
    listed = {one["thread_id"] for one in client.sessions()}
    assert set(handles) <= listed
    for handle in handles.values():
        handle.close_session()


def test_fifty_callers_at_two_coordinators_get_one_sandbox(play: Play) -> None:
    second = play.cluster.coordinator("c2")
    play.cluster.ready(second, "w1", "w2")
    try:
        for round_number in range(3):
            thread = f"crowd{round_number}"
            clients = [play.client(at) for at in (play.coordinator, second) * 25]
            gate = threading.Barrier(len(clients))

            def ask(client: SandboxClient, thread: str = thread, gate: threading.Barrier = gate) -> str:
                gate.wait()
                return str(client.get_or_create_session("u", thread)["session_id"])

            with ThreadPoolExecutor(len(clients)) as pool:
                sessions = Counter(pool.map(ask, clients))
            assert len(sessions) == 1, sessions
            assert len([one for one in play.client().sessions() if one["thread_id"] == thread]) == 1
            play.holder(thread)
    finally:
        second.end()


def test_a_worker_says_that_it_does_not_have_a_sandbox(play: Play) -> None:
    client = play.client()
    session = client.for_thread("u", "elsewhere")
    session.execute("true")
    holder = play.holder("elsewhere")
    sandbox = next(one["sandbox_id"] for one in client.sessions() if one["thread_id"] == "elsewhere")
    other = next(one for one in play.workers.values() if one is not holder)
    answer = play.get(f"/v1/sandboxes/{sandbox}", other)
    assert (answer.status_code, answer.json()["code"]) == (SandboxMoved.http_status, "sandbox_moved")
    assert play.get(f"/v1/sandboxes/{sandbox}", holder).status_code == 200
    assert play.get(f"/v1/sandboxes/{sandbox}").status_code == 200


def test_another_tenant_learns_nothing(play: Play) -> None:
    mine = play.client()
    mine.for_thread("u", "secret").execute("true")
    sandbox = next(one["sandbox_id"] for one in mine.sessions() if one["thread_id"] == "secret")
    stranger = {"authorization": f"Bearer {play.cluster.key('stranger')}"}
    for url in (play.coordinator.url, *(worker.url for worker in play.workers.values())):
        answer = httpx.get(f"{url}/v1/sandboxes/{sandbox}", headers=stranger)
        assert (answer.status_code, answer.json()["code"]) == (404, SessionExpiredError.code), url
        assert httpx.get(f"{url}/v1/sessions", headers=stranger).json() == []


def test_only_workers_may_bring_a_sandbox(play: Play) -> None:
    client = play.client()
    client.for_thread("u", "stay").execute("echo here > file")
    holder = play.holder("stay")
    sandbox = next(one["sandbox_id"] for one in client.sessions() if one["thread_id"] == "stay")
    other = next(one for one in play.workers.values() if one is not holder)
    where: dict[str, str | int] = {"tenant": "local", "state": "running", "worker_id": holder.name, "fence": 0}
    for headers in ({}, {"authorization": f"Bearer {play.key}"}, {"x-hutch-worker-token": "guess"}):
        answer = httpx.put(f"{other.url}/internal/sandboxes/{sandbox}", params=where, headers=headers, content=b"")
        assert answer.status_code == 404
    assert play.get(f"/internal/sandboxes/{sandbox}").status_code == 404  # nor does a coordinator pass that on
    assert client.for_thread("u", "stay").execute("cat file")["stdout"] == "here\n"


def test_the_coordinator_says_how_the_workers_stand(play: Play) -> None:
    health = play.get("/health").json()
    assert (health["workers_total"], health["workers_healthy"], health["redis_connected"]) == (2, 2, True)
    assert httpx.get(f"{play.coordinator.url}/health").json() == {"status": "ok"}
    assert play.get("/ready").status_code == 200
    assert "/v1/sessions" in play.get("/openapi.json").json()["paths"]


def test_previews_pass_through_the_coordinator(play: Play) -> None:
    handle = play.client().for_thread("u", "page")
    handle.execute("mkdir site; echo '<h1>here</h1>' > site/index.html")
    handle.start("cd site && exec python3 -m http.server 3000 --bind 127.0.0.1")
    preview = handle.preview(3000)
    assert preview["address"].startswith(play.cluster.preview_url)
    token = {"hutch-preview-token": preview["token"]}

    def answers() -> bool:
        return httpx.get(f"{preview['address']}/", headers=token).status_code == 200

    wait_for(answers, 20)
    assert httpx.get(f"{preview['address']}/", headers=token).text == "<h1>here</h1>\n"
    # As a browser does it: by host, with the token in the address first, then with the cookie alone.
    by_host = {"host": urlsplit(preview["url"]).netloc, "accept": "text/html"}
    door = f"http://127.0.0.1:{play.coordinator.preview_port}"
    with httpx.Client(headers=by_host) as browser:
        first = browser.get(f"{door}/?{urlsplit(preview['url']).query}")
        assert (first.status_code, preview["token"] in str(first.headers.get("location"))) == (303, False)
        cookie = first.headers["set-cookie"].partition(";")[0]
        assert browser.get(f"{door}/", headers={"cookie": cookie}).text == "<h1>here</h1>\n"
    assert httpx.get(f"{preview['address']}/").status_code == 401
    assert httpx.get(f"{door}/v1/sessions", headers={"authorization": f"Bearer {play.key}"}).status_code == 404
    handle.revoke_preview(3000)
    assert httpx.get(f"{preview['address']}/", headers=token).status_code == 401


def test_the_flat_routes_pass_through_the_coordinator(play: Play) -> None:
    headers = {"authorization": f"Bearer {play.key}"}
    data = os.urandom(3_000_000)
    with httpx.Client(base_url=play.coordinator.url, headers=headers, timeout=30) as older:
        made = older.post("/create_session", json={"user_id": "u", "thread_id": "flat"})
        assert made.status_code == 201
        session = {"session_id": made.json()["session_id"]}
        assert older.get("/get_session", params={"thread_id": "flat"}).json()["session_id"] == session["session_id"]
        # The session may stand behind the file in the form: nobody knows the worker before all of it has come.
        form = _form([("file", "big.bin", data), ("session_id", None, session["session_id"].encode())])
        assert older.post("/upload_file", content=form[0], headers={"content-type": form[1]}).status_code == 200
        result = older.post("/execute", json={**session, "command": "wc -c < big.bin"}).json()
        assert result["stdout"].strip() == str(len(data))
        assert older.get("/list_files", params=session).json()["total_files"] == 1
        assert older.post("/download_file", json={**session, "filename": "big.bin"}).content == data
        assert older.get(f"/status/{session['session_id']}").status_code == 200
        assert older.post("/execute", json={"session_id": "nobody", "command": "ls"}).status_code == 404
        assert older.post("/execute", content=b"{").status_code in (400, 422)
        assert older.post("/cleanup", json=session).status_code == 200
        assert older.get("/get_session", params={"thread_id": "flat"}).status_code == 404


def _form(parts: list[tuple[str, str | None, bytes]]) -> tuple[bytes, str]:
    """A form in this very order, and its content type."""
    body = b""
    for name, filename, data in parts:
        file = f'; filename="{filename}"' if filename else ""
        body += f'--B\r\ncontent-disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + data + b"\r\n"
    return body + b"--B--\r\n", "multipart/form-data; boundary=B"


# -- death and take-over


@pytest.mark.slow
def test_a_dead_worker_is_named_at_once_and_its_threads_start_again_elsewhere(fresh: Cluster) -> None:
    play = Play(fresh)
    client = play.client()
    handles = [client.for_thread("u", f"t{n}") for n in range(4)]
    for handle in handles:
        handle.execute("echo kept > file")
    dead = play.holder("t0")
    lost = {f"t{n}" for n in range(4) if play.holder(f"t{n}") is dead}
    dead.kill()

    began = time.monotonic()
    with pytest.raises(WorkerLost) as caught:
        handles[0].execute("cat file")
    assert time.monotonic() - began < ALIVE_SECONDS
    assert caught.value.retryable
    assert dead.name in str(caught.value)
    for n, handle in enumerate(handles):
        result = eventually(partial(handle.execute, "cat file"), DEAD_SECONDS, WorkerLost)
        if f"t{n}" in lost:
            assert (result["session_recreated"], result["files_kept"]) == (True, False)
        else:
            assert (result["stdout"], result["session_recreated"]) == ("kept\n", False)

    # The dead one comes back under its name and is used again; what it had is no longer there.
    again = fresh.worker(dead.name)
    fresh.ready(play.coordinator, "w1", "w2")
    wait_for(lambda: not any((again.folder / "sandboxes").iterdir()), DEAD_SECONDS)


@pytest.mark.slow
def test_on_shared_storage_another_worker_takes_the_files_over(fresh: Cluster, tmp_path: Path) -> None:
    shared = {"HUTCH_SHARED_DATA": "1", "HUTCH_DATA_DIR": str(tmp_path / "shared")}
    play = Play(fresh, **shared)
    handle = play.client().for_thread("u", "t")
    handle.execute("head -c 3000000 /dev/urandom > big; sha256sum big > sum; export X=1; mkdir deep; cd deep")
    play.holder("t").kill()
    result = eventually(
        lambda: handle.execute("sha256sum -c /workspace/sum", cwd="/workspace"), DEAD_SECONDS, WorkerLost
    )
    assert result["stdout"] == "big: OK\n"
    assert (result["session_recreated"], result["files_kept"]) == (True, True)


@pytest.mark.slow
def test_a_worker_that_was_only_paused_lets_go_of_what_others_took(fresh: Cluster) -> None:
    play = Play(fresh)
    client = play.client()
    handle = client.for_thread("u", "t")
    handle.execute("echo old > file")
    paused = play.holder("t")
    sandbox = next(one["sandbox_id"] for one in client.sessions() if one["thread_id"] == "t")
    paused.pause()
    result = eventually(lambda: handle.execute("echo new > file; cat file"), DEAD_SECONDS, WorkerLost)
    assert (result["stdout"], result["session_recreated"]) == ("new\n", True)
    paused.resume()
    folder = paused.folder / "sandboxes" / sandbox
    wait_for(lambda: not folder.exists(), DEAD_SECONDS)
    assert handle.execute("cat file")["stdout"] == "new\n"
    fresh.ready(play.coordinator, "w1", "w2")
    assert play.get(f"/v1/sandboxes/{sandbox}", paused).status_code == 404


@pytest.mark.slow
def test_without_redis_what_runs_goes_on_and_what_is_new_waits(fresh: Cluster) -> None:
    play = Play(fresh)
    handle = play.client().for_thread("u", "t")
    handle.execute("echo here > file")
    fresh.redis.pause()
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            assert handle.execute("cat file")["stdout"] == "here\n"
            time.sleep(0.2)
        body = {"user_id": "u", "thread_id": "new"}
        headers = {"authorization": f"Bearer {play.key}"}
        answer = httpx.put(f"{play.coordinator.url}/v1/sessions", json=body, headers=headers, timeout=30)
        assert (answer.status_code, answer.json()["code"]) == (503, StoreUnavailable.code)
        assert int(answer.headers["retry-after"]) > 0
    finally:
        fresh.redis.resume()
    fresh.ready(play.coordinator, "w1", "w2")
    assert handle.execute("cat file")["stdout"] == "here\n"
    result = play.client().for_thread("u", "new").execute("echo made")
    assert result["stdout"] == "made\n"


# -- draining


@pytest.mark.slow
def test_a_worker_that_is_told_to_end_finishes_and_hands_over_everything(fresh: Cluster) -> None:
    play = Play(fresh)
    client = play.client()
    handles = {f"t{n}": client.for_thread("u", f"t{n}") for n in range(4)}
    data = os.urandom(2_000_000)
    for handle in handles.values():
        handle.files.write("deep/er/data.bin", data)
        handle.execute(
            "ln -s data.bin deep/er/link; chmod 750 deep; touch -d @1000000000 deep/er/data.bin; umask 0; mkfifo p;"
            " echo shut > key; chmod 0 key; mkdir -m 300 shut; echo in > shut/f"
        )
        handle.set_env({"KEPT": "yes"})
        handle.set_cwd("deep/er")
    ending = play.holder("t0")
    stays = next(one for one in play.workers.values() if one is not ending)
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(handles["t0"].execute, "sleep 3; echo finished")
        time.sleep(1)
        assert ending.end() == 0
        assert long.result(30)["stdout"] == "finished\n"
    for name, handle in handles.items():
        result = handle.execute("pwd; echo $KEPT; sha256sum < link; stat -c %Y data.bin; stat -c %a /workspace/deep")
        digest = hashlib.sha256(data).hexdigest()
        assert result["stdout"] == f"/workspace/deep/er\nyes\n{digest}  -\n1000000000\n750\n", (name, result)
        assert result["session_recreated"] is False
        shut = handle.execute("cd /workspace; chmod -R u+rX key shut; cat key shut/f")
        assert shut["stdout"] == "shut\nin\n"
        assert play.get("/v1/sessions", stays).status_code == 200
    assert {one["thread_id"] for one in play.get("/v1/sessions", stays).json()} == set(handles)
    assert not any((ending.folder / "sandboxes").iterdir())


@pytest.mark.slow
def test_the_last_worker_keeps_its_sandboxes_for_its_next_start(fresh: Cluster) -> None:
    play = Play(fresh)
    play.workers["w2"].end()
    handle = play.client().for_thread("u", "t")
    handle.execute("echo kept > file")
    assert play.workers["w1"].end() == 0
    time.sleep(ALIVE_SECONDS + 1)
    with pytest.raises(WorkerLost):
        handle.execute("cat file")
    fresh.worker("w1")
    fresh.ready(play.coordinator, "w1")
    assert handle.execute("cat file")["stdout"] == "kept\n"


def _names_redis(member: Member) -> bool:
    return "Redis" in member.said()


def test_a_server_that_waits_for_what_it_shares_can_be_told_to_end(fresh: Cluster) -> None:
    fresh.redis.stop()
    for waiting in (fresh.coordinator("c1"), fresh.worker("w1")):
        wait_for(partial(_names_redis, waiting), 30)
        assert waiting.end() == 1
        assert "ended at once" in waiting.said()
        assert "fault" not in waiting.said()
