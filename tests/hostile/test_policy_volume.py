"""Size, depth and noise: a judgement always comes, soon, and finds what hides in the mass."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hutch.policy import OPEN, STRICT, Verdict, judge
from tests.hostile import policy_corpora as corpora

pytestmark = pytest.mark.once

# A full-length command is judged in about a second here; on a busy machine it may take several times as long.
BOUND = 30.0
FULL = 131_000
HUGE = {
    "parens": "(" * 50_000 + ")" * 50_000,
    "open parens": "(" * 100_000,
    "subshells": "(" * 3000 + "ls" + ")" * 3000,
    "substitutions": "echo " + "$(echo " * 2000 + ")" * 2000,
    "open substitutions": "$(" * 50_000,
    "backquotes": "`" * 99_999,
    "quotes": '"' * 99_999,
    "expansions": "${x:-" * 20_000,
    "arithmetic": "echo $((" + "(" * 20_000 + "1" + ")" * 20_000 + "))",
    "here-document signs": "<<A " * 30_000,
    "here-documents": "cat <<A\nx\nA\n" * 8000,
    "here-strings": "cat <<< x\n" * 10_000,
    "if": "if " * 30_000,
    "ifs": "if ls; then " * 5000 + "ls; " + "fi; " * 5000,
    "nots": "! " * 50_000 + "ls",
    "braces": "{ " * 20_000 + "ls; " + "}; " * 20_000,
    "brace words": "echo " + "{a," * 20_000,
    "escapes": "echo " + "\\" * 100_000,
    "continuations": "echo " + "\\\n" * 60_000 + "x",
    "one word": "echo " + "a" * 120_000,
    "comments": "# rm x\n" * 15_000,
    "functions": "".join(f"f{number}() {{ f{number}; }}; " for number in range(4000)),
    "assignments": "x=$x$y; y=$x$x; " * 7000 + 'find "$x"',
    "appends": "x+=a; " * 15_000 + 'find "$x"',
    "chain": "".join(f"x{number}=$x{number + 1}; " for number in range(6000)) + "find $x0",
    "choices": "for a in {}; do for b in {}; do for c in {}; do awk $a $b $c; done; done; done".format(
        *["1 2 3 4 5 6 7 8 9 " * 40] * 3
    ),
    "counting": "((x += 1)); " * 10_000,
    "sed": "sed '" + "s/a/b/;" * 15_000 + "' f",
    "sed brackets": "sed 's/" + "[" * 60_000 + "/x/' f",
    "awk": "awk '" + "/a/ { n++ } " * 9000 + "' f",
    "awk slashes": "awk '" + "/" * 100_000 + "' f",
    "awk patterns": "awk '" + "/[" * 60_000 + "' f",
    "awk quotes": "awk '" + '"\\\\' * 40_000 + "' f",
    "sed classes": "sed 's/" + "[[:" * 30_000 + "/x/' f",
    "awk brackets": "awk '/" + "[" * 60_000 + "/' f",
    "find": "find . " + "-exec ls {} + " * 8000,
    "nested find": "find . " + "-exec find " * 5000 + "{} +",
    "backslashes before quotes": "echo " + "\\'\"" * 30_000,
    "dollar": "echo " + "$" * 100_000,
    "elements": "x=(" + "a " * 50_000 + ")",
    "case": "case x in " + "a) ls;; " * 10_000 + "esac",
}


@pytest.mark.parametrize("profile", [STRICT, OPEN], ids=["strict", "open"])
@pytest.mark.parametrize("name", HUGE)
def test_huge_and_deep_text_is_judged_in_time(name: str, profile: object) -> None:
    command = HUGE[name][:FULL]
    started = time.monotonic()
    verdict = judge(command, STRICT if profile is STRICT else OPEN)
    assert time.monotonic() - started < BOUND
    assert isinstance(verdict, Verdict)


@pytest.mark.parametrize("count", [60, 10_000])
@pytest.mark.parametrize("joint", ["true; ", "true\n", "true && ", "ls | ", ": & "])
def test_a_payload_behind_many_commands_is_found(joint: str, count: int) -> None:
    assert judge(joint * count + "true", STRICT).allowed
    for payload in ("rm x", "find . -delete", "PATH=. ls", "$(rm x)"):
        verdict = judge(joint * count + payload, STRICT)
        assert not verdict.allowed
        assert "deep" not in verdict.reason


def test_a_payload_among_many_values_is_found() -> None:
    harmless = " ".join(f"dir{number}" for number in range(3000))
    assert not judge(f'for d in {harmless} -delete; do find "$d"; done', STRICT).allowed
    assert judge(f'for d in {harmless}; do find "$d"; done', STRICT).allowed


PIECES = [
    "'",
    '"',
    "`",
    "$",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    "|",
    "&",
    ";",
    "#",
    "\n",
    " ",
    "\\",
    "=",
    "!",
    "*",
    "~",
    "$(",
    "${",
    "<<E\n",
    "\nE\n",
    "<<<",
    "<(",
    "((",
    "))",
    "$((",
    "[[ ",
    " ]]",
    "\\\n",
    "$'",
    "rm x",
    "if ",
    "then ",
    "fi",
    "case x in ",
    "esac",
    "for i in a; do ",
    "done",
    "f() ",
    "time ",
    "\r",
    "\x00",
    "\x7f",
    "é",
    "\u2028",
    "x=",
    "ls ",
]
NOISE = settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
COMMANDS = [*corpora.ordinary(), *(text for row in corpora.hostile() for text in row.spellings)]


@NOISE
@given(st.text(max_size=300))
def test_any_text_gets_a_verdict(text: str) -> None:
    assert isinstance(judge(text, STRICT), Verdict)
    assert isinstance(judge(text, OPEN), Verdict)


@NOISE
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_heap_of_shell_signs_gets_a_verdict(text: str) -> None:
    assert isinstance(judge(text, STRICT), Verdict)
    assert isinstance(judge(text, OPEN), Verdict)


@NOISE
@given(st.sampled_from(COMMANDS), st.integers(0, 200), st.sampled_from(PIECES), st.integers(0, 5))
def test_any_damaged_command_gets_a_verdict(command: str, at: int, piece: str, cut: int) -> None:
    assert isinstance(judge(command[:at] + piece + command[at + cut :], STRICT), Verdict)


@NOISE
@given(st.sampled_from(COMMANDS), st.sampled_from(COMMANDS), st.sampled_from(["; ", "\n", " && ", " | "]))
def test_a_refused_command_stays_refused_in_company(first: str, second: str, joint: str) -> None:
    """Joining can only make text unreadable, never a bad command good, when the first one is whole."""
    if judge(first, STRICT).allowed and not first.rstrip(" ").endswith("\n") and "<<" not in first and "#" not in first:
        joined = judge(first + joint + second, STRICT)
        assert not joined.allowed or judge(second, STRICT).allowed
