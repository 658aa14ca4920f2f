"""The log of a server: lines that are JSON, with the names they are known by, and nothing in them that must not be."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from websockets.sync.client import connect

from hutch import SandboxClient, SandboxUnavailable
from hutch.server.logs import logging_to
from hutch.testing.fake_process import Running
from hutch.testing.fake_provider import FakeProvider
from tests.server_rig import Served, served
from tests.unit.engine_stage import settings

pytestmark = pytest.mark.once

Form = Literal["json", "text"]


class Written:
    """What a server logged, all of it once the server has ended."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def text(self) -> str:
        return self.stream.getvalue()

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.text().splitlines()]
        return [line for line in found if event in ("", line["event"])]


@contextmanager
def logged(
    folder: Path, written: Written, provider: FakeProvider | None = None, form: Form = "json", *, debug: bool = False
) -> Iterator[Served]:
    with logging_to(form, debug=debug, stream=written.stream), served(settings(folder), provider) as server:
        yield server


@pytest.fixture
def written() -> Written:
    return Written()


def client_of(server: Served, thread: str, policy: str = "open", user: str = "ada-lovelace") -> SandboxClient:
    client = SandboxClient(mode="remote", server_url=server.url, api_key=server.key, policy=policy)
    client.get_or_create_session(user_id=user, thread_id=thread)
    return client


def test_everything_that_happens_has_its_name(tmp_path: Path, written: Written) -> None:
    provider = FakeProvider()
    provider.says("greedy", code=137, limit="memory")

    async def die(me: Running) -> None:
        me.computer.die("power cut")
        await me.forever()

    provider.on("die", die)
    with logged(tmp_path, written, provider) as server:
        head = {"authorization": f"Bearer {server.key}"}
        http = httpx.Client(base_url=server.url, headers=head, trust_env=False)
        client = client_of(server, "a-thread-with-a-long-name")
        client_of(server, "a-thread-with-a-long-name")
        client.execute("echo hi")
        client.execute("greedy")
        with pytest.raises(SandboxUnavailable):
            client.execute("die")
        client.upload_file_from_bytes("a.txt", b"abc")
        client.download_file_to_bytes("a.txt")
        with pytest.raises(FileNotFoundError):
            client.download_file_to_bytes("b.txt")
        with pytest.raises(ValueError, match="holds"):
            client.upload_file_from_bytes("../out", b"")
        strict = client_of(server, "strict", policy="strict").info()["sandbox_id"]
        assert http.post(f"/v1/sandboxes/{strict}/exec", json={"command": "rm a"}).status_code == 400
        assert http.get("/v1/sandboxes/nobodys/files/top").status_code == 404
        client.close_session()
        provider.faults.fail_next("start", SandboxUnavailable("no"))
        with pytest.raises(SandboxUnavailable):
            client_of(server, "impossible")
        brief = {"user_id": "u", "thread_id": "brief", "timeout_minutes": 0.002, "template": "open"}
        assert http.put("/v1/sessions", json=brief).status_code == 201
        while '"session_expired"' not in written.text():
            time.sleep(0.01)  # ends by the test's own time-out
        http.close()
    assert {line["event"] for line in written.lines()} >= {
        "session_created",
        "session_reused",
        "session_expired",
        "session_cleaned_up",
        "session_creation_failed",
        "command_executed",
        "command_failed",
        "validation_failed",
        "resource_limit_exceeded",
        "file_uploaded",
        "file_upload_failed",
        "file_downloaded",
        "file_download_failed",
        "list_files_failed",
    }
    ran = written.lines("command_executed")[0]
    assert ran["user"] == "ada-love"
    assert ran["thread"] == "a-thread-wit"
    assert len(ran["session"]) == 12
    assert (ran["command"], ran["exit_code"], ran["level"]) == ("echo hi", 0, "info")
    assert isinstance(ran["duration_ms"], int | float)
    assert written.lines("resource_limit_exceeded")[0]["limit"] == "memory"
    assert written.lines("validation_failed")[0]["code"] == "command_rejected"


def test_each_request_has_a_line_and_what_it_did_carries_its_id(tmp_path: Path, written: Written) -> None:
    with logged(tmp_path, written) as server, httpx.Client(base_url=server.url, trust_env=False) as http:
        head = {"authorization": f"Bearer {server.key}"}
        order = {"user_id": "u", "thread_id": "t", "template": "open"}
        asked = http.put("/v1/sessions", json=order, headers={**head, "x-request-id": "mine-1.a_B"})
        assert asked.headers["x-request-id"] == "mine-1.a_B"
        sandbox = asked.json()["sandbox_id"]
        forged = http.post(
            f"/v1/sandboxes/{sandbox}/exec",
            json={"command": "echo hi"},
            headers={**head, "x-request-id": 'x" event="session_expired'},
        )
        given = forged.headers["x-request-id"]
        assert re.fullmatch(r"[0-9a-f]{16}", given)
        assert http.get("/health").status_code == 200
        refused = http.get("/v1/sessions").headers["x-request-id"]
    requests = {line["request_id"]: line for line in written.lines("request")}
    assert set(requests) == {"mine-1.a_B", given, refused}  # probes only in the debug log
    line = requests[given]
    assert (line["method"], line["route"], line["status"]) == ("POST", "/v1/sandboxes/{sandbox_id}/exec", 200)
    assert (line["sandbox"], line["tenant"], line["client"]) == (sandbox, "local", "127.0.0.1")
    assert line["key"] == server.key.split("_")[1]
    assert requests[refused]["status"] == 401
    assert "key" not in requests[refused]
    assert written.lines("session_created")[0]["request_id"] == "mine-1.a_B"
    assert written.lines("command_executed")[0]["request_id"] == given


def test_probes_are_in_the_debug_log(tmp_path: Path, written: Written) -> None:
    with logged(tmp_path, written, debug=True) as server:
        assert httpx.get(f"{server.url}/health", trust_env=False).status_code == 200
    assert [line["route"] for line in written.lines("request")] == ["/health"]


FORGED = '\n{"event":"session_expired","at":"forged"}\r\n\u2028\x1b[2J\x9b31m\u202e'


@pytest.mark.parametrize("form", ["json", "text"])
def test_nobody_can_write_a_line_of_their_own(tmp_path: Path, written: Written, form: Form) -> None:
    provider = FakeProvider()
    provider.on(FORGED, lambda me: _prints(me, FORGED))
    with logged(tmp_path, written, provider, form) as server:
        head = {"authorization": f"Bearer {server.key}", "user-agent": "a\tb", "x-forwarded-for": "1\t2"}
        http = httpx.Client(base_url=server.url, headers=head, trust_env=False)
        order = {"user_id": FORGED, "thread_id": FORGED, "template": "open"}
        sandbox = http.put("/v1/sessions", json=order).json()["sandbox_id"]
        http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": FORGED})
        http.put(f"/v1/sandboxes/{sandbox}/files", params={"path": "a" + FORGED}, content=b"")
        http.get(f"/v1/sandboxes/{sandbox}/files", params={"path": "b" + FORGED})
        http.get("/v1/sandboxes/%0A%7B%22event%22:1%7D")
        http.get("/%0A%1b[2J")
        server.run(_log_as_others_do(FORGED))
        http.close()
    assert written.text().isascii()
    assert not re.search(r"[^\n\x20-\x7e]", written.text())
    begins = re.compile(r'\{"at":"20' if form == "json" else r"20\d\d-[-0-9T:.]+Z [A-Z]+ \[SANDBOX\] event=")
    lines = written.text().splitlines()
    assert len(lines) > 8
    assert all(begins.match(line) for line in lines)
    if form == "json":
        assert not [line for line in written.lines() if line["at"] == "forged"]
        assert not written.lines("session_expired")


async def _prints(me: Running, text: str) -> int:
    me.out(text)
    return 0


async def _log_as_others_do(text: str) -> None:
    log = logging.getLogger("hutch.elsewhere")
    log.warning("thing_failed code=%s reason=%s", "internal", text)
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("thing_broke")


def test_secrets_do_not_reach_the_log(tmp_path: Path, written: Written) -> None:
    secret = "s3cr3t-Zanzibar"
    with logged(tmp_path, written, debug=True) as server:
        head = {"authorization": f"Bearer {server.key}", "cookie": f"session={secret}"}
        http = httpx.Client(base_url=server.url, headers=head, trust_env=False)
        client = client_of(server, "t")
        sandbox = client.info()["sandbox_id"]
        for command in (
            f"TOKEN={secret} x",
            f"curl -H 'Authorization: Bearer {secret}'",
            f"git clone https://u:{secret}@h",
        ):
            http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": command, "env": {"PASSWORD": secret}})
        http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": f"echo {server.key}"})
        http.put(f"/v1/sandboxes/{sandbox}/files?path=a&token={secret}", content=secret.encode())
        http.get(f"/v1/sessions?api_key={secret}")
        http.get(f"/{secret}/nothing")
        made = http.post("/v1/keys", json={"name": "ci"}).json()["key"]
        assert http.get("/v1/sessions", headers={"authorization": f"Bearer {made}x"}).status_code == 401
        with connect(
            f"{server.url.replace('http', 'ws')}/v1/sandboxes/{sandbox}/exec", additional_headers=head
        ) as socket:
            socket.send(json.dumps({"command": "echo hi", "env": {"PASSWORD": secret}}))
            while "exit" not in str(socket.recv()):
                pass
        server.run(_log_as_others_do(f"password={secret} https://u:{secret}@host Bearer {secret}"))
        http.close()
    assert len(written.lines("request")) > 8
    for hidden in (secret, server.key.split("_", 2)[2], made.split("_", 2)[2]):
        assert hidden not in written.text()


def test_what_other_parts_log_has_its_fields(tmp_path: Path, written: Written) -> None:
    with logging_to("json", debug=False, stream=written.stream):
        log = logging.getLogger("hutch.elsewhere")
        log.warning("pool_refill_failed code=%s rows=%d reason=it is %s, they say", "internal", 7, "x code=forged")
        log.info("plain words about %s", "things")
        log.debug("not wanted")
        try:
            raise LookupError("gone")
        except LookupError:
            log.exception("thing_broke")
    first, second, third = written.lines()
    assert (first["event"], first["code"], first["rows"]) == ("pool_refill_failed", "internal", "7")
    assert first["reason"] == "it is x code=forged, they say"
    assert (first["level"], first["logger"]) == ("warning", "hutch.elsewhere")
    assert second["event"] == "plain words about things"
    assert third["event"] == "thing_broke"
    assert third["exception"].endswith("LookupError: gone")


def test_a_log_that_nobody_reads_does_not_stop_the_server(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    stuck = os.fdopen(writer, "w")
    said: list[bytes] = []
    flood = 0
    with served(settings(tmp_path)) as server, logging_to("json", debug=False, stream=stuck) as log:
        while log.dropped < 100:  # ends by the test's own time-out
            logging.getLogger("hutch.elsewhere").warning("flood number=%s", flood)
            flood += 1
        assert httpx.get(f"{server.url}/health", trust_env=False, timeout=30).status_code == 200
        drain = threading.Thread(target=_drain, args=(reader, said))
        drain.start()
    stuck.close()
    drain.join()
    os.close(reader)
    lines = [json.loads(line) for line in b"".join(said).splitlines()]
    dropped = sum(int(line["lines"]) for line in lines if line["event"] == "log_lines_dropped")
    assert dropped > 0
    assert dropped + sum(1 for line in lines if line["event"] == "flood") == flood


def _drain(reader: int, said: list[bytes]) -> None:
    while piece := os.read(reader, 65536):
        said.append(piece)
