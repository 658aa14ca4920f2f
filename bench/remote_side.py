"""A server in a process of its own, and the client that programs use, over loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from websockets.sync.client import connect

from bench.hutch_side import ALWAYS, QUOTA_OFF, USER
from bench.references import ECHO
from hutch import SandboxClient
from hutch.model.principal import KEY_FILE
from hutch.server.listen import bind

START_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Address:
    """Where to call, and whose memory it costs. A coordinator in front of workers is one, too."""

    url: str
    key: str
    pid: int

    def peak_kib(self) -> int:
        """The most memory it ever held since `forget_peak`."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])

    def resident_kib(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


class RemoteSide:
    """The deeds of `HutchSide` at an address. Sides of one cluster have prefixes, or they would share sandboxes."""

    def __init__(self, address: Address, prefix: str = "") -> None:
        self.address = address
        self._prefix = prefix
        self.client = SandboxClient("remote", address.url, api_key=address.key)
        self._open = SandboxClient("remote", address.url, api_key=address.key, policy="open")
        self._live = self.handle("live")
        self.large = self._open.for_thread(USER, f"{prefix}large")

    def execute(self) -> None:
        self.echo_in(self._live)

    def echo_in(self, handle: SandboxClient) -> None:
        _check(handle.execute(ECHO)["stdout"])

    def handle(self, name: str) -> SandboxClient:
        return self.client.for_thread(USER, f"{self._prefix}{name}")

    def first_by_events(self) -> float:
        """Milliseconds from asking to the first output as a server-sent event."""
        started = time.perf_counter()
        events = iter(self._live.stream(ECHO))
        _check(next(events)["text"])
        taken = (time.perf_counter() - started) * 1000
        for _ in events:  # its end is not part of it
            pass
        return taken

    def first_by_websocket(self) -> float:
        """The same over a new WebSocket, its handshake included."""
        url = f"{self.address.url.replace('http', 'ws', 1)}/v1/sandboxes/{self._live.info()['sandbox_id']}/exec"
        headers = {"authorization": f"Bearer {self.address.key}"}
        started = time.perf_counter()
        with connect(url, additional_headers=headers, compression=None, proxy=None) as websocket:
            websocket.send(json.dumps({"command": ECHO}))
            said: dict[str, str] = {}
            while said.get("event") != "stdout":
                said = json.loads(websocket.recv())
            taken = (time.perf_counter() - started) * 1000
            while said["event"] != "exit":
                said = json.loads(websocket.recv())
        _check(str(said["result"]["stdout"]))  # type: ignore[index]  # a result is a record
        return taken

    def close(self) -> None:
        self._live.close_session()
        self.large.close_session()
        self.client.close()
        self._open.close()


def _check(printed: str) -> None:
    if printed != "hi\n":
        raise RuntimeError(f"echo hi printed {printed!r}")


@contextmanager
def server(folder: Path) -> Iterator[Address]:
    """`hutch serve` on a data folder of its own, without a CPU quota."""
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    listener.close()
    words = [sys.executable, "-m", "hutch", "serve", "--port", str(port), "--preview-port", "0"]
    environ = {**os.environ, **ALWAYS, **QUOTA_OFF, "HUTCH_DATA_DIR": str(folder), "HUTCH_RATE": "1000000/minute"}
    with subprocess.Popen(words, env=environ, stderr=subprocess.DEVNULL) as program:
        try:
            url = f"http://127.0.0.1:{port}"
            _await_answer(url, program)
            yield Address(url, (folder / KEY_FILE).read_text().strip(), program.pid)
        finally:
            program.terminate()
            try:
                program.wait(START_SECONDS)
            finally:
                program.kill()


def _await_answer(url: str, program: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and program.poll() is None:
        try:
            if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise RuntimeError("hutch serve does not answer")
