"""What a bridge may say, and how much of it is held. Pure."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from hutch.engine.interpreter.messages import LONGEST_LINE, Done, Lines, Text, read
from hutch.engine.interpreter.run import HEARD_BYTES, MOST_OUTPUTS, CodeRun
from hutch.model.code import CodeEvent
from hutch.model.limits import OUTPUT_BYTES

pytestmark = pytest.mark.once


def said(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def heard(*lines: bytes) -> CodeRun:
    run = CodeRun("c")
    for line in lines:
        if (message := read(line)) is not None:
            run.hear(message)
    run.finish()
    return run


def test_lines_are_whole_however_they_are_cut_and_long_ones_are_dropped() -> None:
    text = b"one\n" + b"x" * (LONGEST_LINE + 5) + b"\ntwo\n\nhalf"
    for size in (1 << 20, 65536, 7777):
        lines = Lines()
        found = [line for at in range(0, len(text), size) for line in lines.feed(text[at : at + size])]
        assert found == [b"one", b"two", b""]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"[" * 400_000,
        b"[1]",
        b'"stdout"',
        b"9" * 5000,
        said(type="stdout"),
        said(type="stdout", text=7),
        said(type="part", mime="a", text="b", json="yes"),
        said(type="error", name="a", value="b", traceback=["c"]),
        said(type="done", id="a", count="1", lost=False),
        said(type="dead"),
        said(type="nothing"),
        said(text="x"),
    ],
)
def test_what_no_bridge_of_ours_says_is_not_heard(line: bytes) -> None:
    assert read(line) is None


def test_what_a_bridge_of_ours_says_is_heard() -> None:
    assert read(said(type="stderr", text="é\ud800")) == Text("stderr", "é\ud800")
    assert read(said(type="done", id="a", count=None, lost=True)) == Done("a", None, True)


def test_a_bundle_is_put_together_and_numbers_stay_what_json_can_say() -> None:
    lines = [said(type="part", mime="image/png", text=piece, json=False) for piece in ("aGk", "=")]
    lines += [said(type="part", mime="application/json", text='{"a": [1, 2.5]}', json=True), said(type="result")]
    run = heard(*lines)
    assert run.outputs == [{"type": "result", "data": {"image/png": "aGk=", "application/json": {"a": [1, 2.5]}}}]
    for bad in ("NaN", "[1e999]", "-Infinity", "{", "[" * 100_000, "[" + "1," * 600_000 + "1]"):
        run = heard(said(type="part", mime="application/json", text=bad, json=True), said(type="display"))
        assert run.outputs == []
        assert run.truncated


def test_no_more_is_held_than_a_result_may_hold() -> None:
    piece = "x" * 32_000
    run = heard(*[said(type="stdout", text=piece)] * 400)
    assert run.result is not None
    assert len(run.result["stdout"]) == OUTPUT_BYTES
    assert run.truncated
    run = heard(*[said(type="part", mime="m", text=piece, json=False)] * 400, said(type="display"))
    assert len(run.outputs[0]["data"]["m"]) <= OUTPUT_BYTES
    run = heard(*[said(type="part", mime="m", text="x", json=False), said(type="display")] * (MOST_OUTPUTS + 5))
    assert len(run.outputs) == MOST_OUTPUTS
    run = heard(*[said(type="part", mime=f"m{at}", text="x", json=False) for at in range(90)], said(type="display"))
    assert len(run.outputs[0]["data"]) == 50
    run = heard(*[said(type="error", name=f"e{at}", value="", traceback="") for at in range(9)])
    assert run.error is not None
    assert run.error["name"] == "e0"
    assert CodeRun("c").room_for(HEARD_BYTES)
    assert not CodeRun("c").room_for(HEARD_BYTES + 1)


def test_only_who_knows_the_run_can_end_it() -> None:
    run = CodeRun("c")
    run.hear(Done("guessed", 1, False))
    assert not run.said.is_set()
    run.hear(Done(run.run_id, 1, False))
    assert run.said.is_set()


def test_who_follows_slowly_gets_all_of_it_in_few_pieces() -> None:
    async def follow(run: CodeRun) -> list[CodeEvent]:
        return [event async for event in run.events()]

    run = heard(*[said(type="stdout", text="a")] * 1000, said(type="stderr", text="b"), said(type="stdout", text="c"))
    events = asyncio.run(follow(run))
    assert [(one["type"], one["text"]) for one in events[:3]] == [
        ("stdout", "a" * 1000),
        ("stderr", "b"),
        ("stdout", "c"),
    ]
    assert events[-1]["result"] is not None
    assert events[-1]["result"]["stdout"] == "a" * 1000 + "c"
