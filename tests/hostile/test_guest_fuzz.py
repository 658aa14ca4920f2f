"""Thousands of broken requests against the guest, built with gcc's sanitizers: it answers each and never crashes."""

from __future__ import annotations

import array
import os
import random
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hutch.providers.guest import protocol
from hutch.providers.guest.protocol import Op
from tests.guest_rig import HANG, builder, listening, needs_bubblewrap, sandbox_arguments

pytestmark = [needs_bubblewrap, pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")]
CONNECTIONS = 500
PACKETS_EACH = 8
PATHS = [b".", b"d", b"d/f", b"link", b"loop", b"fifo", b"new/a/b", b"..", b"/", b"/etc", b"", b"x" * 300, b"d/" * 2500]
PROGRAMS = ["", "true", "/bin/true", "./d/f", "nosuch", "d", "/bin/sleep"]
PING = protocol.pack_request(Op.PING)
PONG = struct.pack("<BBHiI", 1, 0, 0, 0, 1)


@contextmanager
def sanitized_guest(sanitizer: str, folder: Path) -> Iterator[Path]:
    """The socket of a sanitized guest in a sandbox: fuzzed removals must not find a file of ours."""
    guest: Path = builder().build_sanitized(folder, sanitizer)
    files = folder / "files"
    (files / "d").mkdir(parents=True)
    (files / "d" / "f").write_text("data")
    (files / "link").symlink_to("d")
    (files / "loop").symlink_to("loop")
    os.mkfifo(files / "fifo")
    log = folder / "stderr"
    shell = os.open("/usr/bin/bash", os.O_RDONLY | os.O_CLOEXEC)
    with listening(folder / "guest.sock") as listener, log.open("wb") as errors:
        arguments = ["--listen", str(listener.fileno()), "--shell", str(shell), "--landlock-exec", "/usr:/nowhere"]
        running = subprocess.Popen(
            [*sandbox_arguments(guest, files), "--", "/opt/hutch-guest", *arguments],
            stdin=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=[listener.fileno(), shell],
        )
    os.close(shell)
    try:
        yield folder / "guest.sock"
    except (AssertionError, OSError) as failure:
        raise AssertionError(f"the guest broke: {log.read_text(errors='replace')[:5000]}") from failure
    else:
        said = log.read_text(errors="replace")
        assert "Sanitizer" not in said, said[:5000]
        assert "runtime error" not in said, said[:5000]
        assert running.poll() is None, said[:5000]
    finally:
        running.kill()
        running.wait(HANG)


FLAGS = [0, 0, 0, 1, 1, 2, 0x8000, 0x8001]
OPEN_FLAGS = [0, 0, os.O_CREAT | os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_NOFOLLOW, os.O_DIRECTORY, os.O_PATH]


def packets(rng: random.Random) -> tuple[bytes, int]:
    """A request that is right, wrong in a detail, or noise; and how many descriptors go with it."""
    op = rng.choice([Op.SPAWN, Op.SPAWN, *Op])
    descriptors = 0
    if op is Op.SPAWN:
        pty = rng.choice([None, None, None, (24, 80), (0, 65535)])
        packet = spawn_packet(rng, pty)
        descriptors = 0 if pty else 3
    else:
        path = rng.choice(PATHS) + b"\0"
        payload = b"" if op in (Op.PING, Op.DIAL, Op.LISTEN) else path
        payload += rng.choice(PATHS) + b"\0" if op is Op.RENAME else b""
        a = rng.choice(OPEN_FLAGS if op is Op.OPEN else [0, 1, 9, 15, 80, 8080, 65536])
        packet = protocol.pack_request(
            op, flags=rng.choice(FLAGS), a=a, b=rng.choice([0, 1, 2, 0o644]), payload=payload
        )
    if rng.random() < 0.5:
        return within_reason(packet), descriptors
    return within_reason(mutated(rng, packet)), rng.choice([descriptors, descriptors, 0, 1, 2, 5, 12])


def within_reason(packet: bytes) -> bytes:
    """The whole view holds all of /usr: a list of it stays short."""
    if len(packet) > 12 and packet[1] == Op.LIST:
        return packet[:9] + bytes(3) + packet[12:]
    return packet


def spawn_packet(rng: random.Random, pty: tuple[int, int] | None) -> bytes:
    return protocol.pack_spawn(
        program=rng.choice(PROGRAMS),
        argv=["x", "0.01", *["y" * rng.choice([0, 1, 5000])] * rng.randrange(4)],
        env={"PATH": rng.choice(["/bin", "", ":", "/" + "p" * 5000, ":::/usr/bin"])},
        cwd=rng.choice(["/workspace", "/workspace", "", "/nowhere", "d/f"]),
        pty=pty,
        keep=rng.random() < 0.3,
        rlimits=[(rng.randrange(20), 1 << 40, -1)] * rng.choice([0, 0, 0, 0, 1, 17]),
    )


def mutated(rng: random.Random, packet: bytes) -> bytes:
    how = rng.randrange(4)
    if how == 0:
        return packet[: rng.randrange(1, len(packet) + 1)]
    if how == 1:
        return rng.randbytes(rng.choice([1, 7, 19, 20, 21, 300]))
    changed = bytearray(packet)
    if how == 2:
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(min(len(changed), 60))] = rng.randrange(256)
        return bytes(changed)
    return packet + rng.randbytes(rng.randrange(1, 50))


def send(client: socket.socket, packet: bytes, count: int, null: int) -> None:
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * count))] if count else []
    client.sendmsg([packet], ancillary)


def await_pong(client: socket.socket) -> None:
    """Reads what earlier requests brought until the PING is answered: the handler is alive."""
    client.send(PING)
    while True:
        data, ancillary, _, _ = client.recvmsg(protocol.MAX_ANSWER_BYTES, socket.CMSG_SPACE(64))
        for _, _, raw in ancillary:
            for descriptor in array.array("i", raw[: len(raw) // 4 * 4]):
                os.close(descriptor)
        assert data, "the handler died"
        if data == PONG:
            return


@pytest.mark.parametrize("sanitizer", ["address", "undefined"])
def test_no_request_breaks_the_guest(sanitizer: str, tmp_path: Path) -> None:
    rng = random.Random(20_260_101)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    with sanitized_guest(sanitizer, tmp_path) as path:
        for _ in range(CONNECTIONS):
            with connected(path) as client:
                for _ in range(PACKETS_EACH):
                    packet, count = packets(rng)
                    send(client, packet, count, null)
                    await_pong(client)
        with connected(path) as client:
            await_pong(client)
    os.close(null)


@contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(HANG)
        folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
        try:
            client.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        yield client
