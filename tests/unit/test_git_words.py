"""What git is asked, and how its answers are read. Pure."""

from __future__ import annotations

import pytest

from hutch.engine.git import reading
from hutch.engine.git.words import address, folder_of, key, paths, scope, secret_environment, word
from hutch.model.errors import InvalidRequest
from hutch.model.git import Credentials

pytestmark = pytest.mark.once


def test_a_password_in_an_address_becomes_credentials() -> None:
    bare, found = address("https://ada:p%40ss@example.com:8443/x.git")
    assert bare == "https://example.com:8443/x.git"
    assert found == Credentials("ada", "p@ss")
    for plain in ("https://example.com/x", "git@example.com:x/y.git", "file:///workspace/x", "../x", "/workspace/x"):
        assert address(plain) == (plain, None)
    assert "p@ss" not in repr(found)


@pytest.mark.parametrize(
    "url",
    ["", "-x", "--upload-pack=x", "ext::sh -c x", "fd::3", "gopher://x/y", "https://[x/", "x\ny", "a\0b", "a" * 5000],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InvalidRequest):
        address(url)


def test_credentials_are_for_one_host_and_in_no_argument() -> None:
    made = secret_environment(Credentials("ada", "s3cret"), "https://ada@example.com:8443/x")
    assert made["GIT_CONFIG_KEY_0"] == "credential.helper"  # an empty one: whatever was set before counts no more
    assert made["GIT_CONFIG_VALUE_0"] == ""
    assert made["GIT_CONFIG_KEY_1"] == "credential.https://example.com:8443.helper"
    assert [name for name, value in made.items() if "s3cret" in value] == ["HUTCH_GIT_PASSWORD"]
    for url in ("file:///x", "git@example.com:x", "ssh://example.com/x"):
        with pytest.raises(InvalidRequest):
            scope(url)
    with pytest.raises(InvalidRequest):
        secret_environment(Credentials("a", "x\nhost=evil"), "https://example.com")


def test_names_and_paths() -> None:
    for name in ("main", "feature/x", "v1.0^{}", "@{-1}"):
        assert word(name, "name") == name
    for name in ("", "-d", "a\nb", "\x00"):
        with pytest.raises(InvalidRequest):
            word(name, "name")
    assert paths(["a\nb", "*", ":(top)"]) == ["a\nb", "*", ":(top)"]
    for bad in (["-a"], [""], ["a\0"], [], "a"):
        with pytest.raises(InvalidRequest):
            paths(bad)
    assert key("branch.a.b/c.remote") == "branch.a.b/c.remote"
    for bad_key in ("user", "--get", ".x", "a.b\nc", "a b.c"):
        with pytest.raises(InvalidRequest):
            key(bad_key)
    for url, folder in (("https://x/y/z.git/", "z"), ("git@h:z.git", "z"), ("/a/b", "b")):
        assert folder_of(url) == folder


def test_a_status_is_read_with_any_name_in_it() -> None:
    modes = "N... 100644 100644 100644 aaaa bbbb"
    text = "\0".join(
        [
            "# branch.oid 1234",
            "# branch.head main",
            "# branch.upstream origin/main",
            "# branch.ab +2 -1",
            f"1 .M {modes} a b\nc",
            f"2 R. {modes} R100 new name",
            "old name",
            "u UU N... 1 2 3 4 aa bb cc both",
            "? -rf",
            "1 broken",
            "",
        ]
    )
    found = reading.status(text)
    assert (found["branch"], found["ahead"], found["behind"], found["clean"]) == ("main", 2, 1, False)
    assert [(one["path"], one["index"], one["worktree"], one["renamed_from"]) for one in found["files"]] == [
        ("a b\nc", " ", "M", None),
        ("new name", "R", " ", "old name"),
        ("both", "U", "U", None),
        ("-rf", "?", "?", None),
    ]
    assert reading.status("# branch.ab +99999999999999 -x\0\0junk")["ahead"] == 0


def test_logs_branches_and_remotes_are_read() -> None:
    log = "\0".join(
        [
            "a1",
            "b2 c3",
            "Ada",
            "a@x",
            "2026-01-01T00:00:00+00:00",
            "subject\n\nbody\n",
            "\nb2",
            "",
            "B",
            "b@x",
            "d",
            "m\n",
            "\n",
        ]
    )
    assert [(one["sha"], one["parents"], one["message"]) for one in reading.log(log)] == [
        ("a1", ["b2", "c3"], "subject\n\nbody"),
        ("b2", [], "m"),
    ]
    assert reading.log("") == []
    assert reading.branches("*\0main\0a1\0origin/main\n \0x\0b2\0\nbroken\n") == [
        {"name": "main", "commit": "a1", "current": True, "upstream": "origin/main"},
        {"name": "x", "commit": "b2", "current": False, "upstream": None},
    ]
    assert reading.remotes("remote.o.url\nhttps://x\0broken\0") == [{"name": "o", "url": "https://x"}]
