"""Every byte of a command is accounted for: by an operator of the tree, by a leaf that holds no hidden substitution, or
by white space that bash takes for white space. So a difference between grammar and bash ends in a refusal."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from hutch.policy.verdict import Refused
from hutch.policy.words import decode_ansi_c, hides_code

if TYPE_CHECKING:
    from tree_sitter import Node

CARRIAGE_RETURN = "it holds a carriage return, which bash takes for a letter"
_NEUTRAL = re.compile(r"[^'\"\\$`(){}\[\]]*")
_OPEN_QUOTE = re.compile(r"(?<!\\)(?:\\\\)*\"")
_PROCESS = re.compile(r"[<>]\(")
_BLANK = re.compile(rb"(?:[ \t\n]|\\\n)*\Z")
_DESCRIPTOR = re.compile(rb"\{[A-Za-z_]\w*(?:\[.*)?\}", re.DOTALL)
_REDIRECTS = re.compile(rb"(?:\\\n)*[<>]")
_ONE_LINE = frozenset(
    "command declaration_command unset_command redirected_statement file_redirect negated_command".split()
)
_BEFORE_COMMENT = frozenset({b"", b" ", b"\t", b"\n", b";", b"&", b"|", b"(", b")"})


def check_gaps(masked: bytes, node: Node) -> None:
    """What lies between a node's children must be blank (or quoted text). Raises: Refused."""
    children = node.children
    quoted = node.type in ("string", "heredoc_body")
    at = node.start_byte
    for child in children:
        start = child.start_byte
        if start > at:
            _check_gap(masked[at:start], quoted, masked, node)
        at = child.end_byte
    if node.end_byte > at:
        _check_gap(masked[at : node.end_byte], quoted, masked, node)


def _check_gap(gap: bytes, quoted: bool, masked: bytes, node: Node) -> None:
    if gap == b" ":
        return
    text = masked[node.start_byte : node.start_byte + 200].decode(errors="replace")
    if quoted and hides_code(gap.decode(errors="replace"), True):
        raise opaque(text)
    if not quoted and not _BLANK.match(gap):
        raise _bad_blank(gap, text)
    if node.type in _ONE_LINE and b"\n" in gap.replace(b"\\\n", b""):
        raise Refused(
            text.strip()[:60], "a line ends inside what looks like one command", "join its lines, or divide it"
        )


def check_joined(source: bytes, node: Node) -> None:
    """The parts of a word touch each other; the grammar lets blanks in (`A=$ ls` runs ls). Raises: Refused."""
    parts = node.children
    if any(behind.start_byte != part.end_byte for part, behind in pairwise(parts)):
        word = source[node.start_byte : node.end_byte].decode(errors="replace")
        raise Refused(word[:60], "a blank divides what looks like one word", "quote the word, or leave the blank out")


def check_descriptor(source: bytes, start: int, end: int) -> None:
    """`{name}>file` is no word: bash gives the variable a descriptor's number, and calculates its subscript.

    Raises: Refused.
    """
    written = source[start:end].replace(b"\\\n", b"")
    if _DESCRIPTOR.fullmatch(written) and _REDIRECTS.match(source, end):
        word = written.decode(errors="replace")
        raise Refused(word[:60], "bash would open this redirection under a variable", "write a number: 3>file")


def check_edges(masked: bytes, root: Node) -> None:
    """What lies before and behind the tree must be blank. Raises: Refused."""
    for edge in (masked[: root.start_byte], masked[root.end_byte :]):
        if not _BLANK.match(edge):
            raise _bad_blank(edge, masked.decode(errors="replace"))


def check_leaf(kind: str, text: str, expanding: bool) -> list[str]:
    """The quoted data a leaf holds; `expanding`: bash may expand there whatever quotes say. Raises: Refused."""
    if kind == "string_content":
        hidden = hides_code(text, True) or _OPEN_QUOTE.search(text) is not None
    elif kind in ("heredoc_content", "heredoc_body"):
        hidden = hides_code(text, True)
    elif kind in ("raw_string", "ansi_c_string"):
        # Whether these quotes count here differs from case to case; the text must mean the same either way.
        hidden = expanding and _NEUTRAL.fullmatch(text.strip("$'")) is None
    else:
        # <(…) counts in ${x:-<(…)} and not in quotes; it is refused in both.
        hidden = ("$" in text or "`" in text or "(" in text) and (
            hides_code(text, expanding) or (expanding and _PROCESS.search(text) is not None)
        )
    if hidden:
        raise opaque(text)
    if kind == "ansi_c_string":
        return [decode_ansi_c(text[2:-1])]
    if kind == "raw_string":
        return [text]
    return [text.replace("\\", "")] if "\\" in text else []


def check_comment(text: str, before: bytes, expanding: bool) -> None:
    """`before`: the two bytes in front of it. Raises: Refused."""
    if expanding or before[-1:] not in _BEFORE_COMMENT:
        raise Refused(text[:60], "this # may or may not start a comment", "quote it, or leave it out")
    if before == b"\\\n":
        raise Refused(text[:60], "a comment follows a continued line", "leave the comment out")


def opaque(text: str) -> Refused:
    hint = 'put the inner command into a variable first: x=$(…), then use "$x"'
    return Refused(text[:60], "a substitution stands where it cannot be judged", hint)


def _bad_blank(gap: bytes, text: str) -> Refused:
    word = text.strip()[:60]
    if b"\r" in gap:
        return Refused(word, CARRIAGE_RETURN, "end lines with \\n alone")
    shown = gap.decode(errors="replace").strip(" ")
    return Refused(word, f"it holds {shown!r} where a blank is meant", "use plain blanks and ASCII operators")
