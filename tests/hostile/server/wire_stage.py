"""Clients that do as they please: bytes on a socket, no library between."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

WAIT = 20.0  # for what should be there at once
END_OF_HEAD = b"\r\n\r\n"


class Wire:
    """One connection to a server."""

    def __init__(self, url: str, *, receive_buffer: int | None = None) -> None:
        parts = urlsplit(url)
        self.host = parts.netloc
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:  # small, so that an unread answer backs up at the server
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(WAIT)
        self.socket.connect((parts.hostname or "", parts.port or 80))

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def head(self, method: str, target: str, headers: Mapping[str, str] | None = None) -> None:
        """The request line and headers, `Host` with them unless given."""
        lines = [f"{method} {target} HTTP/1.1"]
        given = {"Host": self.host, **(headers or {})}
        lines += [f"{name}: {value}" for name, value in given.items()]
        self.send("\r\n".join(lines).encode("latin-1") + END_OF_HEAD)

    def ask(self, method: str, target: str, key: str, body: Any = None, **headers: str) -> None:
        """A whole request; its body is JSON, or bytes as they are."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if body is not None and not isinstance(body, bytes) else {}
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        length = {"Content-Length": str(len(data))} if data else {}
        self.head(method, target, {"Authorization": f"Bearer {key}", **kind, **length, **given})
        self.send(data)

    def until(self, wanted: bytes) -> bytes:
        """What comes, up to a piece that holds `wanted`. Raises: EOFError, TimeoutError."""
        seen = b""
        while wanted not in seen:
            piece = self.socket.recv(65536)
            if not piece:
                raise EOFError(f"it ended with {seen!r}")
            seen += piece
        return seen

    def rest(self) -> bytes:
        """All that still comes; a reset is an end like any other. Raises: TimeoutError."""
        seen = b""
        try:
            while piece := self.socket.recv(65536):
                seen += piece
        except ConnectionError:
            pass
        return seen

    def status(self) -> int:
        """Of the answer that comes next; 0: the connection ended without one."""
        try:
            return int(self.until(b"\r\n").split()[1])
        except (EOFError, ConnectionError):
            return 0

    def upgrade(self, target: str, key: str) -> None:
        """Become a WebSocket. Raises: AssertionError."""
        wanted = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        wanted["Sec-WebSocket-Key"] = "AAAAAAAAAAAAAAAAAAAAAA=="
        self.head("GET", target, {"Authorization": f"Bearer {key}", **wanted})
        self._ahead = self.until(END_OF_HEAD)
        assert self._ahead.startswith(b"HTTP/1.1 101"), self._ahead

    def frame(self, payload: bytes, opcode: int = 1, *, last: bool = True) -> None:
        self.send(framed(payload, opcode, last=last))

    def reset(self) -> None:
        """Hang up so that the other side is told nothing but that it is over (RST)."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def framed(payload: bytes, opcode: int, *, last: bool = True) -> bytes:
    """A message of a WebSocket's client, masked with zeros. 1 text, 2 binary, 9 ping."""
    size = len(payload)
    first = bytes([(0x80 if last else 0) | opcode])
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65536:
        length = bytes([0x80 | 126]) + struct.pack(">H", size)
    else:
        length = bytes([0x80 | 127]) + struct.pack(">Q", size)
    return first + length + bytes(4) + payload


def resident_bytes(pid: int | str = "self") -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def until_true(condition: Callable[[], bool], seconds: float = WAIT) -> bool:
    """Whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
