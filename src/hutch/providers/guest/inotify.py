"""The kernel's inotify records. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from hutch.model.errors import SandboxUnavailable

IN_MODIFY = 0x2
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
IN_ISDIR = 0x40000000

_RECORD = struct.Struct("<iIII")


class Record(NamedTuple):
    watch: int
    mask: int
    name: str  # empty: the watched file or folder itself


def records(data: bytes) -> Iterator[Record]:
    """Raises: SandboxUnavailable when `data` is not what a kernel writes."""
    at = 0
    while at < len(data):
        if len(data) - at < _RECORD.size:
            raise SandboxUnavailable("A watch on the sandbox's files broke: short record.")
        watch, mask, _, length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if len(data) - at < length:
            raise SandboxUnavailable("A watch on the sandbox's files broke: short name.")
        name = data[at : at + length].split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        at += length
        yield Record(watch, mask, name)
