"""Each figure of /metrics is moved by what it counts, and by nothing else. Over HTTP, on a fake provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hutch import CommandRejected, LimitExceeded, SandboxClient, SandboxUnavailable
from hutch.engine.loop import close_items
from hutch.testing.fake_process import Running
from hutch.testing.fake_provider import FakeProvider
from tests.metrics_rig import moving, scrape, series
from tests.server_rig import Served, served
from tests.unit.engine_stage import settings

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def provider() -> FakeProvider:
    provider = FakeProvider()
    provider.says("fine", out="12345")
    provider.says("bad", code=3)
    provider.says("greedy", code=137, limit="memory")
    provider.on("endless", lambda me: me.forever())
    return provider


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, provider: FakeProvider) -> Iterator[Served]:
    with served(settings(tmp_path_factory.mktemp("data")), provider) as made:
        yield made


def client_of(server: Served, thread: str, policy: str = "open") -> SandboxClient:
    client = SandboxClient(mode="remote", server_url=server.url, api_key=server.key, policy=policy)
    client.get_or_create_session(user_id="u", thread_id=thread)
    return client


@pytest.fixture(scope="module")
def client(server: Served) -> SandboxClient:
    return client_of(server, "shared")


def commands(outcome: str, kind: str = "command") -> Any:
    return series("hutch_commands_total", kind=kind, outcome=outcome)


SECONDS = series("hutch_command_seconds_count", kind="command")


def test_a_session_is_counted_as_it_came_and_as_it_went(server: Served) -> None:
    with moving(server) as moved:
        client = client_of(server, "counted")
    assert moved == {
        series("hutch_sessions_total", outcome="created"): 1,
        series("hutch_session_start_seconds_count", outcome="created"): 1,
        series("hutch_pool_takes_total", outcome="miss"): 1,
    }
    with moving(server) as moved:
        client_of(server, "counted")
    assert moved == {
        series("hutch_sessions_total", outcome="reused"): 1,
        series("hutch_session_start_seconds_count", outcome="reused"): 1,
    }
    with moving(server) as moved:
        client.close_session()
    assert moved == {series("hutch_session_life_seconds_count", end="closed"): 1}


def test_a_session_that_could_not_be_made_is_a_failure_with_its_code(server: Served, provider: FakeProvider) -> None:
    provider.faults.fail_next("start", SandboxUnavailable("no"))
    with moving(server) as moved, pytest.raises(SandboxUnavailable):
        client_of(server, "impossible")
    assert moved == {
        series("hutch_sessions_total", outcome="failed"): 1,
        series("hutch_failures_total", event="session_creation_failed", code="sandbox_unavailable"): 1,
    }


def test_a_session_that_expired_is_told_from_one_that_was_closed(tmp_path: Path) -> None:
    with served(settings(tmp_path), FakeProvider()) as server:
        brief = {"user_id": "u", "thread_id": "brief", "timeout_minutes": 0.002}
        head = {"authorization": f"Bearer {server.key}"}
        before = scrape(server)
        assert httpx.put(f"{server.url}/v1/sessions", json=brief, headers=head, trust_env=False).status_code == 201
        expired = series("hutch_session_life_seconds_count", end="expired")
        while not (now := scrape(server))[expired]:
            pass  # ends by the test's own time-out
        lived = now[series("hutch_session_life_seconds_sum", end="expired")]
        assert before[expired] == 0
        assert 0.12 <= lived < 30


@pytest.mark.parametrize(
    ("command", "outcome", "more"),
    [
        ("fine", "ok", {series("hutch_command_output_bytes_total"): 5}),
        ("bad", "nonzero", {}),
        ("greedy", "limit", {series("hutch_limit_hits_total", limit="memory"): 1}),
    ],
)
def test_a_command_is_counted_by_how_it_ended(
    server: Served, client: SandboxClient, command: str, outcome: str, more: dict[Any, float]
) -> None:
    with moving(server) as moved:
        client.execute(command)
    assert moved == {commands(outcome): 1, SECONDS: 1, **more}


def test_a_command_that_took_too_long_is_no_other_failure(server: Served, client: SandboxClient) -> None:
    with moving(server) as moved:
        assert client.execute("endless", timeout=0.05)["timed_out"]
    assert moved == {commands("timed_out"): 1, SECONDS: 1}


def test_a_command_whose_machine_ended_has_failed(server: Served, provider: FakeProvider) -> None:
    client = client_of(server, "dying")

    async def die(me: Running) -> None:
        me.computer.die("power cut")
        await me.forever()

    provider.on("die", die)
    with moving(server) as moved, pytest.raises(SandboxUnavailable):
        client.execute("die")
    assert moved == {
        commands("failed"): 1,
        series("hutch_failures_total", event="command_failed", code="sandbox_unavailable"): 1,
    }


def test_what_goes_on_is_told_from_what_is_waited_for(server: Served, client: SandboxClient) -> None:
    running = series("hutch_processes_running")
    before = scrape(server)[running]
    with moving(server) as moved:
        process = client.start("endless")
        assert scrape(server)[running] == before + 1
        process_id = process["process_id"]
        client.kill(process_id)
        client.wait(process_id)
    assert moved == {
        commands("nonzero", "background"): 1,
        series("hutch_command_seconds_count", kind="background"): 1,
    }
    assert scrape(server)[running] == before


def test_a_refused_command_is_counted_wherever_it_was_refused(server: Served) -> None:
    client = client_of(server, "strict", policy="strict")
    refused = {
        commands("refused"): 1,
        series("hutch_failures_total", event="validation_failed", code="command_rejected"): 1,
    }
    sandbox = client.info()["sandbox_id"]
    with moving(server) as moved:
        answer = httpx.post(
            f"{server.url}/v1/sandboxes/{sandbox}/exec",
            json={"command": "rm -rf /"},
            headers={"authorization": f"Bearer {server.key}"},
            trust_env=False,
        )
        assert answer.json()["code"] == "command_rejected"
    assert moved == refused
    with moving(server) as moved:
        with pytest.raises(CommandRejected):
            client.execute("rm -rf /")  # judged by the client itself, which tells of it with its next call
        client.info()
    assert moved == refused


def test_files_are_counted_with_their_bytes_both_ways(server: Served, client: SandboxClient) -> None:
    with moving(server) as moved:
        client.upload_file_from_bytes("a.txt", b"x" * 1000)
    assert moved == {
        series("hutch_transfers_total", direction="up", outcome="ok"): 1,
        series("hutch_transferred_bytes_total", direction="up"): 1000,
    }
    with moving(server) as moved:
        assert len(client.download_file_to_bytes("a.txt")) == 1000
    assert moved == {
        series("hutch_transfers_total", direction="down", outcome="ok"): 1,
        series("hutch_transferred_bytes_total", direction="down"): 1000,
    }
    with moving(server) as moved, pytest.raises(FileNotFoundError):
        client.download_file_to_bytes("nothing.txt")
    assert moved == {
        series("hutch_transfers_total", direction="down", outcome="failed"): 1,
        series("hutch_failures_total", event="file_download_failed", code="file_not_found"): 1,
    }


def test_a_file_that_is_too_large_hits_a_limit(tmp_path: Path) -> None:
    with served(settings(tmp_path, max_file_size_mb=1), FakeProvider()) as server:
        client = client_of(server, "large", policy="strict")
        with moving(server) as moved, pytest.raises(LimitExceeded):
            client.upload_file_from_bytes("large", bytes(1024 * 1024 + 1))
    assert moved == {
        series("hutch_limit_hits_total", limit="file_size"): 1,
        series("hutch_transfers_total", direction="up", outcome="failed"): 1,
        series("hutch_failures_total", event="file_upload_failed", code="limit_exceeded"): 1,
    }


def test_a_call_made_again_in_a_new_session_is_a_success_only_when_it_ran(
    server: Served, provider: FakeProvider
) -> None:
    def expire(client: SandboxClient) -> None:
        server.run(server.engine.sessions.close("local", client.info()["sandbox_id"]))

    client = client_of(server, "retried")
    expire(client)
    with moving(server) as moved:
        assert client.execute("fine")["session_recreated"]
    assert moved[series("hutch_auto_retries_total", outcome="ok")] == 1
    assert moved[series("hutch_sessions_total", outcome="renewed")] == 1
    assert series("hutch_auto_retries_total", outcome="failed") not in moved
    with moving(server) as moved:
        client.execute("fine")  # no retry
    assert series("hutch_auto_retries_total", outcome="ok") not in moved
    expire(client)
    provider.faults.fail_next("start", SandboxUnavailable("no"))
    with moving(server) as moved, pytest.raises(SandboxUnavailable):
        client.execute("fine")
    assert moved[series("hutch_auto_retries_total", outcome="failed")] == 1
    assert series("hutch_auto_retries_total", outcome="ok") not in moved
    provider.faults.fail_next("spawn", SandboxUnavailable("no"))
    with moving(server) as moved, pytest.raises(SandboxUnavailable):
        client.execute("fine")  # the session is had again; the command cannot run
    assert moved[series("hutch_auto_retries_total", outcome="failed")] == 1
    assert series("hutch_auto_retries_total", outcome="ok") not in moved


def test_the_pool_is_seen_filling_and_being_used(tmp_path: Path) -> None:
    with served(settings(tmp_path, pool_size=2, min_pool_size=0), FakeProvider()) as server:
        while scrape(server)[series("hutch_sandboxes_spare")] < 2:
            pass  # ends by the test's own time-out
        with moving(server) as moved:
            client_of(server, "lucky", policy="strict")
        assert moved[series("hutch_pool_takes_total", outcome="hit")] == 1
        now = scrape(server)
    assert now[series("hutch_sandboxes_spare")] == 1
    assert now[series("hutch_sandboxes_running")] == 2
    assert now[series("hutch_sandboxes_max")] == 80
    assert now[series("hutch_sessions_active")] == 1


def test_workspaces_are_weighed_again_after_they_were_used(tmp_path: Path) -> None:
    with served(settings(tmp_path), FakeProvider()) as server:
        one, other = client_of(server, "one"), client_of(server, "other")
        one.upload_file_from_bytes("a", b"x" * 300)
        other.upload_file_from_bytes("a", b"x" * 500)
        now = scrape(server)
        assert now[series("hutch_workspaces_counted")] == 2
        assert now[series("hutch_workspace_bytes")] == 800
        assert now[series("hutch_workspace_files")] == 2
        other.upload_file_from_bytes("b", b"x" * 200)
        assert scrape(server)[series("hutch_workspace_bytes")] == 1000
        one.close_session()
        assert scrape(server)[series("hutch_workspace_bytes")] == 700


def test_requests_are_counted_by_route_and_status(server: Served, client: SandboxClient) -> None:
    sandbox = client.info()["sandbox_id"]
    served_ones = series("hutch_http_requests_total", method="GET", route="/v1/sandboxes/{sandbox_id}", status="200")
    unknown = series("hutch_http_requests_total", method="GET", route="/v1/sandboxes/{sandbox_id}", status="404")
    before = scrape(server)
    with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {server.key}"}, trust_env=False) as http:
        assert http.get(f"/v1/sandboxes/{sandbox}").status_code == 200
        assert http.get("/v1/sandboxes/nobodys").status_code == 404
        assert http.get("/health", headers={"host": "evil.example"}).status_code == 403
    now = scrape(server)
    assert now[served_ones] == before[served_ones] + 1
    assert now[unknown] == before.get(unknown, 0) + 1
    refused = series("hutch_http_requests_total", method="GET", route="none", status="403")
    assert now[refused] == before.get(refused, 0) + 1
    assert now[series("hutch_http_requests_open")] == 1  # the one that asks


def test_connections_are_counted_by_whether_they_were_let_in(server: Served, client: SandboxClient) -> None:
    route = "/v1/sandboxes/{sandbox_id}/exec"
    let_in = series("hutch_http_requests_total", method="WEBSOCKET", route=route, status="101")
    refused = series("hutch_http_requests_total", method="WEBSOCKET", route=route, status="401")
    address = f"{server.url.replace('http', 'ws')}/v1/sandboxes/{client.info()['sandbox_id']}/exec"
    before = scrape(server)
    with pytest.raises(InvalidStatus) as denied:
        connect(address)
    assert denied.value.response.headers["x-request-id"]
    with moving(server) as moved, connect(address, additional_headers={"authorization": f"Bearer {server.key}"}) as ws:
        ws.send('{"command": "fine"}')
        while "exit" not in str(ws.recv()):
            pass
    while scrape(server).get(let_in, 0) == before.get(let_in, 0):
        pass  # noted when it has ended here, too; ends by the test's own time-out
    now = scrape(server)
    assert now[refused] == before.get(refused, 0) + 1
    assert now[let_in] == before.get(let_in, 0) + 1
    assert moved[commands("ok")] == 1


def test_nothing_that_a_caller_wrote_becomes_a_label(server: Served, client: SandboxClient) -> None:
    word = "Zanzibar"
    head = {"authorization": f"Bearer {server.new_key(tenant=word.lower())}"}

    def use(number: int) -> None:
        name = f"{word}{number}"
        with httpx.Client(base_url=server.url, headers=head, trust_env=False) as http:
            order = {"user_id": name, "thread_id": name, "template": "open"}
            sandbox = http.put("/v1/sessions", json=order).json()["sandbox_id"]
            http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": f"echo {name}", "tag": name})
            http.put(f"/v1/sandboxes/{sandbox}/files", params={"path": name}, content=b"")
            http.get(f"/v1/sandboxes/{name}")
            http.get(f"/{name}", headers={"x-request-id": name, "user-agent": name})
            http.request("PROPFIND", f"/v1/{name}")
            http.put("/v1/sessions", json={**order, "template": name})
            http.delete(f"/v1/sandboxes/{sandbox}")

    use(0)
    before = scrape(server)
    for number in range(1, 6):
        use(number)
    now = scrape(server)
    assert not any(word.lower() in str(name).lower() for name in now)
    assert set(now) == set(before)


def test_programs_may_have_the_same_numbers_as_json(server: Served, client: SandboxClient) -> None:
    client.execute("fine")
    head = {"authorization": f"Bearer {server.key}", "accept": "application/json"}
    found = httpx.get(f"{server.url}/metrics", headers=head, trust_env=False).json()
    numbers = {series(one["name"], **one["labels"]): one["value"] for one in found}
    assert numbers[commands("ok")] == scrape(server)[commands("ok")] > 0


def test_a_reader_that_leaves_early_is_counted_by_what_it_took(server: Served, client: SandboxClient) -> None:
    sandbox = client.info()["sandbox_id"]
    size = 4 * 1024 * 1024
    client.upload_file_from_bytes("large.bin", bytes(size))

    async def leave() -> None:
        pieces = server.engine.files.read("local", sandbox, "large.bin")
        await anext(pieces)
        await close_items(pieces)

    with moving(server) as moved:
        server.run(leave())
    assert 0 < moved[series("hutch_transferred_bytes_total", direction="down")] < size
    assert moved[series("hutch_transfers_total", direction="down", outcome="ok")] == 1
