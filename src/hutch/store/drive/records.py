"""What lies in the drive's tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CHUNK_BYTES = 256 * 1024

FILE_COLUMNS = (
    "file_id, owner_id, path, folder, version, latest, size_bytes, sha256, created_at, modified_at, deleted_at, changes"
)


@dataclass(frozen=True, slots=True)
class FileRecord:
    file_id: int
    owner_id: int
    path: str
    folder: str
    version: int
    latest: int
    size_bytes: int
    sha256: str
    created_at: float
    modified_at: float
    deleted_at: float | None
    changes: int

    @property
    def live(self) -> bool:
        return self.deleted_at is None


@dataclass(frozen=True, slots=True)
class FolderRecord:
    path: str
    files: int  # below it, at any depth
    created_at: float
    modified_at: float


@dataclass(frozen=True, slots=True)
class VersionRecord:
    version: int
    content_id: int
    size_bytes: int
    sha256: str
    created_at: float


@dataclass(frozen=True, slots=True)
class UsageRecord:
    bytes: int = 0
    kept_bytes: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True)
class NewContent:
    """What a version is to name: content that was written in pieces (`content_id`), or one that is `inline`."""

    size_bytes: int
    sha256: str
    content_id: int | None = None
    inline: tuple[bytes, ...] = ()


class VersionChanged(Exception):
    """The file is not at the version that the change was made for."""


def file_record(row: Any) -> FileRecord:
    return FileRecord(*row)
