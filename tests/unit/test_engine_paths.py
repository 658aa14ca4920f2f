"""The shape of paths: nothing that could leave the workspace gets as far as a sandbox."""

from __future__ import annotations

import posixpath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from hutch.engine.paths import MAX_NAME_BYTES, MAX_PATH_BYTES, workspace_path
from hutch.model.errors import PathRejected

parts = some.sampled_from(["a", "..", ".", "", "/", "workspace", "/workspace", "-rf", "ü", "\n", "x" * 255, " ", "~"])
spelled = some.lists(parts, max_size=6).map("/".join)


@given(some.one_of(some.text(), spelled), some.booleans())
def test_what_is_let_through_stays_below_the_workspace(path: str, allow_root: bool) -> None:
    try:
        clean = workspace_path(path, allow_root=allow_root)
    except PathRejected:
        return
    assert not clean.startswith("/")
    assert ".." not in clean.split("/")
    assert "\0" not in clean
    assert clean == posixpath.normpath(clean)
    assert clean != "." or allow_root
    assert all(0 < len(part.encode("utf-8", "surrogateescape")) <= MAX_NAME_BYTES for part in clean.split("/"))
    assert workspace_path(clean, allow_root=allow_root) == clean
    assert workspace_path(f"/workspace/{clean}", allow_root=allow_root) == clean


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("a.txt", "a.txt"),
        ("./a//b/./c", "a/b/c"),
        ("/workspace/a", "a"),
        ("-rf", "-rf"),
        ("~", "~"),
        ("a b\nc", "a b\nc"),
        ("...", "..."),
        ("a..b", "a..b"),
        ("\udcff\udcfe", "\udcff\udcfe"),  # a name that is not UTF-8
        ("x" * 255, "x" * 255),
    ],
)
def test_good_paths(path: str, clean: str) -> None:
    assert workspace_path(path) == clean


@pytest.mark.parametrize(
    "path",
    [
        *("", ".", "/", "./", "/workspace", "/workspace/", "..", "../a", "a/../b", "a/..", "/workspace/../etc/passwd"),
        *("/etc/passwd", "/workspaces/a", "/workspace2", "//workspace/a", "a\0b", "a/", "a/.", "\ud800"),
        *("x" * 256, "ü" * 128, "a/" * (MAX_PATH_BYTES // 2) + "ab"),
        *(None, 7, b"a.txt", ["a"]),
    ],
)
def test_bad_paths_are_clear_errors(path: Any) -> None:
    with pytest.raises(PathRejected):
        workspace_path(path)


@pytest.mark.parametrize("path", [".", "/workspace", "/workspace/", "./"])
def test_the_workspace_itself_where_it_makes_sense(path: str) -> None:
    assert workspace_path(path, allow_root=True) == "."


def test_a_folder_may_be_named_with_a_slash_where_folders_make_sense() -> None:
    assert workspace_path("a/b/", allow_root=True) == "a/b"
