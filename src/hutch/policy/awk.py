"""awk programs: the only questions are whether one starts a command, and whether it writes a file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hutch.policy.verdict import Refused

_SPACE = re.compile(r"(?:[ \t\r\n]|\\\r?\n|#[^\n]*)+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CLASS = r"\[:[a-z]{1,12}:\]|\[(?![:.=])"
# Some awks take a backslash in [brackets] for an escape, some do not.
_REGEX = re.compile(rf"/(?:[^/\\\n\[]|\\.|\[\^?\]?(?:{_CLASS}|[^\[\]\\\n]|\\.)*\])*/")
_REGEX_POSIX = re.compile(rf"/(?:[^/\\\n\[]|\\.|\[\^?\]?(?:{_CLASS}|[^\[\]\n])*\])*/")
_NAME = re.compile(r"[A-Za-z_]\w*|\0")
_NUMBER = re.compile(r"0[xX][0-9A-Fa-f]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_SIGN = re.compile(r"\|\||\|&|&&|\+\+|--|\*\*=?|>>|[-+*/%^!=<>]=|[!~]~?|.", re.DOTALL)
_AFTER_OPERAND = frozenset({"name", "number", "string", "]", ")", "++", "--"})
_DOUBTFUL = frozenset("getline length next nextfile break continue BEGIN END".split())
_KEYWORDS = frozenset("print printf return case in else do delete exit if while for".split())
_DANGERS = {
    "system": "a call that starts a command",
    "|": "a pipe to or from a command",
    "|&": "a pipe to or from a command",
    "@": "an indirect call or an extension",
}


def check_awk(arguments: Sequence[str], may_write: bool) -> None:
    """Raises: Refused."""
    for program in _programs(arguments):
        if not program.strip("\0 \t\n"):
            raise Refused("awk", "its program is not known here", "write the program into the command")
        _scan(program, may_write)


def _programs(arguments: Sequence[str]) -> list[str]:
    programs: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            break
        if not argument.startswith("-") or argument == "-":
            rest.insert(0, argument)
            break
        letter, attached = argument[1], argument[2:]
        if argument in ("--version", "--help", "-V", "--posix", "--traditional", "--csv", "-S", "--sandbox"):
            continue
        if letter in "Fv":
            if not attached and rest:
                rest.pop(0)
        elif letter == "e" and argument[:2] != "--":
            programs.append(attached or (rest.pop(0) if rest else ""))
        elif argument.startswith(("--assign=", "--field-separator=")):
            continue
        else:
            hint = "write the program into the command: awk 'program' file"
            raise Refused(argument[:60].replace("\0", "…"), "awk would take its program, or code, from elsewhere", hint)
    if not programs and rest:
        programs.append(rest[0])
    return programs


def _scan(program: str, may_write: bool) -> None:
    at, before, printing = 0, "", False
    opened: list[bool] = []  # for each open bracket: does it hold a condition, after which a statement starts
    while at < len(program):
        if space := _SPACE.match(program, at):
            if "\n" in re.sub(r"\\\r?\n", "", space[0]):
                before, printing = "\n", False
            at = space.end()
            continue
        kind, end = _token(program, at, before)
        text = program[at:end]
        if kind in ("|", "|&", "@") or text == "system":
            raise Refused(text, f"this awk program has {_DANGERS[text]}", "let the shell run it, and pipe awk's output")
        if kind == "(":
            opened.append(before == "condition")
        elif kind == ")":
            kind = "\n" if opened and opened.pop() else kind
        elif kind == "name" and text in _KEYWORDS:
            kind = "condition" if text in ("if", "while", "for") else "keyword"
            printing = printing or text in ("print", "printf")
        elif kind == "$" or text in _DOUBTFUL:
            kind = "doubtful"
        elif kind in (";", "{", "}"):
            printing = False
        elif kind in (">", ">>") and printing and not opened and not may_write:
            raise Refused(text, "this awk program writes a file, which this profile does not allow")
        at, before = end, kind


def _endless(program: str, at: int) -> Refused:
    word = program[at : at + 40].replace("\0", "…")
    return Refused(word, "a string or pattern of this awk program has no end", "write it more simply")


def _token(program: str, at: int, before: str) -> tuple[str, int]:
    """What kind of token stands there, and where it ends. A sign is its own kind."""
    for kind, pattern in (("string", _STRING), ("name", _NAME), ("number", _NUMBER)):
        if match := pattern.match(program, at):
            return kind, match.end()
    if program[at] == "/" and before == "doubtful":
        hint = "put brackets around what is divided, or is a pattern"
        raise Refused(program[at : at + 40], "awks differ in what this / means", hint)
    if program[at] == "/" and before not in _AFTER_OPERAND:
        match, other = _REGEX.match(program, at), _REGEX_POSIX.match(program, at)
        if match and other and match.end() == other.end():
            return "string", match.end()
        raise _endless(program, at)
    if program[at] == '"':
        raise _endless(program, at)
    match = _SIGN.match(program, at)
    end = match.end() if match else at + 1
    return program[at:end], end
