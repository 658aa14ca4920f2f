"""Bash text to a syntax tree that can be trusted.

The grammar has gaps and reads a few things otherwise than bash. So the text is first **masked**: spellings it stumbles
over are replaced by others of the same length and meaning, and here-documents are **lifted** out. A lifted
here-document leaves `< placeholder` behind, and the tree must then show a redirection exactly there, outside any
quote or comment, and a real end of line behind it: since all text before it is unchanged, bash saw an operator there.
Backquotes are written as $(…) in the same way, checked against the tree in the same way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hutch.policy.verdict import Refused

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

MAX_HERE_DOCS = 64
MAX_HERE_OPERATORS = 1000
MAX_BACKQUOTES = 500
_PLACEHOLDER = b"hutch-here-document-"
_MAX_READINGS = 12

_HERE_STRING = re.compile(rb"(?<![<\\])<<<(?!<)")
_READ_WRITE = re.compile(rb"(?<![<>\\])<>(?![&>])")
_BRACKET = re.compile(rb"(?:(?<=[\s;&|(){}!`])|\A)\[(?=[ \t])")
_FOR_DO = re.compile(rb"(?<![^\s;&|(){}])(for[ \t]+[A-Za-z_]\w*) (do\s)")
_ESCAPED_BLANK = re.compile(rb"(?<!\\)((?:\\\\)*\\)[ \t]")
_SLICE_START = re.compile(rb"(\$\{\w+(?:\[[@*]\])?:)\$(?=[A-Za-z_])")
_NUMBER_BASE = re.compile(rb"(?<![$\w])(\d+)#(?=\$)")
_ESCAPED_SIGN = re.compile(rb"\\[$`\\]")
_BACKQUOTES = re.compile(rb"(?<![\\$])`([^`\\#]*)`")
_HERE_DOC = re.compile(
    rb"(?<![<\\])<<(?P<dash>-?)[ \t]*(?P<end>(?:'[^'\n]*'|\"[^\"\n\\$`]*\"|\\[^\n]|[^\s'\"\\<>|&;()$`#])+)"
)
# Where a line may end between commands; inside anything else a newline is text.
_LINE_PLACES = frozenset(
    "program \n list pipeline do_group compound_statement subshell command_substitution process_substitution "
    "if_statement elif_clause else_clause case_item case_statement while_statement for_statement "
    "c_style_for_statement redirected_statement command function_definition negated_command declaration_command "
    "file_redirect test_command".split(" ")
)


@dataclass(frozen=True, slots=True)
class HereDoc:
    body: str
    expands: bool


@dataclass(frozen=True, slots=True)
class Script:
    """`source` has the here-documents lifted out; `masked` is what the tree was made from, byte for byte as long."""

    source: bytes
    masked: bytes
    root: Node
    here_docs: tuple[HereDoc, ...]


@dataclass(frozen=True, slots=True)
class _Tick:
    start: int
    end: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class _Lift:
    origin: int  # of the operator, in the text before; only tells one from another
    doc: HereDoc


def parse_tree(text: bytes) -> Tree:
    """The parser has no time limit that works, so what it is slow at is refused first.

    Raises: Refused.
    """
    import tree_sitter  # late: importing hutch stays quick
    import tree_sitter_bash

    if text.count(b"<<") > MAX_HERE_OPERATORS:
        raise Refused("<<", "it has too many here-document signs to be read in time", "upload a script instead")
    # Making both costs less than a microsecond, and no parser is then shared between threads.
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    return parser.parse(text)


def parse(command: str) -> Script:
    """Raises: Refused when the text is not bash, or cannot be read reliably."""
    text = command.encode()
    no_here_docs: set[int] = set()
    no_backquotes: set[int] = set()
    for _ in range(_MAX_READINGS):
        lifted, lifts = _lift(text, no_here_docs)
        source, ticks = _modernise(lifted, no_backquotes)
        masked = _mask(source)
        root = parse_tree(masked).root_node
        if wrong := {tick.ordinal for tick in ticks if not _substitutes(root, tick)}:
            no_backquotes |= wrong
        elif wrong := {lift.origin for number, lift in enumerate(lifts) if not _stands(root, source, number)}:
            no_here_docs |= wrong
            no_backquotes.clear()
        elif root.has_error:
            raise _syntax_error(root, source)
        else:
            return Script(source, masked, root, tuple(lift.doc for lift in lifts))
    raise Refused(_excerpt(text), "its here-documents or backquotes cannot be told from text", "write it more simply")


def parse_here_doc(body: str) -> Script:
    """A here-document's body whose expansions bash performs."""
    text = b"cat <<HUTCH_END\n" + body.encode() + b"\nHUTCH_END\n"
    skip: set[int] = set()
    for _ in range(_MAX_READINGS):
        source, ticks = _modernise(text, skip)
        # `\$` and its like are text; the grammar trips over them here.
        masked = _ESCAPED_SIGN.sub(b"__", source)
        root = parse_tree(masked).root_node
        wrong = {tick.ordinal for tick in ticks if not _substitutes(root, tick)}
        if wrong:
            skip |= wrong
        elif root.has_error or "\nHUTCH_END\n" in f"\n{body}\n":
            raise _syntax_error(root, source)
        else:
            return Script(source, masked, root, ())
    raise Refused(_excerpt(body.encode()), "its backquotes cannot be told from text", "write $(…) instead of `…`")


def without_here_docs(command: str) -> str:
    """The text with everything that looks like a here-document taken out."""
    try:
        return _lift(command.encode(), set())[0].decode(errors="replace")
    except Refused:
        return command


def _mask(source: bytes) -> bytes:
    text = _HERE_STRING.sub(b"<  ", source)
    text = _READ_WRITE.sub(b">>", text)
    text = _FOR_DO.sub(rb"\1;\2", text)
    text = _ESCAPED_BLANK.sub(rb"\1_", text)
    text = _SLICE_START.sub(rb"\1 ", text)
    text = _NUMBER_BASE.sub(rb"\1+", text)
    # `[` is a command whose last argument is `]`, not syntax; the grammar takes it for syntax.
    return _BRACKET.sub(b"_", text)


def _modernise(text: bytes, skip: set[int]) -> tuple[bytes, list[_Tick]]:
    """Write `…` as $(…), which means the same where no backslash is inside; the tree must then show it so."""
    ticks: list[_Tick] = []
    pieces: list[bytes] = []
    at = length = 0
    for ordinal, match in enumerate(_BACKQUOTES.finditer(text)) if b"`" in text else ():
        if ordinal in skip:
            continue
        pieces += (text[at : match.start()], b"$(" + match[1] + b")")
        start = length + match.start() - at
        length = start + len(pieces[-1])
        ticks.append(_Tick(start, length, ordinal))
        at = match.end()
    if len(ticks) > MAX_BACKQUOTES:
        raise Refused("`", f"it has more than {MAX_BACKQUOTES} backquoted commands", "write $(…) instead of `…`")
    return b"".join(pieces) + text[at:], ticks


def _lift(text: bytes, skip: set[int]) -> tuple[bytes, list[_Lift]]:
    """Take the bodies out, in the order bash reads them: the first operator's body comes first below its line."""
    lifts: list[_Lift] = []
    search, removed = 0, 0
    while b"<<" in text and (match := _HERE_DOC.search(text, search)):
        search = match.end()
        origin = match.start() + removed
        if origin in skip or (found := _body(text, match)) is None:
            continue
        newline, end, doc = found
        mark = _mark(len(lifts))
        lifts.append(_Lift(origin, doc))
        before = len(text)
        text = text[: match.start()] + mark + text[match.end() : newline] + text[end:]
        removed += before - len(text)
        search = match.start() + len(mark)
        if len(lifts) > MAX_HERE_DOCS:
            raise Refused("<<", f"it has more than {MAX_HERE_DOCS} here-documents", "upload a script instead")
    return text, lifts


def _body(text: bytes, match: re.Match[bytes]) -> tuple[int, int, HereDoc] | None:
    """Where its line ends, where its body ends, and the body; None when there is no such end."""
    written = match["end"]
    delimiter = re.sub(rb"'([^']*)'|\"([^\"]*)\"|\\(.)", rb"\1\2\3", written)
    expands = delimiter == written
    newline = text.find(b"\n", match.end())
    if newline < 0:
        return None
    at, joined = newline + 1, False
    while at <= len(text):
        end = text.find(b"\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end]
        if not joined and (line.lstrip(b"\t") if match["dash"] else line) == delimiter:
            body = text[newline + 1 : max(at - 1, newline + 1)]
            return newline, end, HereDoc(body.decode(errors="replace"), expands)
        # A backslash at its end joins a line to the next one, whose text then ends nothing.
        joined = expands and (len(line) - len(line.rstrip(b"\\"))) % 2 == 1
        at = end + 1
    return None


def _mark(number: int) -> bytes:
    return b"< " + _PLACEHOLDER + b"%03d" % number


def _stands(root: Node, source: bytes, number: int) -> bool:
    """Whether the tree shows a redirection where the operator was, and a real end of line behind it."""
    at = source.find(_mark(number))
    node = root.descendant_for_byte_range(at, at + 1)
    if source.count(_mark(number)) != 1 or node is None or node.type != "<":
        return False
    if node.parent is None or node.parent.type != "file_redirect":
        return False
    newline = source.find(b"\n", at)
    if newline < 0:
        return _substitution_around(node) is None
    place = root.descendant_for_byte_range(newline, newline + 1)
    if source[newline - 1 : newline] == b"\\" or (place is not None and place.type not in _LINE_PLACES):
        return False
    return _substitution_around(node) == _substitution_around(place)  # bash ends a body with the $(…) it began in


def _substitution_around(node: Node | None) -> int | None:
    while node is not None and node.type not in ("command_substitution", "process_substitution"):
        node = node.parent
    return node.id if node is not None else None


def _substitutes(root: Node, tick: _Tick) -> bool:
    node = root.descendant_for_byte_range(tick.start, tick.end)
    return node is not None and node.type == "command_substitution" and node.start_byte == tick.start


def _syntax_error(root: Node, source: bytes) -> Refused:
    node = _first_error(root)
    at = node.start_byte if node else 0
    line = source.count(b"\n", 0, at) + 1
    word = _excerpt(source[at:]) or _excerpt(source)
    return Refused(word, f"it is not bash that can be read (line {line})", "check quotes, brackets and keywords")


def _first_error(root: Node) -> Node | None:
    node = root
    while not (node.is_error or node.is_missing):
        below = next((child for child in node.children if child.has_error or child.is_missing), None)
        if below is None:
            return None if node is root else node
        node = below
    return node


def _excerpt(text: bytes) -> str:
    return text[:200].decode(errors="replace").strip().split("\n")[0][:60]
