"""A guest that lies: the host's side raises a clear error, hangs nowhere and keeps no descriptor."""

from __future__ import annotations

import array
import asyncio
import gc
import os
import signal
import socket
import struct
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hutch.model.errors import HutchError, SandboxUnavailable
from hutch.providers.base import Usage
from hutch.providers.guest.machine import GuestMachine
from hutch.providers.guest.protocol import Kind
from tests.guest_rig import Kept, listening, request, run

Script = Callable[[socket.socket], None]
MachineCall = Callable[[GuestMachine], Awaitable[object]]


class LiedTo(GuestMachine):
    @property
    def alive(self) -> bool:
        return False

    async def end_machine(self) -> None:
        self.release()

    async def usage(self, max_files: int, max_bytes: int) -> Usage:
        return Usage(bytes=0, files=0)

    def headroom_hint(self) -> tuple[int, int]:
        return (0, 0)

    async def stop(self) -> None:
        self.release()

    async def wait_stopped(self) -> str:
        return "never ran"


def packet(kind: int, payload: bytes = b"", error: int = 0) -> bytes:
    return struct.pack("<BBHi", 1, kind, 0, error) + payload


def tell(client: socket.socket, data: bytes, descriptors: list[int] | None = None) -> None:
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    client.sendmsg([data], ancillary)


@contextmanager
def liar(script: Script) -> Iterator[LiedTo]:
    """A process of its own that accepts, reads a request and follows `script`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "guest.sock"
        with listening(path) as listener:
            pid = os.fork()
            if pid == 0:
                _lie(listener, script)
        machine = LiedTo("sbliar", path)
        try:
            yield machine
        finally:
            machine.release()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _lie(listener: socket.socket, script: Script) -> None:
    try:
        while True:
            client, _ = listener.accept()
            try:
                while client.recvmsg(300_000, 4096)[0]:
                    script(client)
            except OSError:
                pass
            client.close()
    finally:
        os._exit(0)


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def fails(script: Script, call: MachineCall) -> HutchError:
    """The error `call` ends in; and no descriptor stays behind."""

    async def work(machine: LiedTo) -> HutchError:
        with pytest.raises(HutchError) as caught:
            await asyncio.wait_for(call(machine), 10)
        machine.release()
        return caught.value

    before = open_descriptors()
    with liar(script) as machine:
        failure = run(work(machine))
    failure.__traceback__ = None
    assert open_descriptors() <= before  # fewer: what tests before this one dropped was collected meanwhile
    return failure


async def spawn_and_wait(machine: GuestMachine) -> object:
    process = await machine.spawn(request("true"), Kept())
    ended = await process.wait()
    raise SandboxUnavailable(f"{ended}")


async def spawn_terminal(machine: GuestMachine) -> object:
    process = await machine.spawn(request("true", pty=(1, 1)), Kept())
    ended = await process.wait()
    raise SandboxUnavailable(f"{ended}")


async def first_event(machine: GuestMachine) -> object:
    return await anext(machine.watch(".", recursive=False))


CALLS: dict[str, MachineCall] = {
    "spawn": spawn_and_wait,
    "terminal": spawn_terminal,
    "open": lambda machine: machine.open_read("f"),
    "stat": lambda machine: machine.stat("f"),
    "list": lambda machine: machine.list(".", recursive=True, max_entries=10),
    "watch": first_event,
    "connect": lambda machine: machine.connect(80),
    "listen": lambda machine: machine.listen(80),
}
LIES: dict[str, bytes] = {
    "short": b"\1",
    "other version": struct.pack("<BBHi", 9, 0, 0, 0),
    "unknown kind": packet(77),
    "empty ok": packet(Kind.OK),
    "started": packet(Kind.STARTED, b"\1\0\0\0"),
    "started with too little": packet(Kind.STARTED, b"\1"),
    "exited": packet(Kind.EXITED, b"\0" * 34),
    "gone": packet(Kind.GONE),
    "entries": packet(Kind.ENTRIES, b"\xff" * 50),
    "upward entry": packet(Kind.ENTRIES, struct.pack("<IQqHH", 0, 0, 0, 4, 0) + b"../x"),
    "impossible error": packet(Kind.ERROR, b"\xff\0step", -7),
    "too long": packet(Kind.OK, b"x" * 210_000),
}


@pytest.mark.parametrize("lie", sorted(LIES))
@pytest.mark.parametrize("call", sorted(CALLS))
def test_a_lie_is_a_clear_error(call: str, lie: str) -> None:
    def script(client: socket.socket) -> None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        tell(client, LIES[lie])
        if lie == "started":
            tell(client, packet(Kind.EXITED, b"short"))

    assert fails(script, CALLS[call]).message


@pytest.mark.parametrize("call", sorted(CALLS))
def test_hanging_up_is_a_clear_error(call: str) -> None:
    fails(lambda client: client.close(), CALLS[call])


@pytest.mark.parametrize("count", [1, 2, 4, 30])
@pytest.mark.parametrize("call", sorted(CALLS))
def test_descriptors_of_the_wrong_kind_or_number_are_refused_and_closed(call: str, count: int) -> None:
    def script(client: socket.socket) -> None:
        fifo, _ = os.pipe()  # a read of it would block for ever
        kind = Kind.STARTED if call in ("spawn", "terminal") else Kind.OK
        tell(client, packet(kind, b"\1\0\0\0"), [fifo] * count)

    fails(script, CALLS[call])


def test_endless_entries_end() -> None:
    entry = struct.pack("<IQqHH", 0o100644, 0, 0, 1, 0) + b"a"

    def script(client: socket.socket) -> None:
        while True:
            tell(client, packet(Kind.ENTRIES, entry * 1000))

    assert "more entries" in fails(script, CALLS["list"]).message


def test_a_watch_of_nonsense_ends() -> None:
    def script(client: socket.socket) -> None:
        tell(client, packet(Kind.OK, b"\1\0\0\0"), [os.open("/dev/zero", os.O_RDONLY)])

    fails(script, CALLS["watch"])


def test_output_without_an_end_is_still_a_lost_command() -> None:
    def script(client: socket.socket) -> None:
        tell(client, packet(Kind.STARTED, b"\1\0\0\0"))
        client.close()

    assert "lost=True" in fails(script, spawn_and_wait).message


@pytest.mark.parametrize("what", ["connected", "other port", "other address", "unix", "not listening", "six"])
def test_what_does_not_listen_where_it_should_is_refused(what: str) -> None:
    def script(client: socket.socket) -> None:
        family = {"unix": socket.AF_UNIX, "six": socket.AF_INET6}.get(what, socket.AF_INET)
        made = socket.socket(family, socket.SOCK_STREAM)
        if what in ("other port", "six"):
            made.bind(("::1" if what == "six" else "127.0.0.1", 0))
            made.listen(1)
        elif what == "other address":
            made.bind(("0.0.0.0", 0))
            made.listen(1)
        elif what == "connected":
            made = socket.socketpair()[0]
        tell(client, packet(Kind.OK, struct.pack("<I", 80)), [made.fileno()])

    assert "does not listen" in fails(script, CALLS["listen"]).message
