"""docs/how-to/behind-a-proxy.md: real nginx and Caddy, with the files of deploy/, before a real `hutch serve`."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from hutch import SandboxClient
from tests.acceptance.proxies import API, FILES, PREVIEW, make_certificate, proxy
from tests.acceptance.serving import serving

pytestmark = pytest.mark.once

UPLOAD = 50 * 1024 * 1024
WAIT = 30.0
GO = threading.Event()


@dataclass(frozen=True, slots=True)
class Site:
    """A server behind a proxy, as its clients see it."""

    port: int
    key: str
    cert: Path
    user: str  # a name for sessions that no other test uses

    @property
    def url(self) -> str:
        return f"https://{API}:{self.port}"

    def client(self, policy: str = "open") -> SandboxClient:
        made = SandboxClient(mode="remote", server_url=self.url, api_key=self.key, policy=policy)
        made.get_or_create_session(user_id=self.user, thread_id=self.user)
        return made

    def http(self) -> httpx.Client:
        trusted = ssl.create_default_context(cafile=str(self.cert))
        return httpx.Client(base_url=self.url, verify=trusted, headers={"authorization": f"Bearer {self.key}"})


class Echo(BaseHTTPRequestHandler):
    """Stands where previews are served, and says what reached it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/go":
            GO.set()
        if self.path == "/slow":
            return self._slow()
        said = json.dumps({"host": self.headers["Host"], "upgrade": self.headers["Upgrade"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def _slow(self) -> None:
        """Its second half is made when somebody read the first and asked for more."""
        self.send_response(200)
        self.send_header("Content-Length", "10")
        self.end_headers()
        self.wfile.write(b"first")
        if GO.wait(WAIT):
            self.wfile.write(b"then.")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """Its port and a key; it was told of the proxy what the page says."""
    data = tmp_path_factory.mktemp("data")
    with serving(data, HUTCH_ALLOWED_HOSTS=API) as port:
        yield port, (data / "api-key").read_text().strip()


@pytest.fixture(scope="module")
def previews() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        yield listening.server_address[1]
        listening.shutdown()
        thread.join()


@pytest.fixture(scope="module", params=sorted(FILES))
def behind(
    request: pytest.FixtureRequest,
    server: tuple[int, str],
    previews: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("proxy")
    certificate = make_certificate(folder)
    with proxy(request.param, folder, certificate, server[0], previews) as port:
        yield Site(port, server[1], certificate.cert, request.param)


@pytest.fixture
def site(behind: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The proxy's names lead to this machine, and its certificate is trusted."""
    look_up = socket.getaddrinfo

    def here(host: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        return look_up("127.0.0.1" if str(name).endswith("example.org") else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", here)
    monkeypatch.setenv("SSL_CERT_FILE", str(behind.cert))
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return behind


def test_commands_run_and_their_output_comes_as_it_is_made(site: Site) -> None:
    client = site.client()
    assert client.execute("echo hi")["stdout"] == "hi\n"
    process = client.start("echo first; read line; echo then $line", stdin=True)["process_id"]
    events = client.attach(process)
    assert next(events)["text"] == "first\n"  # held back anywhere, it would never come: the rest waits for our answer
    client.send_input(process, "this\n")
    assert next(events)["text"] == "then this\n"
    assert [event["result"]["exit_code"] for event in events if event["result"]] == [0]
    client.close()


def test_a_large_file_goes_up_and_down(site: Site, tmp_path: Path) -> None:
    client = site.client()
    data = os.urandom(1024 * 1024) * (UPLOAD // 1024 // 1024)
    (tmp_path / "large.bin").write_bytes(data)
    client.upload_file(tmp_path / "large.bin")
    digest = hashlib.sha256(data).hexdigest()
    assert client.execute("sha256sum large.bin")["stdout"].split()[0] == digest
    assert hashlib.sha256(client.download_file_to_bytes("large.bin")).hexdigest() == digest
    client.execute("rm large.bin")
    client.close()


def test_a_body_passes_while_it_is_sent(site: Site) -> None:
    client = site.client()
    sandbox = _sandbox_id(site)
    process = client.start("cat", stdin=True)["process_id"]
    events = client.attach(process)
    more = threading.Event()

    def body() -> Iterator[bytes]:
        yield b"begun\n"
        assert more.wait(WAIT), "what was sent is held back until all of it is there"
        yield b"ended\n"

    answers: list[int] = []

    def send() -> None:
        with site.http() as http:
            answers.append(http.post(f"/v1/sandboxes/{sandbox}/processes/{process}/input", content=body()).status_code)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        assert next(events)["text"] == "begun\n"
    finally:
        more.set()
        sender.join()
    assert answers == [204]
    assert next(events)["text"] == "ended\n"
    client.kill(process)
    client.close()


def test_a_shell_over_a_websocket(site: Site) -> None:
    client = site.client()
    address = f"wss://{API}:{site.port}/v1/sandboxes/{_sandbox_id(site)}/shell"
    headers = {"authorization": f"Bearer {site.key}"}
    with connect(address, additional_headers=headers, proxy=None, open_timeout=WAIT) as websocket:
        websocket.send(b"echo it-$((40 + 2))\r")
        shown = b""
        while b"it-42" not in shown:
            message = websocket.recv(timeout=WAIT)
            shown += message if isinstance(message, bytes) else b""
    client.close()


def test_only_the_name_that_was_allowed_and_its_own_pages(site: Site) -> None:
    with site.http() as http:
        own, strange = f"https://{API}:{site.port}", "https://evil.example.org"
        assert http.get("/v1/sessions", headers={"origin": own}).status_code == 200
        assert http.get("/v1/sessions", headers={"origin": strange}).status_code == 403
        elsewhere = http.get(f"https://{PREVIEW}:{site.port}/v1/sessions")
        assert (
            elsewhere.json()["host"] == f"{PREVIEW}:{site.port}"
        )  # the previews' name leads to them, never to the API


def test_previews_have_an_origin_of_their_own(site: Site) -> None:
    host = f"8080-sb0.{PREVIEW}:{site.port}"
    with site.http() as http:
        seen = http.get(f"https://{host}/", headers={"authorization": ""}).json()
        assert seen["host"] == host
        opening = {"connection": "upgrade", "upgrade": "websocket"}
        assert http.get(f"https://{host}/", headers=opening).json()["upgrade"] == "websocket"


def test_what_a_preview_shows_comes_as_it_is_made(site: Site) -> None:
    GO.clear()
    base = f"https://{PREVIEW}:{site.port}"
    with site.http() as http, site.http() as another, http.stream("GET", f"{base}/slow", timeout=WAIT / 2) as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == b"first"
        another.get(f"{base}/go")
        assert b"".join(pieces) == b"then."


def _sandbox_id(site: Site) -> str:
    with site.http() as http:
        found = http.get("/v1/sessions", params={"thread_id": site.user, "user_id": site.user}).json()
    return str(found[0]["sandbox_id"])
