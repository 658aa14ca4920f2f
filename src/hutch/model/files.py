"""Files of a sandbox."""

from __future__ import annotations

from typing import Literal, TypedDict

FileKind = Literal["file", "directory", "symlink", "other"]


class FileEntry(TypedDict):
    """One row of `list_files`."""

    name: str
    size_bytes: int
    modified: str  # ISO 8601, UTC
    permissions: str  # like -rw-r--r--


class FileListing(TypedDict):
    session_id: str
    workspace_dir: str
    files: list[FileEntry]
    total_files: int
    total_size_bytes: int


class FileInfo(TypedDict):
    """One row of `files.list`, and the answer of `files.stat`."""

    path: str  # relative to the workspace
    name: str
    kind: FileKind
    size_bytes: int
    modified: str
    permissions: str
    target: str | None  # of a symlink


class UploadResult(TypedDict):
    status: Literal["uploaded"]
    filename: str
    path: str
    size_bytes: int


class FileEvent(TypedDict):
    kind: Literal["created", "modified", "removed", "moved_from", "moved_to", "overflow"]
    path: str
    is_directory: bool
