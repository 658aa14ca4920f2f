"""Sandboxes with egress rules, hosts on loopback that they may reach or not, and names that lead where a test says."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hutch import SandboxClient
from hutch.engine.assemble import Engine
from hutch.engine.egress.outside import Outside
from hutch.engine.homes import HOMES
from hutch.model.egress import PROXY_PORT, EgressRecord
from hutch.settings import Settings

SECONDS = 20.0
Answer = Callable[[bytes], bytes | None]  # of a request as it lay on the wire; None: hold the connection
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


def hello(request: bytes) -> bytes:
    return OK


@dataclass(eq=False)
class Origin:
    """A host: it notes what it is sent, and answers as it is told."""

    answer: Answer = hello
    tls: ssl.SSLContext | None = None
    seen: list[bytes] = field(default_factory=list[bytes])
    names: list[str | None] = field(default_factory=list["str | None"])  # whom TLS clients asked for
    connections: int = 0
    port: int = 0

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        connection.settimeout(SECONDS)
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection:
                while request := _request(connection):
                    self.seen.append(request)
                    answer = self.answer(request)
                    if answer is None:
                        while connection.recv(65536):
                            pass
                        return
                    connection.sendall(answer)
                    if b"connection: close" in request.lower():
                        return
        except OSError:
            pass


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return data
        data += piece
        if data[:1] == b"\x16":  # TLS, where none is spoken
            return data
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *([0-9]+)", head)
    chunked = b"transfer-encoding: chunked" in head.lower()
    while (length and len(body) < int(length[1])) or (chunked and not body.endswith(b"0\r\n\r\n")):
        piece = connection.recv(65536)
        if not piece:
            break
        body += piece
    return head + b"\r\n\r\n" + body


@contextmanager
def origin(answer: Answer = hello, tls: ssl.SSLContext | None = None) -> Iterator[Origin]:
    made = Origin(answer, tls)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made.port = listener.getsockname()[1]
        threading.Thread(target=made._serve, args=(listener,), daemon=True).start()
        yield made
        listener.shutdown(socket.SHUT_RDWR)


@dataclass(eq=False)
class Names:
    """The name system of the tests: where names lead, and what was asked."""

    known: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    turns: dict[str, list[list[str]]] = field(default_factory=dict[str, list[list[str]]])  # one answer after the other
    asked: list[str] = field(default_factory=list[str])

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        if self.turns.get(host):
            return self.turns[host].pop(0)
        if host not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.known[host]


@dataclass(eq=False)
class Stage:
    folder: Path
    names: Names = field(default_factory=Names)
    trust: ssl.SSLContext | None = None

    @property
    def engine(self) -> Engine:
        found = HOMES.get(Settings(data_dir=self.folder))._engine
        assert found is not None
        return found

    def client(self, thread: str = "t", *rules: Any, policy: str = "open") -> SandboxClient:
        """Of a thread of its own."""
        client = SandboxClient(policy=policy, data_dir=self.folder).for_thread("u", thread)
        client.info()
        if self.engine.egress.outside is None:
            outside = Outside(self.names)
            if self.trust is not None:
                outside.tls = self.trust  # made at its first use, else
            self.engine.egress.outside = outside
        client.egress.set(rules)
        return client


@contextmanager
def staged(folder: Path, trust: ssl.SSLContext | None = None) -> Iterator[Stage]:
    try:
        yield Stage(folder, trust=trust)
    finally:
        HOMES.get(Settings(data_dir=folder)).close()


def rule(host: str, *ports: int, **more: Any) -> dict[str, Any]:
    """A rule for a host of the tests, which is on this machine."""
    return {"host": host, "ports": list(ports) or [80, 443], "private": True, **more}


def say(client: SandboxClient, data: bytes, *, then: Sequence[bytes] = ()) -> bytes:
    """What the proxy answers to bytes that something in the sandbox sends it, until it ends the connection.

    Args:
        then: sent one by one, each when something has come back.
    """
    with client.connect(PROXY_PORT) as connection:
        connection.send(data)
        answer = b""
        waiting = list(then)
        try:
            while piece := connection.receive():
                answer += piece
                if waiting:
                    connection.send(waiting.pop(0))
        except OSError:
            pass
        return answer


def get(host: str, path: str = "/", *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    """A request to the proxy. `host` may have a port."""
    lines = [f"{method} http://{host}{path} HTTP/1.1", f"host: {host}", "connection: close", *headers]
    if body:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def connect(target: str) -> bytes:
    return f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n".encode()


def status(answer: bytes) -> int:
    """Of an answer; 0 when there is none."""
    found = re.match(rb"HTTP/1\.1 ([0-9]{3})", answer)
    return int(found[1]) if found else 0


def last(client: SandboxClient) -> EgressRecord:
    """The last request; it is written down in the moment after its answer."""
    until = time.monotonic() + SECONDS
    while not (records := client.egress.log()) and time.monotonic() < until:
        time.sleep(0.01)
    return records[-1]


def greeting(name: str | None) -> bytes:
    """What a TLS client says first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


@dataclass(frozen=True)
class Certificates:
    server: ssl.SSLContext
    trust: ssl.SSLContext
    authority: Path


def certificates(folder: Path, *names: str) -> Certificates:
    """A certificate for those names, and who believes it."""
    files = ("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"))
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    alternatives = "subjectAltName=" + ",".join(f"DNS:{name}" for name in names)
    request = ["openssl", "req", "-x509", *kind, "-subj", "/CN=test", "-addext", alternatives, *files]
    subprocess.run(request, check=True, capture_output=True, timeout=60)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    trust = ssl.create_default_context(cafile=str(folder / "cert.pem"))
    return Certificates(server, trust, folder / "cert.pem")
