"""Rows of the drive's tables as users see them."""

from __future__ import annotations

from collections.abc import Sequence

from hutch.model.clock import iso
from hutch.model.drive import DriveEntry, DriveFile, DriveVersion, name_of
from hutch.store.drive.records import FileRecord, FolderRecord, VersionRecord


def drive_file(record: FileRecord) -> DriveFile:
    return {
        "path": record.path,
        "name": name_of(record.path),
        "size_bytes": record.size_bytes,
        "modified": iso(record.modified_at),
        "version": record.version,
        "sha256": record.sha256,
    }


def file_entry(record: FileRecord) -> DriveEntry:
    return {
        "path": record.path,
        "name": name_of(record.path),
        "kind": "file",
        "size_bytes": record.size_bytes,
        "modified": iso(record.modified_at),
        "created": iso(record.created_at),
        "version": record.version,
        "sha256": record.sha256,
    }


def folder_entry(record: FolderRecord) -> DriveEntry:
    return {
        "path": record.path,
        "name": name_of(record.path),
        "kind": "directory",
        "size_bytes": 0,
        "modified": iso(record.modified_at),
        "created": iso(record.created_at),
        "version": 0,
        "sha256": "",
    }


def file_entries(folders: Sequence[FolderRecord], files: Sequence[FileRecord]) -> list[DriveEntry]:
    found = [*map(folder_entry, folders), *map(file_entry, files)]
    return sorted(found, key=lambda entry: entry["path"])


def version_info(record: FileRecord, version: VersionRecord) -> DriveVersion:
    return {
        "version": version.version,
        "size_bytes": version.size_bytes,
        "created": iso(version.created_at),
        "sha256": version.sha256,
        "current": record.live and version.version == record.version,
    }
