"""Sessions with all their tools, and hosts on loopback that a sandbox reaches by its rules only."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hutch.tools import SandboxSession
from tests.client_rig import settings_of
from tests.tree_rig import with_trees

HOST = "127.0.0.2"  # this machine's, and not the sandbox's own loopback
HANG = 90.0
MCP_ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "calculator", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "add", "description": "Adds two numbers", "inputSchema": {"type": "object"}}]},
}
# A server as small as one can be, for a sandbox that has nothing but Python.
MCP_PROGRAM = f"""
import json, sys
ANSWERS = {MCP_ANSWERS!r}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {{"jsonrpc": "2.0", "id": message["id"]}}
    if message["method"] == "tools/call":
        given = message["params"]["arguments"]
        if given.get("die"):
            sys.exit(1)
        answer["result"] = {{"content": [{{"type": "text", "text": str(given["a"] + given["b"])}}]}}
    elif message["method"] in ANSWERS:
        answer["result"] = ANSWERS[message["method"]]
    else:
        answer["error"] = {{"code": -32601, "message": "no such method"}}
    print(json.dumps(answer), flush=True)
"""


@dataclass(eq=False)
class Stage:
    runner: asyncio.Runner
    session: SandboxSession

    def run(self, coroutine: Any) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(coroutine, HANG)

        return self.runner.run(bounded())

    def call(self, tool: str, **arguments: Any) -> str:
        """What a model would get."""
        found = {made.name: made for made in self.session.get_tools()}[tool]
        answer = self.run(found.ainvoke(arguments))
        assert isinstance(answer, str)
        return answer


@contextmanager
def stage_of(data_dir: Path, **options: Any) -> Iterator[Stage]:
    with settings_of(with_trees(data_dir)), asyncio.Runner() as runner:
        session = SandboxSession.create(**options)
        stage = Stage(runner, runner.run(_opened(session)))
        yield stage
        stage.run(stage.session.delete())


async def _opened(creating: Any) -> SandboxSession:
    session = await creating
    assert isinstance(session, SandboxSession)
    return session


@dataclass(eq=False)
class Hosts:
    """A page, a package index, a repository and an MCP server, at one address of this machine."""

    port: int
    seen: list[str]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def rule(self) -> dict[str, Any]:
        return {"host": HOST, "ports": [self.port], "private": True}


@contextmanager
def hosts(folder: Path) -> Iterator[Hosts]:
    seen: list[str] = []
    repository = _repository(folder)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            seen.append(self.path)
            self._say(*_page(self.path.partition("?")[0], repository, self.headers.get("x-asked", "")))

        def do_POST(self) -> None:
            seen.append(self.path)
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.path == "/mcp":
                self._say(*_mcp(body, self.headers.get("authorization")))
            else:
                self._say(200, "application/octet-stream", body)

        def _say(self, status: int, kind: str, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Hosts(server.server_address[1], seen)
        server.shutdown()
        thread.join()


def _page(path: str, repository: Path, asked: str) -> tuple[int, str, bytes]:
    if path == "/":
        text = f"<title>A page</title><h1>Hello {asked}</h1><form action=/form><input name=name "
        text += "style='position:fixed;left:100px;top:100px'></form>"
        return 200, "text/html", text.encode()
    if path == "/binary":
        return 200, "application/octet-stream", b"\xff\xfe\x00"
    if path == "/simple/hutch-test-package/":
        name = "hutch_test_package-1.0-py3-none-any.whl"
        return 200, "text/html", f'<a href="/{name}#sha256={hashlib.sha256(_wheel()).hexdigest()}">{name}</a>'.encode()
    if path.endswith(".whl"):
        return 200, "application/octet-stream", _wheel()
    found = (repository / path.removeprefix("/git/")).resolve()
    if path.startswith("/git/") and found.is_file() and repository in found.parents:
        return 200, "application/octet-stream", found.read_bytes()
    return 404, "text/plain", b"not here"


def _mcp(body: bytes, authorization: str | None) -> tuple[int, str, bytes]:
    if authorization != "Bearer canary-7431":
        return 401, "text/plain", b"no"
    message = json.loads(body)
    if "id" not in message:
        return 202, "application/json", b""
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "tools/call":
        given = message["params"]["arguments"]
        answer["result"] = {"content": [{"type": "text", "text": str(given["a"] * given["b"])}]}
    elif message["method"] in MCP_ANSWERS:
        answer["result"] = MCP_ANSWERS[message["method"]]
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    return 200, "application/json", json.dumps(answer).encode()


def _wheel() -> bytes:
    files = {
        "hutch_test_package.py": b"VALUE = 'installed'\n",
        "hutch_test_package-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: hutch-test-package\nVersion: 1.0\n",
        "hutch_test_package-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()
    )
    files["hutch_test_package-1.0.dist-info/RECORD"] = (record + "hutch_test_package-1.0.dist-info/RECORD,,\n").encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # always the same bytes
    return made.getvalue()


def _repository(folder: Path) -> Path:
    """A bare repository with one commit, as a plain web server serves one."""
    bare, work = folder / "served.git", folder / "work"
    script = """
    git init -q --bare -b main "$BARE" && git clone -q "$BARE" "$WORK" && cd "$WORK" && echo served > file.txt &&
    git add . && git -c user.name=t -c user.email=t@example.invalid commit -qm first && git push -q origin HEAD:main &&
    git -C "$BARE" update-server-info
    """
    subprocess.run(
        ["bash", "-c", script],
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "BARE": str(bare), "WORK": str(work)},
        check=True,
        capture_output=True,
    )
    return bare.resolve()
