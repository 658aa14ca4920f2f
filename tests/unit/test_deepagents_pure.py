"""Pages, edits and what a search found, without a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from deepagents.backends.protocol import ReadResult
from deepagents.backends.sandbox import MAX_BINARY_BYTES, MAX_OUTPUT_BYTES, TRUNCATION_MSG
from hypothesis import given, settings
from hypothesis import strategies as st

from hutch.model.errors import InvalidRequest
from hutch.model.files import FileInfo
from hutch.tools.any_path import mode_of
from hutch.tools.deepagents.edits import EditRefused, edited
from hutch.tools.deepagents.found import fitting, globbed, grepped
from hutch.tools.deepagents.page import read_page
from hutch.tools.deepagents.words import error_word

pytestmark = pytest.mark.once
MIB = 1024 * 1024


def page(raw: bytes, offset: int = 0, limit: int = 100, *, piece: int = MIB, name: str = "/a.txt") -> ReadResult:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(raw), piece):
            yield raw[start : start + piece]

    return asyncio.run(read_page(pieces(), name, offset, limit))


def content(result: ReadResult) -> str:
    assert result.file_data is not None, result
    return result.file_data["content"]


@given(
    st.text(alphabet="ab\n\r\u00e9\U0001f600", max_size=60), st.integers(-1, 12), st.integers(1, 12), st.integers(1, 9)
)
@settings(deadline=None, max_examples=300)
def test_a_page_is_the_lines_that_were_asked_for_however_the_bytes_come(
    text: str, offset: int, limit: int, piece: int
) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    result = page(text.encode(), offset, limit, piece=piece)
    start = max(offset, 0)
    if not text:
        assert "empty" in content(result)
    elif start >= len(lines):
        assert result.error is not None
        assert f"({len(lines)} lines)" in result.error
    else:
        wanted = lines[start : start + limit]
        assert content(result) == "\n".join(wanted)
        assert (result.start_line, result.end_line) == (start + 1, start + len(wanted))
        assert result.total_lines == len(lines)
        assert result.next_offset == (result.end_line if start + len(wanted) < len(lines) else None)


def test_a_long_page_is_cut_and_reading_goes_on_where_it_was() -> None:
    lines = [f"{number:07d} " + "x" * 1000 for number in range(2000)]
    raw = "\n".join(lines).encode()
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        result = page(raw, offset, 2000)
        text = content(result)
        assert len(text.encode()) <= MAX_OUTPUT_BYTES
        assert result.end_line is not None
        whole = text.removesuffix(TRUNCATION_MSG).split("\n")[: result.end_line - offset]
        seen += whole
        offset = result.next_offset
    assert seen == lines


def test_a_line_that_fits_no_page_is_passed_over() -> None:
    result = page(b"x" * (3 * MIB) + b"\nlast\n", 0, 10)
    assert (result.start_line, result.end_line, result.next_offset) == (1, 1, 1)
    assert content(page(b"x" * (3 * MIB) + b"\nlast\n", 1, 10)) == "last"


def test_no_lines_are_an_empty_page_that_says_so() -> None:
    result = page(b"a\nb\n", 0, 0)
    assert content(result) == ""
    assert result.no_lines_requested
    assert result.start_line is None


@pytest.mark.parametrize(
    ("raw", "name"),
    [(b"\x89PNG", "/a.png"), (b"plain", "/a.PDF"), (b"\xff\xfe\x00a", "/a.txt"), (b"a\xb5b", "/gbk.txt")],
)
def test_what_is_no_text_comes_as_base64(raw: bytes, name: str) -> None:
    result = page(raw, name=name)
    assert result.file_data is not None
    assert result.file_data["encoding"] == "base64"
    assert result.start_line is None


def test_large_binaries_are_refused_and_broken_text_is_shown() -> None:
    refused = page(b"\xff" * (MAX_BINARY_BYTES + 1))
    assert refused.error is not None
    assert str(MAX_BINARY_BYTES) in refused.error
    cut = "é".encode() * 5000  # the sniffed part ends within a character
    assert content(page(b"a" + cut)) == "a" + "é" * 5000
    assert "\ufffd" in content(page(b"a" * 9000 + b"\xff\nb"))


def test_edits_keep_the_ends_of_lines() -> None:
    assert edited(b"a\r\nb\r\nc", "a\nb", "x\ny\nz", replace_all=False) == (b"x\r\ny\r\nz\r\nc", 1)
    assert edited(b"a\nb", "a\r\nb", "c\r\nd", replace_all=False) == (b"c\nd", 1)
    assert edited("é a a".encode(), "a", "\U0001f600", replace_all=True) == ("é \U0001f600 \U0001f600".encode(), 2)


@pytest.mark.parametrize(
    ("raw", "old", "code"),
    [(b"a a", "a", "multiple_occurrences"), (b"a", "b", "string_not_found"), (b"\xff", "a", "not_a_text_file")],
)
def test_edits_that_are_refused(raw: bytes, old: str, code: str) -> None:
    with pytest.raises(EditRefused) as refused:
        edited(raw, old, "x", replace_all=False)
    assert refused.value.code == code
    assert refused.value.result("/f", old).error


def test_matches_are_read_whatever_names_and_lines_hold() -> None:
    printed = "/w/a:b\n1:x\0003:one: two\n/w/-rf\0" + "12:\n/w/last\0004:no end"
    found = grepped(printed, None, cut=False).matches
    assert found is not None
    assert [(match["path"], match["line"], match["text"]) for match in found] == [
        ("/w/a:b\n1:x", 3, "one: two"),
        ("/w/-rf", 12, ""),
        ("/w/last", 4, "no end"),
    ]
    capped = grepped(printed, 2, cut=False)
    assert capped.matches is not None
    assert (len(capped.matches), capped.truncated) == (2, True)
    assert not grepped(printed, 3, cut=False).truncated
    cut = grepped(printed, None, cut=True)
    assert cut.matches is not None
    assert (len(cut.matches), cut.truncated) == (2, True)
    assert grepped("nonsense without an end", None, cut=False).matches == []
    assert grepped("name\0no number", None, cut=False).matches == []


def entry(path: str, kind: str = "file", target: str | None = None) -> FileInfo:
    return {
        "path": path,
        "name": path.rsplit("/", 1)[-1],
        "kind": kind,  # type: ignore[typeddict-item]  # one of its words
        "size_bytes": 1,
        "modified": "",
        "permissions": "-rw-r--r--",
        "target": target,
    }


def test_links_count_when_they_lead_to_a_file_below_the_root() -> None:
    tree = [
        entry("d", "directory"),
        entry("d/file.txt"),
        entry("d/good.txt", "symlink", "file.txt"),
        entry("d/twice.txt", "symlink", "./good.txt"),
        entry("d/out.txt", "symlink", "../top.txt"),
        entry("d/away.txt", "symlink", "/etc/passwd"),
        entry("d/ring.txt", "symlink", "ring.txt"),
        entry("d/gone.txt", "symlink", "missing"),
    ]
    found = globbed(tree, "/workspace/d", fitting("*.txt")).matches
    assert found is not None
    assert [one["path"].rsplit("/", 1)[1] for one in found] == ["file.txt", "good.txt", "twice.txt"]


def test_patterns_that_climb_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="traversal"):
        fitting("../*.py")


def test_permissions_and_words() -> None:
    assert [mode_of(text) for text in ("-rwxr-xr-x", "-rw-------", "-rwsr-Sr-T", "----------")] == [
        0o755,
        0o600,
        0o744,
        0,
    ]
    assert error_word(PermissionError("x")) == "permission_denied"
    assert error_word(IsADirectoryError("x")) == "is_directory"
    assert error_word(InvalidRequest("why")) == "invalid_request: why"
