"""`hutch drive`, as a program of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.integration.cli_stage import Hutch

pytestmark = pytest.mark.once


def test_a_drive_from_the_command_line(tmp_path: Path) -> None:
    hutch = Hutch(tmp_path / "data")
    me = ("--user", "ann@example.com")

    def out(*words: str, given: bytes = b"", code: int = 0) -> str:
        ended = hutch.run("drive", *words, *me, given=given)
        assert ended.returncode == code, ended
        return ended.stdout.decode()

    data = os.urandom(3_000_000)
    (tmp_path / "here.bin").write_bytes(data)
    out("put", str(tmp_path / "here.bin"), "/data-exports/")
    out("put", "-", "/memories/notes.md", given=b"total: 12\n")
    out("put", "-", "/memories/notes.md", given=b"total: 13\n")
    assert out("cat", "/memories/notes.md") == "total: 13\n"
    assert out("cat", "/memories/notes.md", "--version", "1") == "total: 12\n"
    out("get", "/data-exports/here.bin", str(tmp_path / "back.bin"))
    assert (tmp_path / "back.bin").read_bytes() == data
    listed = json.loads(out("ls", "-R", "--json"))
    assert [one["path"] for one in listed if one["kind"] == "file"] == ["/data-exports/here.bin", "/memories/notes.md"]
    assert out("grep", "-E", r"\d+") == "/memories/notes.md:1:total: 13\n"
    out("grep", "nowhere", code=1)
    assert "/memories/notes.md" in out("search", "total")
    out("undo", "/memories/notes.md")
    out("mv", "/memories/notes.md", "/memories/old.md")
    assert out("cat", "/memories/old.md") == "total: 12\n"
    out("rm", "-r", "/data-exports")
    assert json.loads(out("usage", "--json"))["files"] == 1
    ended = hutch.run("drive", "get", "/nope", str(tmp_path / "nope"), *me)
    assert ended.returncode != 0
    assert b"drive_file_not_found" in ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.bin", "data", "here.bin"]
