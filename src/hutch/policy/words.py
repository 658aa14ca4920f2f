"""One word of a command, as bash reads it: quotes removed, escapes resolved, expansions kept as holes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from hutch.policy.verdict import Refused

_META = frozenset(" \t\n;|&<>()")
_SIMPLE_EXPANSION = re.compile(r"\$\{[A-Za-z0-9_]+\}")
_MANY = re.compile(r"\$\{?(?:[@*]|\w+\[[@*]\])\}?")
_HIDDEN = re.compile(r"\$[A-Za-z0-9_{(\[@*#?$!-]")
_BARE = re.compile(r"[A-Za-z0-9_./,:=+@%-]+")
_ANSI_BODY = re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL)
_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_ANSI = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{1,2})|u(?P<u4>[0-9A-Fa-f]{1,4})|U(?P<u8>[0-9A-Fa-f]{1,8})"
    r"|c(?P<control>.)|(?P<simple>[abeEfnrtv\\'\"?]))",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Hole:
    """An expansion in a word. `variable` names it when it is a plain `$x`, `${x}` or `${x[@]}`."""

    kind: str
    text: str
    variable: str | None = None
    quoted: bool = False  # bash does not split what it becomes

    @property
    def many(self) -> bool:
        """Whether it becomes as many words as there are values, or none: `$@`, `${a[@]}`."""
        return _MANY.fullmatch(self.text) is not None


@dataclass(frozen=True, slots=True)
class Word:
    raw: str
    pieces: tuple[str | Hole, ...]
    pattern: bool  # an unquoted glob, brace or tilde: bash makes other words of it
    braces: bool

    @property
    def literal(self) -> str | None:
        """Its text, or None when an expansion decides it."""
        if all(isinstance(piece, str) for piece in self.pieces):
            return "".join(str(piece) for piece in self.pieces)
        return None

    @property
    def text(self) -> str:
        """Its text with a NUL for each expansion (no argument can hold one)."""
        return "".join(piece if isinstance(piece, str) else "\0" for piece in self.pieces)

    @property
    def holes(self) -> tuple[Hole, ...]:
        return tuple(piece for piece in self.pieces if isinstance(piece, Hole))


def decode_ansi_c(body: str) -> str:
    """The text of `$'body'`. A NUL ends it, as in bash."""

    def character(match: re.Match[str]) -> str:
        kind, digits = match.lastgroup, match.group(match.lastgroup or 0)
        if kind == "simple":
            return _SIMPLE_ESCAPES[digits]
        if kind == "control":
            return chr(ord(digits.upper()) & 0x1F)
        code = int(digits, 8 if kind == "octal" else 16)
        code = code & 0xFF if kind == "octal" else code
        return chr(code) if code < 0x110000 else "\ufffd"

    return _ANSI.sub(character, body).partition("\0")[0]


class _Scanner:
    """Removes quotes from `raw`, whose expansions lie at known places."""

    def __init__(self, raw: str, holes: dict[int, tuple[int, Hole]]) -> None:
        self.raw = raw
        self.holes = holes
        self.pieces: list[list[str] | Hole] = []  # text is joined at the end: a word may be very long
        self.plain: list[str] = []  # the text with every quoted character blanked, to find patterns in
        self.quoted = False

    def put(self, text: str, active: bool) -> None:
        last = self.pieces[-1] if self.pieces else None
        if isinstance(last, list):
            last.append(text)
        else:
            self.pieces.append([text])
        self.plain.append(text if active else "\0" * len(text))

    def refuse(self) -> Refused:
        return Refused(self.raw, "this word cannot be read reliably", "write it more simply, with plain quotes")

    def scan(self) -> Word:
        at = 0
        while at < len(self.raw):
            if at in self.holes:
                at, hole = self.holes[at]
                self.pieces.append(replace(hole, quoted=self.quoted))
                self.plain.append("\0")
                continue
            at = self.inside_quotes(at) if self.quoted else self.outside_quotes(at)
        if self.quoted:
            raise self.refuse()
        plain = "".join(self.plain)
        inside = plain[plain.find("{") : plain.rfind("}") + 1]
        braces = inside.startswith("{") and ("," in inside or ".." in inside)
        pattern = braces or any(sign in plain for sign in "*?[") or plain.startswith("~")
        pieces = tuple(piece if isinstance(piece, Hole) else "".join(piece) for piece in self.pieces)
        return Word(self.raw, pieces, pattern, braces)

    def inside_quotes(self, at: int) -> int:
        char = self.raw[at]
        if char == '"':
            self.quoted = False
            return at + 1
        if char == "\\" and self.raw[at + 1 : at + 2] in set('$`"\\\n'):
            if self.raw[at + 1] != "\n":
                self.put(self.raw[at + 1], False)
            return at + 2
        if self.hidden(at):
            raise self.refuse()
        self.put(char, False)
        return at + 1

    def outside_quotes(self, at: int) -> int:
        raw, char = self.raw, self.raw[at]
        if char == '"' or raw.startswith('$"', at):
            self.quoted = True
            if not self.pieces:
                self.put("", False)
            return at + (1 if char == '"' else 2)
        if char == "'":
            end = raw.find("'", at + 1)
            return self.quote(raw[at + 1 : end], end)
        if raw.startswith("$'", at):
            found = _ANSI_BODY.match(raw, at + 2)
            end = found.end() if found else -1
            return self.quote(decode_ansi_c(raw[at + 2 : end]), end if raw[end : end + 1] == "'" else -1)
        if char == "\\":
            if raw[at + 1 : at + 2] not in ("\n", ""):
                self.put(raw[at + 1], False)
            return at + 2
        if char in _META or self.hidden(at):
            raise self.refuse()
        self.put(char, True)
        return at + 1

    def quote(self, text: str, end: int) -> int:
        if end < 0:
            raise self.refuse()
        self.put(text, False)
        return end + 1

    def hidden(self, at: int) -> bool:
        """An expansion that the tree does not know of."""
        return self.raw[at] == "`" or bool(_HIDDEN.match(self.raw, at))


def read_word(raw: str, holes: dict[int, tuple[int, Hole]]) -> Word:
    """The word written as `raw`; `holes` maps where an expansion starts to its end and what it is.

    Raises: Refused when bash may read it otherwise.
    """
    if not holes and _BARE.fullmatch(raw):  # most words: nothing in them means anything
        return Word(raw, (raw,), False, False)
    return _Scanner(raw, holes).scan()


def plain_variable(text: str) -> str | None:
    """The name in a plain `$x`, `${x}` or `${x[@]}`."""
    match = re.fullmatch(
        r"\$(?:([A-Za-z_][A-Za-z0-9_]*|[0-9@*])|\{([A-Za-z_][A-Za-z0-9_]*|[0-9@*]+)(?:\[[@*0-9]+\])?\})", text
    )
    if match is None:
        return None
    name = match[1] or match[2]
    return "@" if name in "@*" or name.isdigit() else name


def plain_word(text: str) -> Word:
    return Word(text, (text,), False, False)


def hides_code(text: str, quoted: bool) -> bool:
    """Whether text that is taken for data holds a substitution bash would run."""
    at, double = 0, quoted
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 2
            continue
        if char == "'" and not double:
            end = text.find("'", at + 1)
            at = end + 1 if end >= 0 else len(text)
            continue
        if char == '"' and not quoted:
            double = not double
        opener = text[at : at + 2]
        if char == "`" or opener in ("$(", "$[") or (opener in ("<(", ">(") and not double):
            return True
        if opener == "${" and not _SIMPLE_EXPANSION.match(text, at):
            return True
        at += 1
    return False
