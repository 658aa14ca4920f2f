"""Packing for the guest and unpacking what it says, lies included."""

from __future__ import annotations

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hutch.model.errors import InvalidRequest, PathRejected, SandboxUnavailable
from hutch.providers.guest import protocol
from hutch.providers.guest.protocol import Kind, Op

NAMES = st.binary(min_size=1, max_size=40).filter(lambda raw: b"\0" not in raw and b"/" not in raw)


def entry(path: bytes, target: bytes = b"", *, mode: int = 0o100644, size: int = 1, mtime_ns: int = 0) -> bytes:
    return struct.pack("<IQqHH", mode, size, mtime_ns, len(path), len(target)) + path + target


def spawn(**changes: object) -> bytes:
    arguments: dict[str, object] = {
        "program": "/bin/true",
        "argv": ["true"],
        "env": {},
        "cwd": "/workspace",
        "pty": None,
        "keep": False,
        "rlimits": [],
    }
    return protocol.pack_spawn(**{**arguments, **changes})  # type: ignore[arg-type]


def test_a_request_is_a_header_and_its_payload() -> None:
    packet = protocol.pack_request(Op.OPEN, flags=3, a=1, b=2, c=4, payload=b"x\0")
    assert packet == struct.pack("<BBHIIQ", 1, 5, 3, 1, 2, 4) + b"x\0"


def test_a_spawn_lists_limits_then_texts() -> None:
    packet = spawn(program="", argv=["bash", "-c", "é"], env={"A": "1"}, keep=True, rlimits=[(1, 10, -1)])
    assert packet[:20] == struct.pack("<BBHIIQ", 1, Op.SPAWN, protocol.SPAWN_KEEP, 0, 0, 0)
    limits = struct.pack("<IQQ", 1, 10, 2**64 - 1)
    texts = b"/workspace\0\0bash\0-c\0" + "é".encode() + b"\0A=1\0"
    assert packet[20:] == struct.pack("<HHHH", 3, 1, 1, 0) + limits + texts


@pytest.mark.parametrize(
    "changes",
    [
        {"argv": []},
        {"argv": ["a\0b"]},
        {"env": {"A=B": "1"}},
        {"env": {"": "1"}},
        {"env": {"A": "\0"}},
        {"cwd": "/\0"},
        {"argv": ["x" * 200_000]},
        {"argv": ["x"] * 70_000},
        {"pty": (70_000, 1)},
        {"argv": ["\ud800"]},
    ],
)
def test_what_cannot_be_packed_is_an_invalid_request(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        spawn(**changes)


def test_paths_keep_bytes_that_are_no_text() -> None:
    assert protocol.pack_path(os.fsdecode(b"a\xff\n")) == b"a\xff\n\0"
    assert protocol.pack_path("") == b".\0"
    with pytest.raises(PathRejected):
        protocol.pack_path("a\0b")


@given(st.binary(max_size=300))
def test_no_answer_breaks_the_reader(packet: bytes) -> None:
    readers = (
        protocol.unpack_exit,
        protocol.unpack_entry,
        protocol.unpack_entries,
        protocol.unpack_end,
        protocol.unpack_started,
        protocol.unpack_watch,
        protocol.unpack_answer,
    )
    for read in readers:
        try:
            read(packet)
        except SandboxUnavailable:
            continue


@given(st.lists(st.tuples(NAMES, st.binary(max_size=40), st.integers(0, 2**63 - 1)), max_size=20))
def test_entries_come_back_as_they_were(rows: list[tuple[bytes, bytes, int]]) -> None:
    rows = [row for row in rows if row[0] not in (b".", b"..")]
    packet = b"".join(entry(name, target, size=size) for name, target, size in rows)
    found = protocol.unpack_entries(packet)
    assert [(os.fsencode(one.path), one.size) for one in found] == [(name, size) for name, _, size in rows]


@pytest.mark.parametrize("path", [b"../x", b"/etc/passwd", b"a/../../x", b"a//b", b"", b".", b"a/.", b"a\0b"])
def test_a_listed_path_leads_nowhere_but_down(path: bytes) -> None:
    with pytest.raises(SandboxUnavailable):
        protocol.unpack_entries(entry(path))


def exited(status: int, *processes: tuple[int, bytes], count: int | None = None) -> bytes:
    tail = b"".join(struct.pack("<IB", pid, len(name)) + name for pid, name in processes)
    return struct.pack("<iQQQIH", status, 1500, 500, 2, 3, len(processes) if count is None else count) + tail


def test_how_a_command_ended() -> None:
    report = protocol.unpack_exit(exited(3 << 8, (7, b"sleep")))
    assert (report.exit_code, report.signal, report.cpu_ms, report.max_rss_bytes) == (3, None, 2, 2048)
    assert report.tasks == 3
    assert [(one.pid, one.name) for one in report.processes] == [(7, "sleep")]
    killed = protocol.unpack_exit(exited(9))
    assert (killed.exit_code, killed.signal) == (137, 9)


def test_process_names_cannot_carry_control_characters() -> None:
    report = protocol.unpack_exit(exited(0, (7, b"\x1b]0;x\x07")))
    assert report.processes[0].name == "?]0;x?"


@pytest.mark.parametrize("payload", [exited(0x7F), exited(0, count=65), exited(0, (1, b"a"), count=2)])
def test_an_impossible_exit_is_refused(payload: bytes) -> None:
    with pytest.raises(SandboxUnavailable):
        protocol.unpack_exit(payload)


def test_an_answer_of_another_version_or_kind_is_refused() -> None:
    assert protocol.unpack_answer(struct.pack("<BBHi", 1, 1, 0, 2) + b"cwd").kind is Kind.ERROR
    for head in ((2, 0, 0, 0), (1, 99, 0, 0), (1, 0, 1, 0)):
        with pytest.raises(SandboxUnavailable):
            protocol.unpack_answer(struct.pack("<BBHi", *head))
