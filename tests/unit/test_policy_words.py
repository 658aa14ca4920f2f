"""A word is read as bash reads it."""

from __future__ import annotations

import subprocess

import pytest

from hutch.policy.verdict import Refused
from hutch.policy.words import Hole, decode_ansi_c, hides_code, read_word

PLAIN = [
    "ls",
    "l''s",
    'l"s"',
    r"\ls",
    r"l\s",
    "'a b'",
    '"a b"',
    "''",
    '""',
    r'"a\"b"',
    r'"a\nb"',
    r"'a\nb'",
    '"a\\\nb"',
    "a\\\nb",
    r"$'a\tb'",
    r"$'\x41\102\u0043'",
    r"$'it\'s'",
    r"$'a\0b'c",
    r"$'\cA'",
    r"$'\q'",
    "a'b'\"c\"$'d'",
    "a#b",
    "{}",
    "a=b",
    r"\$x",
    r'"\$x"',
    r"'$x'",
    r"\`",
    "a$",
    '"a$"',
    "a]",
    "é日",
]


@pytest.mark.parametrize("raw", PLAIN)
def test_quotes_and_escapes_resolve_as_in_bash(raw: str) -> None:
    bash = subprocess.run(["bash", "-c", f"printf %s {raw}"], capture_output=True, timeout=30, check=True)
    assert read_word(raw, {}).literal == bash.stdout.decode()


@pytest.mark.parametrize("raw", ["*", "a?", "[ab]", "{a,b}", "{1..3}", "~", "~/x", "a{,b}c"])
def test_what_bash_makes_other_words_of_is_a_pattern(raw: str) -> None:
    assert read_word(raw, {}).pattern


@pytest.mark.parametrize("raw", ["'*'", '"{a,b}"', r"\*", "a~b", "{a}", "'~'"])
def test_quoted_patterns_are_text(raw: str) -> None:
    assert not read_word(raw, {}).pattern


@pytest.mark.parametrize("raw", ["$x", "`ls`", "$(ls)", "a;b", "a b", "a|b", "'open", '"open', "a>b", '"$(ls)"'])
def test_what_the_tree_did_not_announce_is_refused(raw: str) -> None:
    with pytest.raises(Refused):
        read_word(raw, {})


def test_an_expansion_is_a_hole() -> None:
    word = read_word('a"$x"b', {2: (4, Hole("simple_expansion", "$x", "x"))})
    assert word.literal is None
    assert word.text == "a\0b"
    assert [hole.variable for hole in word.holes] == ["x"]


def test_ansi_c_text_ends_at_a_nul() -> None:
    assert decode_ansi_c(r"a\0b") == "a"
    assert decode_ansi_c(r"\U00110000") == "\ufffd"


@pytest.mark.parametrize(
    ("text", "quoted", "hides"),
    [
        ("$(ls)", False, True),
        ("$(ls)", True, True),
        ("'$(ls)'", False, False),
        ("'$(ls)'", True, True),
        (r"\$(ls)", True, False),
        ("`ls`", True, True),
        ("${x}", True, False),
        ("${x:-a}", True, True),
        ("<(ls)", False, True),
        ("<(ls)", True, False),
        ("$x", True, False),
        ("$[1]", True, True),
        ("a(b)", False, False),
    ],
)
def test_hidden_substitutions_are_seen(text: str, quoted: bool, hides: bool) -> None:
    assert hides_code(text, quoted) is hides
