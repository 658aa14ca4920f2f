"""From what the guest says of a file to what users see. Pure."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from hutch.model.files import FileInfo, FileKind
from hutch.providers.guest.protocol import Entry

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = -62_135_596_800  # years 1 and 9999: a sandbox may date its files as it likes, a calendar may not
_LAST = 253_402_300_799


def file_info(path: str, entry: Entry) -> FileInfo:
    return FileInfo(
        path=path,
        name=path.rsplit("/", 1)[-1],
        kind=file_kind(entry.mode),
        size_bytes=entry.size,
        modified=modified(entry.mtime_ns),
        permissions=stat.filemode(entry.mode),
        target=entry.target,
    )


def file_kind(mode: int) -> FileKind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def modified(mtime_ns: int) -> str:
    """ISO 8601, UTC, in microseconds."""
    seconds, rest_ns = divmod(mtime_ns, 1_000_000_000)
    seconds = min(max(seconds, _FIRST), _LAST)
    return (_EPOCH + timedelta(seconds=seconds, microseconds=rest_ns // 1000)).isoformat(timespec="microseconds")


def below(folder: str, name: str) -> str:
    return name if folder in ("", ".") else f"{folder.rstrip('/')}/{name}"


def sorted_infos(folder: str, entries: Iterable[Entry]) -> list[FileInfo]:
    """By path: the order of a folder on disk means nothing."""
    return [file_info(below(folder, entry.path), entry) for entry in sorted(entries)]
