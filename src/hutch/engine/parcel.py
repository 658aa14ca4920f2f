"""Several files in one stream of bytes: a JSON line of [path, size, sha256] rows, then the bytes of each, in order."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from hutch.engine.loop import close_items
from hutch.model.errors import InvalidRequest

T = TypeVar("T")
FILES_AT_MOST = 1_000
HEAD_BYTES = 2 * 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class ParcelFile(NamedTuple):
    name: str
    size: int
    sha256: str


@dataclass(slots=True)
class Parcel:
    """Walk `next_file` for each of `files`, to its end."""

    files: list[ParcelFile]
    rest: bytes
    pieces: AsyncIterator[bytes]

    async def next_file(self, file: ParcelFile) -> AsyncIterator[bytes]:
        """Raises: InvalidRequest when it is not what the first line said."""
        left, digest = file.size, hashlib.sha256()
        while left > 0:
            piece, self.rest = self.rest[:left], self.rest[left:]
            if not piece:
                self.rest = await anext(self.pieces, b"")
                if not self.rest:
                    raise InvalidRequest("The files are shorter than their sizes say.")
                continue
            left -= len(piece)
            digest.update(piece)
            yield piece
        if digest.hexdigest() != file.sha256:
            raise InvalidRequest(f"{file.name!r:.200} did not come as it was sent: its SHA-256 is another one.")

    async def aclose(self) -> None:
        await close_items(self.pieces)


async def open_parcel(pieces: AsyncIterator[bytes]) -> Parcel:
    """Reads the first line. Raises: InvalidRequest."""
    head = bytearray()
    while b"\n" not in head[-65536:]:
        piece = await anext(pieces, b"")
        head += piece
        if not piece or len(head) > HEAD_BYTES + len(piece):
            raise _no_head()
    line, _, rest = bytes(head).partition(b"\n")
    try:
        return Parcel([_row(*row) for row in json.loads(line)], rest, pieces)
    except (ValueError, TypeError, RecursionError):
        raise _no_head() from None


def _row(name: Any, size: Any, sha256: Any) -> ParcelFile:
    if isinstance(size, bool) or not isinstance(size, int) or size < 0 or not isinstance(name, str):
        raise ValueError("no name and size")
    if not isinstance(sha256, str) or not _SHA256.match(sha256):
        raise ValueError("no digest")
    return ParcelFile(name, size, sha256)


def _no_head() -> InvalidRequest:
    return InvalidRequest("The first line must be a JSON list of [path, size, SHA-256] rows.")


def several(items: Sequence[T]) -> Sequence[T]:
    """Raises: InvalidRequest: a text is a sequence, too, and never what was meant."""
    if isinstance(items, str | bytes) or not isinstance(items, Sequence):
        raise InvalidRequest(f"Give a list, not {type(items).__name__}.")
    if len(items) > FILES_AT_MOST:
        raise InvalidRequest(f"At most {FILES_AT_MOST} files are placed at once.")
    return items


def parcel_of(files: Sequence[tuple[str, bytes]]) -> Parcel:
    """Raises: InvalidRequest."""
    for pair in several(files):
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[1], bytes):
            raise InvalidRequest("Give a list of pairs of a path and its bytes.")
        if not isinstance(pair[0], str):
            raise InvalidRequest(f"A path must be a text, not {type(pair[0]).__name__}.")
    rows = [ParcelFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in files]
    return Parcel(rows, b"", _pieces(files))


def head_of(parcel: Parcel) -> bytes:
    return json.dumps(parcel.files).encode() + b"\n"


async def _pieces(files: Sequence[tuple[str, bytes]]) -> AsyncIterator[bytes]:
    for _, data in files:
        for start in range(0, len(data), 1024 * 1024):
            yield data[start : start + 1024 * 1024]
