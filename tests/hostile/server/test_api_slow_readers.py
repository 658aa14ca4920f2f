"""Callers who ask for much and read nothing, and crowds who say nothing: the server holds little for them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from tests.hostile.server.process_stage import OPEN, Server, server_process
from tests.hostile.server.wire_stage import Wire, resident_bytes

MB = 1024 * 1024
FLOOD = 16 * MB  # of each reader; all of them together far more than the server may grow
READERS = 4  # of each kind
IDLE = 500
CALLS = 150
GROWTH = 64 * MB
SLOWER = 2.0
ATTEMPTS = 3  # the machine may be busy with something else for a moment; a server that is slowed always shows it
SETTLE_SECONDS = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with server_process() as made:
        yield made


@pytest.mark.serial
def test_readers_that_never_read_and_crowds_that_never_speak(server: Server) -> None:
    with server.client() as http:
        made = http.put("/v1/sessions", json={**OPEN, "thread_id": "neighbour"}).json()
        neighbour = f"/v1/sandboxes/{made['sandbox_id']}"
        _median(http, neighbour)  # warm
        tried = []
        for _ in range(ATTEMPTS):
            quiet, memory = _median(http, neighbour), resident_bytes(server.pid)
            with _never_reading(server, http), _idle(server) as idle:
                busy = _median(http, neighbour)
                grown = resident_bytes(server.pid) - memory
                assert all(_open(wire) for wire in idle)
            quiet = max(quiet, _median(http, neighbour))
            assert grown <= GROWTH, f"{grown / MB:.0f} MB"
            tried.append(busy / quiet)
            if tried[-1] <= SLOWER:
                return
        pytest.fail(f"a neighbour's p50 rose by {tried}")


def _median(http: httpx.Client, sandbox: str) -> float:
    taken = []
    for _ in range(CALLS):
        started = time.perf_counter()
        assert http.post(f"{sandbox}/exec", json={"command": "echo hi"}).json()["stdout"] == "hi\n"
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


@contextmanager
def _never_reading(server: Server, http: httpx.Client) -> Iterator[None]:
    """Streams, downloads and shells, each full of what nobody takes."""
    flood = f"head -c {FLOOD} /dev/zero | tr '\\\\0' x; sleep 1000"
    with ExitStack() as wires:
        for number in range(READERS):
            made = http.put("/v1/sessions", json={**OPEN, "thread_id": f"flood-{number}"}).json()
            sandbox = f"/v1/sandboxes/{made['sandbox_id']}"
            filled = http.post(f"{sandbox}/exec", json={"command": f"head -c {FLOOD} /dev/zero > large"})
            assert filled.json()["exit_code"] == 0
            stream, download, shell = (wires.enter_context(server.wire(4096)) for _ in range(3))
            stream.ask("POST", f"{sandbox}/exec", server.key, {"command": flood}, Accept="text/event-stream")
            download.ask("GET", f"{sandbox}/files?path=large", server.key)
            shell.upgrade(f"{sandbox}/shell", server.key)
            shell.frame(flood.encode() + b"\n", opcode=2)
        _until_printed(http)
        yield


def _until_printed(http: httpx.Client) -> None:
    """All floods are out of their commands: what slows a neighbour from now on is not the processor's share of `tr`."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        printed = [
            row["stdout_bytes"]
            for one in http.get("/v1/sessions").json()
            if one["thread_id"].startswith("flood-")
            for row in http.get(f"/v1/sandboxes/{one['sandbox_id']}/processes").json()
            if row["status"] == "running"
        ]
        if len(printed) >= 2 * READERS and min(printed) >= FLOOD:
            return
        assert time.monotonic() < deadline, printed
        time.sleep(0.2)


@contextmanager
def _idle(server: Server) -> Iterator[list[Wire]]:
    """Half of them never said anything, half wait after an answer."""
    with ExitStack() as wires:
        made = [wires.enter_context(server.wire()) for _ in range(IDLE)]
        for wire in made[::2]:
            wire.ask("GET", "/v1/version", server.key)
            wire.until(b"}")
        yield made


def _open(wire: Wire) -> bool:
    wire.socket.setblocking(False)
    try:
        return wire.socket.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
