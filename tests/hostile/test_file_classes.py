"""Classes of the checklist about files that need a test of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hutch import PathRejected, SandboxClient, SandboxFileNotFound
from tests.client_rig import client_of
from tests.guest_rig import needs_bubblewrap

pytestmark = needs_bubblewrap


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxClient]:
    with client_of(tmp_path_factory.mktemp("data")) as made:
        yield made


@pytest.mark.parametrize("source", ["/etc/passwd", "/usr/bin/env", "/proc/self/environ", "/dev/null"])
def test_f6_no_hard_link_reaches_out(client: SandboxClient, source: str) -> None:
    result = client.execute(f"python3 -c \"import os; os.link('{source}', '/workspace/linked')\"")
    assert result["exit_code"] != 0
    with pytest.raises(SandboxFileNotFound):
        client.files.stat("linked")


def test_f6_a_hard_link_within_is_a_file_like_any_other(client: SandboxClient) -> None:
    client.execute("echo one > first; ln first second")
    client.files.write("second", "two")  # takes the name's place, and leaves the other name alone
    assert client.files.read("first") == b"one\n"
    assert client.files.read("second") == b"two"


@pytest.mark.parametrize("pattern", ["*", "**", "?", "[a-z]*", "{fir,seco}nd", "../*", "/etc/*", "~", "$HOME", "`pwd`"])
def test_f9_patterns_are_just_names(client: SandboxClient, pattern: str) -> None:
    client.files.write("plain", "text")
    for call in (client.files.read, client.files.list, client.files.stat, client.files.remove):
        with pytest.raises((SandboxFileNotFound, PathRejected)):
            call(pattern)
    assert client.files.read("plain") == b"text"


def test_f10_nothing_is_owned_or_opened_up_through_a_link(client: SandboxClient, tmp_path: Path) -> None:
    """A link that would mean a host file, were it followed on the host's side."""
    target = tmp_path / "precious"
    target.write_text("mine")
    target.chmod(0o600)
    before = target.stat()
    client.execute(f"ln -s {target} link; mkdir d; ln -s {tmp_path} d/out")
    client.files.write("link", "theirs", mode=0o777)
    with pytest.raises((SandboxFileNotFound, PathRejected)):
        client.files.write("d/out/precious", "theirs", mode=0o777)
    client.files.remove("d", recursive=True)
    after = target.stat()
    assert (after.st_uid, after.st_mode, after.st_size) == (before.st_uid, before.st_mode, before.st_size)
    assert target.read_text() == "mine"
    assert os.listdir(tmp_path) == ["precious"]
