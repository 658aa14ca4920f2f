"""WebSockets through previews: how they begin and end when what listens in the sandbox plays false."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.utils import accept_key

from hutch.server.preview import sockets
from hutch.testing.fake_ports import FakeStream
from tests.preview_rig import Listener, Stage, host_of, read_head, saying, staged

pytestmark = pytest.mark.once

MIB = 1 << 20


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("data")) as made:
        yield made


@pytest.fixture(scope="module")
def sandbox(stage: Stage) -> str:
    return stage.sandbox("t")


@contextlib.contextmanager
def _open(stage: Stage, sandbox: str) -> Iterator[ClientConnection]:
    mine = stage.preview(sandbox)
    plain = socket.create_connection(("127.0.0.1", stage.server.previews))
    headers = {"hutch-preview-token": mine["token"]}
    with connect(f"ws://{host_of(mine)}/s", sock=plain, additional_headers=headers, proxy=None) as opened:
        yield opened


def _accepting(then: bytes, *headers: bytes) -> Listener:
    """A WebSocket server of few words."""

    async def listener(stream: FakeStream) -> None:
        head, _ = await read_head(stream)
        key = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
        accept = accept_key(key.partition(b":")[2].strip().decode()).encode()
        lines = [b"HTTP/1.1 101 X", b"upgrade: websocket", b"connection: upgrade", b"sec-websocket-accept: " + accept]
        with contextlib.suppress(OSError):
            await stream.send(b"\r\n".join([*lines, *headers, b"", then]))
            while await stream.receive():
                pass

    return listener


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (b"\x81\x02hi\x88\x02\x0f\xa0", 4000),  # a message, then closed with a code of its own
        (b"\x81\x02hi\x88\x00", 1000),
        (b"\x81\x02\xff\xfe", 1011),  # text that is none
        (b"\x82\x7f" + (1 << 40).to_bytes(8, "big"), 1011),  # a frame of a terabyte
        (b"\x83\x00", 1011),  # a kind of frame that there is not
        (b"\x81\x82abcdhi", 1011),  # a server does not mask
        (b"\x88\x02\x03\xed", 1011),  # a code that no frame carries
    ],
)
def test_websockets_end_as_the_sandbox_ends_them_or_with_an_error(
    stage: Stage, sandbox: str, frames: bytes, code: int
) -> None:
    stage.listen(sandbox, _accepting(frames, b"set-cookie: a=1; domain=localhost"))
    with _open(stage, sandbox) as opened:
        assert opened.response is not None
        assert opened.response.headers["set-cookie"] == "a=1"
        with contextlib.suppress(ConnectionClosedError):
            for message in opened:
                assert message == "hi"
        assert opened.close_code == code


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 X\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: wrong\r\n\r\n",
        b"HTTP/1.1 101 X\r\n" + b"x-a: 1\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 101 X\r\nx-big: " + b"y" * MIB + b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"",
    ],
)
def test_a_handshake_that_is_none_is_an_error(stage: Stage, sandbox: str, answer: bytes) -> None:
    stage.listen(sandbox, saying(answer))
    with pytest.raises(InvalidStatus) as caught, _open(stage, sandbox):
        pass
    assert caught.value.response.status_code == 502
    assert json.loads(caught.value.response.body or b"")["code"] == "port_misbehaved"


def test_a_handshake_that_never_ends_ends(stage: Stage, sandbox: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "HANDSHAKE_SECONDS", 0.3)
    stage.listen(sandbox, saying(b"HTTP/1.1 101 X\r\n", "hold"))
    with pytest.raises(InvalidStatus) as caught, _open(stage, sandbox):
        pass
    assert caught.value.response.status_code == 502


def test_a_revoked_token_cuts_its_websockets_off(stage: Stage, sandbox: str) -> None:
    stage.listen(sandbox, _accepting(b"\x81\x02hi"))
    with _open(stage, sandbox) as opened:
        assert opened.recv(10) == "hi"
        stage.revoke(sandbox)
        with pytest.raises(ConnectionClosedError):
            opened.recv(10)
