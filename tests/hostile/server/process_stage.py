"""`hutch serve` as a program of its own, over real sandboxes, so that its memory is not that of its callers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.hostile.bad_luck_stage import data_folder
from tests.hostile.server.wire_stage import WAIT, Wire, until_true

OPEN = {"user_id": "u", "template": "open"}


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    key: str
    pid: int

    def wire(self, receive_buffer: int | None = None) -> Wire:
        return Wire(self.url, receive_buffer=receive_buffer)

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self.headers, trust_env=False, timeout=60)

    @asynccontextmanager
    async def lanes(self, number: int) -> AsyncIterator[list[Lane]]:
        """That many callers, each with a connection of its own."""
        made = [await Lane.open(self) for _ in range(number)]
        try:
            yield made
        finally:
            for lane in made:
                lane.writer.close()


@dataclass(frozen=True, slots=True)
class Lane:
    """A caller that costs next to nothing, so that a crowd of them measures the server. One call at a time."""

    server: Server
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, server: Server) -> Lane:
        parts = urlsplit(server.url)
        return cls(server, *await asyncio.open_connection(parts.hostname, parts.port))

    async def call(self, method: str, target: str, body: Any = None) -> tuple[int, bytes]:
        """Status and content."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.server.key}\r\n"
        kind = "Content-Type: application/json\r\n" if body is not None and not isinstance(body, bytes) else ""
        self.writer.write(f"{head}{kind}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        first, *fields = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        answered = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        content = b""
        if answered.get("transfer-encoding") == "chunked":
            while size := int(await self.reader.readline(), 16):
                content += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readline()
        elif length := int(answered.get("content-length", "0")):
            content = await self.reader.readexactly(length)
        return int(first.split()[1]), content

    async def json(self, method: str, target: str, body: Any = None) -> Any:
        """Raises: AssertionError when it was refused."""
        status, content = await self.call(method, target, body)
        assert status < 300, content
        return json.loads(content) if content else None


@contextmanager
def server_process(**variables: str) -> Iterator[Server]:
    with data_folder() as folder:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        seen = os.pathsep.join(filter(None, [str(Path(__file__).parents[3] / "src"), *sys.path]))
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": seen, "HUTCH_DATA_DIR": str(folder), **variables}
        words = [sys.executable, "-m", "hutch", "serve", "--port", str(port), "--preview-port", "0"]
        with subprocess.Popen(words, env=environ, stderr=subprocess.DEVNULL) as program:
            try:
                url = f"http://127.0.0.1:{port}"
                assert until_true(lambda: _answers(url), WAIT)
                yield Server(url, (folder / "api-key").read_text().strip(), program.pid)
            finally:
                program.terminate()
                try:
                    program.wait(WAIT)
                finally:
                    program.kill()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False, timeout=5).status_code == 200
    except httpx.TransportError:
        return False
