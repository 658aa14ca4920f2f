"""Why the database cannot be used, in words: what SQLite reports becomes a cause and a remedy."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from hutch.model.errors import InvalidRequest, StoreUnavailable

_ANOTHER_FOLDER = "set HUTCH_DATA_DIR to a folder this user may write"
_DAMAGED = "restore it from a backup, or move it away to start anew (running sandboxes are then forgotten)"
# Extended result codes keep the primary code in their low byte.
_PRIMARY = 0xFF
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_UNWRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
_UNREADABLE = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}


def unavailable(place: Path | str, cause: str, remedy: str) -> StoreUnavailable:
    return StoreUnavailable(f"The store {place} cannot be used: {cause}. Remedy: {remedy}.", cause=cause, remedy=remedy)


def from_sqlite(path: Path, error: sqlite3.Error) -> StoreUnavailable:
    code = getattr(error, "sqlite_errorcode", None)  # missing on errors that Python's module raises itself
    primary = code & _PRIMARY if isinstance(code, int) else None
    if primary in _LOCKED:
        return unavailable(
            path, "another process holds it locked", "end the process that holds it (fuser names it), then try again"
        )
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return unavailable(path, "the file was moved or removed while in use", "put it back, or start again")
    # A full disk shows as FULL, but as an I/O error where SQLite could not grow its shared memory.
    if primary == sqlite3.SQLITE_FULL or (primary == sqlite3.SQLITE_IOERR and _is_full(path)):
        return unavailable(path, "the disk is full", "free space there, or set HUTCH_DATA_DIR to another disk")
    if primary in _UNWRITABLE:
        return unwritable(path)
    if primary in _UNREADABLE:
        return unavailable(path, f"the file is damaged or is not a database ({error})", _DAMAGED)
    return unavailable(path, str(error), "see the cause; hutch doctor checks the data folder")


def forked(place: Path | str) -> StoreUnavailable:
    return unavailable(place, "it was opened before this process was forked", "open it again here")


def no_text(error: UnicodeEncodeError) -> InvalidRequest:
    return InvalidRequest(f"Text that is not valid Unicode cannot be stored: {error.object!r:.80}")


def from_os(path: Path, error: OSError) -> StoreUnavailable:
    if error.errno == errno.ENOSPC:
        return unavailable(path, "the disk is full", "free space there, or set HUTCH_DATA_DIR to another disk")
    return unavailable(path, f"{error.strerror or error} ({error.filename})", _ANOTHER_FOLDER)


def unwritable(path: Path) -> StoreUnavailable:
    return unavailable(path, _why_unwritable(path), _ANOTHER_FOLDER)


def newer_schema(place: Path | str, found: int, known: int) -> StoreUnavailable:
    own = "HUTCH_DATA_DIR" if isinstance(place, Path) else "database"
    return unavailable(
        place,
        f"a newer Hutch wrote it (schema {found}, this program knows {known})",
        f"update this program, or give it a {own} of its own",
    )


def _is_full(path: Path) -> bool:
    try:
        room = os.statvfs(path.parent)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < 64 * 1024 or (room.f_files > 0 and room.f_favail == 0)


def _why_unwritable(path: Path) -> str:
    if path.is_dir():
        return "there is a folder of that name"
    if _read_only_mount(path.parent):
        return "its file system is mounted read-only"
    for place in (path.parent, path):
        if place.exists() and not os.access(place, os.W_OK):
            return f"{place} is not writable"
    return "it cannot be opened for writing"


def _read_only_mount(folder: Path) -> bool:
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError:
        return False
