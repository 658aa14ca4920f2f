"""What tools make of texts, patterns, keys and arguments: pure."""

from __future__ import annotations

import time
from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from hutch.model.errors import ERRORS, InvalidRequest, PathRejected
from hutch.tools.answers import MODEL_BYTES, cut, shown
from hutch.tools.arguments import schema_of
from hutch.tools.egress import is_outside
from hutch.tools.globbing import matcher
from hutch.tools.keys import key_events, text_events
from hutch.tools.mcp_servers import read_servers
from hutch.tools.workspace import resolve_path


class TestLongTexts:
    @pytest.mark.parametrize("character", ["x", "é", "€", "🎈"])
    def test_no_character_is_cut_in_two(self, character: str) -> None:
        text = character * 500
        for most in range(20, 60):
            part = shown(text, most)
            assert part.head == character * len(part.head)
            assert part.tail == character * len(part.tail)
            assert len((part.head + part.tail).encode()) <= most
            assert part.left_out == len(text.encode()) - len((part.head + part.tail).encode())

    def test_what_fits_stays(self) -> None:
        text = "é" * (MODEL_BYTES // 2)
        assert cut(text, "more") is text
        assert "[… 2 bytes" in cut(text + "é", "more") or "bytes are left out here. more …]" in cut(text + "é", "more")
        assert cut("a\0b" * 50_000, "more").count("left out") == 1


class TestPatterns:
    @pytest.mark.parametrize(
        ("pattern", "path", "matches"),
        [
            ("*.py", "a/b.py", True),
            ("*.py", "a/b.pyc", False),
            ("a/*.py", "a/b.py", True),
            ("a/*.py", "a/c/b.py", False),
            ("**/*.py", "b.py", True),
            ("a/**/*.py", "a/b.py", True),
            ("a/**/b/**/*.py", "a/x/b/y/z.py", True),
            ("a/**", "a/b/c", True),
            ("**", "a", True),
            ("a/[bc].t?t", "a/b.txt", True),
        ],
    )
    def test_they_match(self, pattern: str, path: str, matches: bool) -> None:
        assert matcher(pattern)(path) is matches

    @pytest.mark.parametrize("pattern", ["", "/", "/a", "../a", "a/../b", "a/" * 100])
    def test_some_are_none(self, pattern: str) -> None:
        with pytest.raises(InvalidRequest):
            matcher(pattern)

    def test_none_takes_long(self) -> None:
        started = time.monotonic()
        deep = "/".join(["a"] * 2000)
        assert not matcher("/".join(["**", "a"] * 30 + ["b"]))(deep)
        assert not matcher("*a" * 40 + "b")("a" * 255)
        assert time.monotonic() - started < 20


@pytest.mark.parametrize("path", ["/workspace10", "/workspace/../workspace10/a", "//etc", "/", "a/../../b", "\0", ""])
def test_paths_that_lead_out(path: str) -> None:
    with pytest.raises(PathRejected):
        resolve_path(path)


@pytest.mark.parametrize(
    ("url", "outside"),
    [
        ("https://example.com/a.git", True),
        ("git@example.com:a.git", True),
        ("origin", True),
        ("http://localhost:80", False),
        ("http://127.0.0.1/", False),
        ("/workspace/up.git", False),
        ("../up", False),
        ("http://[", True),
    ],
)
def test_what_may_lie_outside(url: str, outside: bool) -> None:
    assert is_outside(url) is outside


class TestKeys:
    def test_a_chord_goes_down_and_up_again(self) -> None:
        events = key_events(["ctrl", "Shift", "a"])
        assert [(event["type"], event["key"], event["modifiers"]) for event in events] == [
            ("keyDown", "Control", 2),
            ("keyDown", "Shift", 10),
            ("keyDown", "a", 10),
            ("keyUp", "a", 10),
            ("keyUp", "Shift", 2),
            ("keyUp", "Control", 0),
        ]
        assert all("text" not in event for event in events)

    def test_text_and_the_ends_of_its_lines(self) -> None:
        assert [event.get("text", "") for event in text_events("a\nb")] == ["a", "\r", "", "b"]
        assert key_events(["x"])[0]["text"] == "x"
        with pytest.raises(InvalidRequest, match="There is no key"):
            key_events(["Anykey"])


class TestArguments:
    async def function(
        self,
        names: Annotated[list[str] | None, "Names"] = None,
        more: dict[str, Any] | None = None,
        runtime: Any = None,
    ) -> None: ...

    def test_what_can_only_be_meant_in_one_way(self) -> None:
        schema = schema_of(self.function)
        for given in ("a", ["a"], '["a"]'):
            assert schema(names=given).names == ["a"]  # type: ignore[attr-defined]
        assert schema(names="[not json").names == ["[not json"]  # type: ignore[attr-defined]
        assert schema(more='{"a": 1}').more == {"a": 1}  # type: ignore[attr-defined]
        assert schema.model_json_schema()["properties"]["names"]["description"] == "Names"
        for wrong in ({"names": 5}, {"names": [5]}, {"more": "text"}, {"unknown": 1}):
            with pytest.raises(ValidationError):
                schema(**wrong)


class TestMcpServers:
    def test_the_usual_form(self) -> None:
        servers = read_servers(
            {"a": {"command": "x", "args": ["y"], "type": "stdio"}, "b": {"url": "http://b", "headers": {"K": "s"}}}
        )
        assert (servers["a"].command, servers["b"].url) == (("x", "y"), "http://b")
        assert "s" not in repr(servers["b"]).replace("servers", "").partition("url")[2]

    @pytest.mark.parametrize(
        "entry",
        [
            {},
            {"command": "x", "url": "http://y"},
            {"command": "x", "args": "y"},
            {"command": 5},
            {"command": "x", "cwd": "/"},
        ],
    )
    def test_others_are_refused(self, entry: dict[str, Any]) -> None:
        with pytest.raises(InvalidRequest, match="MCP server 'a'"):
            read_servers({"a": entry})


def test_names_that_older_programs_catch() -> None:
    import hutch.tools as tools

    for name in ("SandboxError", "SandboxConnectionError", "SandboxNotRunningError", "SandboxTimeoutError"):
        assert getattr(tools, name) in ERRORS.values()
    assert set(tools.__all__) <= set(dir(tools))
    assert all(getattr(tools, name) is not None for name in tools.__all__)
