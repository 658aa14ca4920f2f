"""Packing requests for the guest init, unpacking its answers (guest/PROTOCOL.md). Pure.

Whatever the guest says is untrusted: each malformed answer is a `SandboxUnavailable`, never an IndexError, and no path
in it leads out of the folder that was asked about.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hutch.model.errors import InvalidRequest, PathRejected, SandboxUnavailable

VERSION = 1
MAX_REQUEST_BYTES = 200_000
MAX_ANSWER_BYTES = 200_000
MAX_LISTED_PROCESSES = 64
WHOLE_VIEW = 0x8000
_UINT64_MAX = 2**64 - 1

_REQUEST = struct.Struct("<BBHIIQ")
_ANSWER = struct.Struct("<BBHi")
_SPAWN = struct.Struct("<HHHH")
_RLIMIT = struct.Struct("<IQQ")
_EXIT = struct.Struct("<iQQQIH")
_PROCESS = struct.Struct("<IB")
_ENTRY = struct.Struct("<IQqHH")
_INODE = struct.Struct("<Q")
_UINT32 = struct.Struct("<I")
_INT32 = struct.Struct("<i")


class Op(enum.IntEnum):
    PING = 1
    SPAWN = 2
    SIGNAL = 3
    KILL = 4
    OPEN = 5
    STAT = 6
    LIST = 7
    MKDIR = 8
    RENAME = 9
    REMOVE = 10
    WATCH = 11
    DIAL = 12
    LISTEN = 13
    PREPARE = 14


class Kind(enum.IntEnum):
    OK = 0
    ERROR = 1
    STARTED = 2
    EXITED = 3
    ENTRIES = 4
    END = 5
    GONE = 6


NO_HANDLER = b"handler"  # the step of an ERROR after which the guest hangs up: it had no process to serve us
SPAWN_PTY = 1
SPAWN_KEEP = 2


@dataclass(frozen=True, slots=True)
class Answer:
    kind: Kind
    error: int  # errno, of ERROR
    payload: bytes

    @property
    def last(self) -> bool:
        """Whether the guest hangs up after it."""
        return self.kind is Kind.ERROR and self.payload == NO_HANDLER


@dataclass(frozen=True, slots=True)
class GuestProcessName:
    pid: int
    name: str


@dataclass(frozen=True, slots=True)
class ExitReport:
    """EXITED: one of `exit_code` and `signal` says how; `processes` were still running then."""

    exit_code: int
    signal: int | None
    cpu_ms: int
    max_rss_bytes: int
    tasks: int  # threads that were still there, of all processes together
    processes: tuple[GuestProcessName, ...]


class Entry(NamedTuple):
    path: str
    mode: int
    size: int
    mtime_ns: int
    target: str | None


def malformed(what: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"The sandbox's init sent a malformed answer ({what}). Stop the sandbox and start it anew."
    )


# Requests


def pack_request(op: Op, *, flags: int = 0, a: int = 0, b: int = 0, c: int = 0, payload: bytes = b"") -> bytes:
    """Raises: InvalidRequest when the packet would be longer than the guest takes."""
    size = _REQUEST.size + len(payload)
    if size > MAX_REQUEST_BYTES:
        raise InvalidRequest(
            f"The request is too long for the sandbox: {size:,} of at most {MAX_REQUEST_BYTES:,} bytes. "
            "Put large data into a file of the sandbox.",
        )
    return _REQUEST.pack(VERSION, op, flags, a, b, c) + payload


def pack_path(path: str) -> bytes:
    """A path relative to the workspace, NUL-terminated. The workspace itself is ".".

    Raises: PathRejected.
    """
    if "\0" in path:
        raise PathRejected(f"A path cannot hold a NUL character: {path!r}", path=path)
    return encode_text(path or ".") + b"\0"


def encode_text(text: str) -> bytes:
    """Names are bytes to the kernel; undecodable ones travel as surrogates and come back as they were.

    Raises: InvalidRequest for lone surrogates that stand for no byte.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidRequest(f"Text that cannot be written as UTF-8: {text[:200]!r}") from None


def decode_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def pack_spawn(
    *,
    program: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    pty: tuple[int, int] | None,
    keep: bool,
    rlimits: Sequence[tuple[int, int, int]],
) -> bytes:
    """The SPAWN packet. `program` "" stands for the shell the guest was started with.

    Raises: InvalidRequest.
    """
    if not argv:
        raise InvalidRequest("A command needs at least one word.")
    if max(len(argv), len(env), len(rlimits)) > 0xFFFF:
        raise InvalidRequest("A command takes at most 65,535 words and as many environment variables.")
    strings = [cwd, program, *argv]
    for name, value in env.items():
        if not name or "=" in name:
            raise InvalidRequest(f"Not the name of an environment variable: {name!r}")
        strings.append(f"{name}={value}")
    if any("\0" in text for text in strings):
        raise InvalidRequest("A command, its folder and its environment cannot hold a NUL character.")
    rows, columns = pty or (0, 0)
    if not (0 <= rows <= 0xFFFF and 0 <= columns <= 0xFFFF):
        raise InvalidRequest(f"A terminal has at most 65,535 rows and columns, not {rows} x {columns}.")
    head = _SPAWN.pack(len(argv), len(env), len(rlimits), 0)
    limits = b"".join(_RLIMIT.pack(which, _limit(soft), _limit(hard)) for which, soft, hard in rlimits)
    body = encode_text("\0".join(strings)) + b"\0"
    flags = (SPAWN_PTY if pty else 0) | (SPAWN_KEEP if keep else 0)
    return pack_request(Op.SPAWN, flags=flags, a=rows, b=columns, payload=head + limits + body)


def _limit(value: int) -> int:
    """Python writes "no limit" as -1, the guest as the largest number."""
    return _UINT64_MAX if value < 0 else value


# Answers


def unpack_answer(packet: bytes) -> Answer:
    """Raises: SandboxUnavailable."""
    if len(packet) < _ANSWER.size:
        raise malformed("short packet")
    version, kind, zero, error = _ANSWER.unpack_from(packet)
    if version != VERSION or zero != 0:
        raise malformed(f"protocol version {version}")
    try:
        known = Kind(kind)
    except ValueError:
        raise malformed(f"kind {kind}") from None
    return Answer(known, error, packet[_ANSWER.size :])


def unpack_started(payload: bytes) -> int:
    """The pid. Raises: SandboxUnavailable."""
    return unpack_number(payload)


def unpack_number(payload: bytes) -> int:
    """Raises: SandboxUnavailable."""
    if len(payload) != _UINT32.size:
        raise malformed("number")
    number: int = _UINT32.unpack(payload)[0]
    return number


def unpack_watch(payload: bytes) -> int:
    """The watch descriptor. Raises: SandboxUnavailable."""
    if len(payload) != _INT32.size:
        raise malformed("watch")
    number: int = _INT32.unpack(payload)[0]
    return number


def unpack_exit(payload: bytes) -> ExitReport:
    """Raises: SandboxUnavailable."""
    if len(payload) < _EXIT.size:
        raise malformed("short exit")
    status, user_us, system_us, max_rss_kib, tasks, count = _EXIT.unpack_from(payload)
    if count > MAX_LISTED_PROCESSES:
        raise malformed("too many processes")
    exit_code, signal = _how_it_ended(status)
    return ExitReport(
        exit_code=exit_code,
        signal=signal,
        cpu_ms=min((user_us + system_us) // 1000, 2**53),  # a number every reader can hold, whatever the guest says
        max_rss_bytes=min(max_rss_kib * 1024, 2**53),
        tasks=tasks,
        processes=_unpack_processes(payload, count) if count else (),
    )


def _how_it_ended(status: int) -> tuple[int, int | None]:
    """Of a wait status: (exit code, signal), the code 128+n after signal n."""
    signal = status & 0x7F
    if signal == 0:
        return (status >> 8) & 0xFF, None
    if signal == 0x7F:  # stopped is no end
        raise malformed("wait status")
    return 128 + signal, signal


def _unpack_processes(payload: bytes, count: int) -> tuple[GuestProcessName, ...]:
    found: list[GuestProcessName] = []
    at = _EXIT.size
    for _ in range(count):
        if len(payload) - at < _PROCESS.size:
            raise malformed("short process")
        pid, length = _PROCESS.unpack_from(payload, at)
        at += _PROCESS.size
        if len(payload) - at < length:
            raise malformed("short process name")
        found.append(GuestProcessName(pid, _printable(payload[at : at + length])))
        at += length
    return tuple(found)


def _printable(raw: bytes) -> str:
    """A process names itself as it likes; control characters must not reach anyone's terminal."""
    text = raw.decode("utf-8", "replace")
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def unpack_entry(payload: bytes) -> tuple[Entry, int | None]:
    """The one entry of a STAT, whose path is empty, and its inode, which an older guest does not tell.

    Raises: SandboxUnavailable.
    """
    entry, end = _entry_at(payload, 0)
    rest = payload[end:]
    if len(rest) not in (0, _INODE.size) or entry.path:
        raise malformed("entry")
    return entry, _INODE.unpack(rest)[0] if rest else None


def unpack_entries(payload: bytes) -> list[Entry]:
    """Raises: SandboxUnavailable."""
    entries: list[Entry] = []
    at = 0
    while at < len(payload):
        entry, at = _entry_at(payload, at)
        _check_listed(entry.path)
        entries.append(entry)
    return entries


def _entry_at(payload: bytes, at: int) -> tuple[Entry, int]:
    start = at + _ENTRY.size
    if start > len(payload):
        raise malformed("short entry")
    mode, size, mtime_ns, path_length, target_length = _ENTRY.unpack_from(payload, at)
    middle = start + path_length
    end = middle + target_length
    if end > len(payload):
        raise malformed("short entry name")
    target = decode_text(payload[middle:end]) if target_length else None
    return Entry(decode_text(payload[start:middle]), mode, size, mtime_ns, target), end


def _check_listed(path: str) -> None:
    """A listed path must lead downwards: callers may join it with a folder of theirs."""
    if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise malformed("path of an entry")


def unpack_end(payload: bytes) -> bool:
    """Whether the list was cut. Raises: SandboxUnavailable."""
    if len(payload) != 1:
        raise malformed("end")
    return payload[0] != 0
