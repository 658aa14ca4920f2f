"""A preview of a real sandbox: a small web server in it, seen through `hutch serve` by clients and a browser's ways."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.sync.client import connect

from hutch import NotSupported, SandboxClient, SessionExpiredError
from hutch.settings import Settings
from tests.integration.test_serve import _free_port, _told, serving
from tests.server_rig import Served, served

# A web server in standard Python: pages, a body that is sent back, events, and a WebSocket that answers in capitals.
PROGRAM = r"""
import base64, hashlib, http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *words): pass
    def say(self, body, kind="text/html", status=200, **more):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.say(self.rfile.read(int(self.headers["Content-Length"])), "application/octet-stream")
    def do_GET(self):
        if self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for number in range(100):
                self.wfile.write(b"data: %d\n\n" % number)
                self.wfile.flush()
                time.sleep(0.2)
        elif self.path == "/ws":
            self.websocket()
        elif self.path == "/login":
            self.say(b"", status=302, Location="http://localhost:3000/", Set_Cookie="sid=1; Domain=localhost; Path=/")
        else:
            self.say(f"<h1>{self.path} {self.headers.get('Cookie')}</h1>".encode())
    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        while True:
            first, second = self.rfile.read(2)
            mask = self.rfile.read(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(second & 127)))
            if first & 15 == 8:
                self.wfile.write(bytes([0x88, len(data)]) + data)
                break
            self.wfile.write(bytes([first, len(data)]) + data.upper())
            self.wfile.flush()
        self.close_connection = True
server = http.server.ThreadingHTTPServer(("127.0.0.1", 3000), Handler)
print("ready", flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(Settings(data_dir=tmp_path_factory.mktemp("data"))) as made:
        yield made


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[SandboxClient]:
    made = SandboxClient(mode="remote", server_url=server.url, api_key=server.key, policy="open")
    client = made.for_thread("u", "preview")
    client.upload_file_from_bytes("server.py", PROGRAM.encode())
    process = client.start("exec python3 server.py")
    for event in client.attach(process["process_id"]):
        if b"ready" in event["data"]:
            break
    yield client
    client.close_session()


def _visitor(server: Served, preview: Any, **headers: str) -> httpx.Client:
    host = urlsplit(preview["url"]).netloc
    url = f"http://127.0.0.1:{server.previews}"
    return httpx.Client(base_url=url, headers={"host": host, **headers}, trust_env=False, timeout=30)


def test_a_browser_opens_the_address_and_stays_in(server: Served, client: SandboxClient) -> None:
    preview = client.preview(3000)
    with _visitor(server, preview, accept="text/html,*/*") as browser:
        first = browser.get(preview["url"].partition(str(server.previews))[2])
        assert first.status_code == 303
        cookie = first.headers["set-cookie"].partition(";")[0]
        page = browser.get(urlsplit(first.headers["location"]).path, headers={"cookie": f"{cookie}; mine=1"})
        assert page.text == "<h1>/ mine=1</h1>"
        moved = browser.get("/login", headers={"cookie": cookie})
        assert moved.headers["location"] == f"http://{urlsplit(preview['url']).netloc}/"
        assert moved.headers["set-cookie"] == "sid=1; Path=/"


def test_a_program_sends_and_hears(server: Served, client: SandboxClient) -> None:
    preview = client.preview(3000)
    headers = {"hutch-preview-token": preview["token"]}
    data = bytes(range(256)) * 4000
    with httpx.Client(headers=headers, trust_env=False, timeout=30) as program:
        assert program.post(f"{preview['address']}/echo", content=data).content == data
        with program.stream("GET", f"{preview['address']}/events") as events:
            for heard, number in zip(events.iter_raw(), range(3), strict=False):
                assert heard == b"data: %d\n\n" % number
    plain = socket.create_connection(("127.0.0.1", server.previews))
    address = preview["url"].replace("http", "ws", 1).replace("/?", "/ws?")
    with connect(address, sock=plain, proxy=None) as opened:
        for word in ("hello", "again"):
            opened.send(word)
            assert opened.recv(10) == word.upper()
        opened.send(b"\x00raw")
        assert opened.recv(10) == b"\x00RAW"


def test_it_ends_when_it_is_revoked_or_its_sandbox_goes(server: Served, client: SandboxClient) -> None:
    preview = client.preview(3000, expires_in=60)
    assert preview["token_id"] in {one["token_id"] for one in client.previews()}
    with _visitor(server, preview, **{"hutch-preview-token": preview["token"]}) as visitor:
        assert visitor.get("/").status_code == 200
        client.revoke_preview(3000, token_id=preview["token_id"])
        assert visitor.get("/").status_code == 401
    gone = client.for_thread("u", "gone")
    preview = gone.preview(3000)
    with _visitor(server, preview, **{"hutch-preview-token": preview["token"]}) as visitor:
        assert (visitor.get("/").json()["code"]) == "port_unreachable"
        gone.close_session()
        assert (visitor.get("/").json()["code"]) == SessionExpiredError.code


def test_the_command_line_makes_and_closes_an_address(tmp_path: Path) -> None:
    port = _free_port()
    with serving(tmp_path, "--preview-port", str(port)) as (url, _):
        base = f"http://127.0.0.1:{port}"
        assert httpx.get(base + "/v1/version").json()["code"] == "route_not_found"
        client = SandboxClient(mode="remote", server_url=url, api_key=(tmp_path / "api-key").read_text().strip())
        client.get_or_create_session("u", "t")
        code, printed, said = _told(tmp_path, "preview", "3000", "--thread", "t", "--url", url, "--expires", "60")
        assert code == 0, said
        address = printed.strip()
        assert urlsplit(address).netloc.endswith(f".localhost:{port}")
        headers = {"host": urlsplit(address).netloc}
        path = address.partition(str(port))[2]
        assert httpx.get(base + path, headers=headers).json()["code"] == "port_unreachable"
        assert _told(tmp_path, "preview", "3000", "-t", "t", "--url", url, "--revoke")[0] == 0
        assert httpx.get(base + path, headers=headers).json()["code"] == "unauthorized"
        assert _told(tmp_path, "preview", "3000", "-t", "nobody", "--url", url)[0] == 3
    code, _, said = _told(tmp_path, "serve", "--port", str(_free_port()), HUTCH_PREVIEW_URL="http://10.0.0.5:8001")
    assert (code, "HUTCH_PREVIEW_URL" in said) == (3, True)


def test_a_client_without_a_server_has_no_address(tmp_path: Path) -> None:
    with SandboxClient(policy="open", data_dir=tmp_path) as client:
        client.get_or_create_session("u", "t")
        for call in (lambda: client.preview(3000), client.previews, lambda: client.revoke_preview(3000)):
            with pytest.raises(NotSupported, match="hutch serve"):
                call()


def test_a_visitor_who_left_lets_the_sandbox_rest(server: Served, client: SandboxClient) -> None:
    sandbox = client.info()["sandbox_id"]
    live = server.engine.sandboxes.live[sandbox]
    before = live.busy
    preview = client.preview(3000)
    with _visitor(server, preview, **{"hutch-preview-token": preview["token"]}) as visitor:
        with visitor.stream("GET", "/events") as events:
            pieces = events.iter_raw()
            next(pieces)
            assert live.busy > before
            del pieces  # which closes the connection
    deadline = time.monotonic() + 10
    while live.busy > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert live.busy == before
