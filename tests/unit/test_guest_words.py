"""The pure parts of the host's side: file rows, kernel events, error words, where binaries are."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hutch.model.errors import (
    FileConflict,
    HutchError,
    LimitExceeded,
    PathRejected,
    SandboxFileNotFound,
    SandboxUnavailable,
)
from hutch.providers.guest import binaries, inotify
from hutch.providers.guest.failures import file_error, port_error, spawn_error
from hutch.providers.guest.files import temporary_beside
from hutch.providers.guest.listing import file_info, modified, sorted_infos
from hutch.providers.guest.protocol import Entry


def test_a_row_says_what_ls_says() -> None:
    row = file_info("a/b.txt", Entry("", 0o100644, 5, 1_700_000_000_123_456_789, None))
    assert row == {
        "path": "a/b.txt",
        "name": "b.txt",
        "kind": "file",
        "size_bytes": 5,
        "modified": "2023-11-14T22:13:20.123456+00:00",
        "permissions": "-rw-r--r--",
        "target": None,
    }


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_time_can_be_shown(mtime_ns: int) -> None:
    assert modified(mtime_ns).endswith("+00:00")


def test_rows_are_sorted_and_below_their_folder() -> None:
    rows = sorted_infos(
        "d", [Entry("b", 0o40755, 0, 0, None), Entry("a", 0o120777, 0, 0, "b"), Entry("c", 0, 0, 0, None)]
    )
    assert [(row["path"], row["kind"]) for row in rows] == [("d/a", "symlink"), ("d/b", "directory"), ("d/c", "other")]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, SandboxFileNotFound),
        (errno.EXDEV, PathRejected),
        (errno.ELOOP, PathRejected),
        (errno.EINVAL, PathRejected),
        (errno.EISDIR, PathRejected),
        (errno.EEXIST, FileConflict),
        (errno.ENOTEMPTY, FileConflict),
        (errno.ENOSPC, LimitExceeded),
        (errno.EDQUOT, LimitExceeded),
        (errno.EFBIG, LimitExceeded),
        (errno.EAGAIN, LimitExceeded),
        (-5, SandboxUnavailable),
        (99999, SandboxUnavailable),
    ],
)
def test_each_errno_becomes_an_error_that_names_the_path(number: int, kind: type[HutchError]) -> None:
    failure = file_error(number, "some/file")
    assert type(failure) is kind
    assert "some/file" in failure.message


@pytest.mark.parametrize("step", ["cwd", "exec", "fork", "pty", "limits", "", "\x00nonsense"])
@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EAGAIN, errno.E2BIG, 0, -1])
def test_a_command_that_cannot_start_is_an_error_with_a_code(step: str, number: int) -> None:
    assert isinstance(spawn_error(number, step, "prog", "/workspace"), HutchError)


def test_a_closed_port_is_named() -> None:
    assert "8080" in port_error(errno.ECONNREFUSED, 8080).message


@pytest.mark.parametrize("path", ["", "a/", "a/..", ".", "x" * 256])
def test_a_file_to_write_needs_a_name(path: str) -> None:
    with pytest.raises(PathRejected):
        temporary_beside(path)


def test_the_temporary_name_is_in_the_same_folder() -> None:
    assert temporary_beside("a/b").startswith("a/.hutch-")
    assert temporary_beside("b").startswith(".hutch-")


def record(watch: int, mask: int, name: bytes) -> bytes:
    return struct.pack("<iIII", watch, mask, 0, len(name)) + name


def test_kernel_records_are_read_with_their_padding() -> None:
    data = record(1, inotify.IN_CREATE, b"a\xff\0\0") + record(2, inotify.IN_MODIFY, b"")
    assert list(inotify.records(data)) == [(1, inotify.IN_CREATE, "a\udcff"), (2, inotify.IN_MODIFY, "")]


@given(st.binary(max_size=200))
def test_no_record_breaks_the_reader(data: bytes) -> None:
    try:
        list(inotify.records(data))
    except SandboxUnavailable:
        return


def test_a_missing_binary_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(binaries, "__file__", str(tmp_path / "binaries.py"))
    with pytest.raises(SandboxUnavailable, match=r"guest/build\.py"):
        binaries.guest_binary()


def test_an_unknown_processor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    with pytest.raises(SandboxUnavailable, match="pdp11"):
        binaries.launch_binary()
