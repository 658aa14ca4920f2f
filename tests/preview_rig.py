"""Previews of a real server over the fake provider: what listens in a sandbox is a function, hostile if need be."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from hutch.settings import Settings
from hutch.testing.fake_ports import FakeStream
from hutch.testing.fake_provider import FakeProvider
from tests.server_rig import Served, served

Listener = Callable[[FakeStream], Awaitable[None]]
PORT = 3000
SECONDS = 30


@dataclass(slots=True)
class Stage:
    server: Served
    provider: FakeProvider

    def api(self, key: str | None = None) -> httpx.Client:
        headers = {"authorization": f"Bearer {key or self.server.key}"}
        return httpx.Client(base_url=self.server.url, headers=headers, trust_env=False, timeout=SECONDS)

    def sandbox(self, thread: str, key: str | None = None) -> str:
        with self.api(key) as api:
            body = {"user_id": "u", "thread_id": thread, "template": "open"}
            return str(api.put("/v1/sessions", json=body).json()["sandbox_id"])

    def listen(self, sandbox: str, listener: Listener, port: int = PORT) -> None:
        async def begin() -> None:
            self.provider.machine(sandbox).serve(port, listener)

        self.server.run(begin())

    def preview(self, sandbox: str, port: int = PORT, **query: Any) -> dict[str, Any]:
        with self.api() as api:
            answer = api.get(f"/v1/sandboxes/{sandbox}/ports/{port}", params=query)
        assert answer.status_code == 200, answer.text
        made: dict[str, Any] = answer.json()
        return made

    def revoke(self, sandbox: str, port: int = PORT, **query: Any) -> int:
        with self.api() as api:
            return api.delete(f"/v1/sandboxes/{sandbox}/ports/{port}", params=query).status_code

    def visitor(self, preview: dict[str, Any], **headers: str) -> httpx.Client:
        """A program: its name resolution knows no `*.localhost`, so it says by header which host it means."""
        given = {"host": host_of(preview), "hutch-preview-token": preview["token"], **headers}
        return self.stranger(**given)

    def stranger(self, **headers: str) -> httpx.Client:
        url = f"http://127.0.0.1:{self.server.previews}"
        return httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=SECONDS)

    @contextmanager
    def raw(self) -> Iterator[socket.socket]:
        """A connection to say anything over."""
        with socket.create_connection(("127.0.0.1", self.server.previews), timeout=SECONDS) as connection:
            yield connection


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    provider = FakeProvider()
    with served(Settings(data_dir=folder), provider) as server:
        yield Stage(server, provider)


def host_of(preview: dict[str, Any]) -> str:
    return str(urlsplit(preview["url"]).netloc)


async def _more(stream: FakeStream) -> bytes:
    piece = await stream.receive()
    if not piece:
        raise ConnectionError("the request ended early")
    return piece


async def read_head(stream: FakeStream) -> tuple[bytes, bytes]:
    """Of a request: up to the empty line, and what came after it already."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await _more(stream)
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def saying(answer: bytes, then: str = "close") -> Listener:
    """Answers any request with these bytes; then closes, or keeps the connection without a word."""

    async def listener(stream: FakeStream) -> None:
        await read_head(stream)
        try:
            await stream.send(answer)
        except OSError:
            return
        if then == "hold":
            while await stream.receive():
                pass

    return listener


async def echo(stream: FakeStream) -> None:
    """Tells what it was sent: the request line, its headers, and the bytes after them as they lay on the wire."""
    head, rest = await read_head(stream)
    line, *headers = head.decode("latin-1").split("\r\n")
    framed = head.lower()
    if b"content-length:" in framed:
        length = int(framed.split(b"content-length:")[1].split(b"\r\n")[0])
        while len(rest) < length:
            rest += await _more(stream)
    elif b"transfer-encoding:" in framed:
        while not rest.endswith(b"0\r\n\r\n"):
            rest += await _more(stream)
    document = json.dumps({"line": line, "headers": headers, "body": rest.decode("latin-1")}).encode()
    await stream.send(ok(document))


def ok(body: bytes, *headers: bytes) -> bytes:
    length = b"content-length: " + str(len(body)).encode()
    return b"\r\n".join([b"HTTP/1.1 200 OK", length, *headers, b"", body])
