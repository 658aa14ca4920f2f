"""sed scripts: the only questions are whether one starts a command, and whether it writes a file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hutch.policy.verdict import Refused

_ADDRESS_TAIL = re.compile(r"[IM]*")
_BRACKET = re.compile(r"\[\^?\]?(?:\[:[a-z]{1,12}:\]|[^\]\n])*+")
_NUMBER = re.compile(r"[+~]?[0-9\0]+(?:~[0-9\0]+)?|\$")
_LABEL = re.compile(r"[ \t]*[\w.\0-]*(?=[ \t\n;}]|\Z)")  # sed's versions differ in what else ends one
_SHORT_ALONE = frozenset("nErsuzb")
_LONG_ALONE = ("--quiet", "--silent", "--debug", "--sandbox", "--null-data", "--zero-terminated",
               "--regexp-extended", "--separate", "--unbuffered", "--follow-symlinks", "--binary", "--version",
               "--help")  # fmt: skip


def check_sed(arguments: Sequence[str], may_write: bool) -> None:
    """Raises: Refused."""
    scripts, in_place = _scripts(arguments)
    if in_place and not may_write:
        raise Refused("sed -i", "it changes files, which this profile does not allow")
    script = "\n".join(scripts)
    if scripts and not script.strip("\0 \t\n"):
        raise Refused("sed", "its script is not known here", "write the script into the command")
    _Script(script, may_write).check()


def _scripts(arguments: Sequence[str]) -> tuple[list[str], bool]:
    scripts: list[str] = []
    operands: list[str] = []
    in_place, rest = False, list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            operands += rest
            break
        if not argument.startswith("-") or argument == "-":
            operands.append(argument)
        elif argument.startswith("--"):
            name, _, value = argument.partition("=")
            if len(name) > 2 and "--expression".startswith(name):
                scripts.append(value if "=" in argument else _next(rest))
            elif len(name) > 3 and ("--in-place".startswith(name) or "--line-length".startswith(name)):
                in_place = in_place or name.startswith("--i")
                if name.startswith("--l") and "=" not in argument:
                    _next(rest)
            elif not (len(name) > 3 and any(option.startswith(name) for option in _LONG_ALONE)):
                raise _elsewhere(argument)
        else:
            in_place = _short(argument, rest, scripts) or in_place
    return (scripts or operands[:1]), in_place


def _short(argument: str, rest: list[str], scripts: list[str]) -> bool:
    """Read a cluster of short options; whether files change in place."""
    for index, letter in enumerate(argument[1:], 2):
        attached = argument[index:]
        if letter == "e":
            scripts.append(attached or _next(rest))
            return False
        if letter == "i":
            return True  # the rest is a suffix
        if letter == "l":
            if not attached:
                _next(rest)
            return False
        if letter not in _SHORT_ALONE:
            raise _elsewhere(argument)
    return False


def _next(rest: list[str]) -> str:
    return rest.pop(0) if rest else ""


def _elsewhere(argument: str) -> Refused:
    hint = "write the script into the command: sed 'script' file"
    return Refused(argument[:60].replace("\0", "…"), "sed would take its script from elsewhere", hint)


class _Script:
    def __init__(self, text: str, may_write: bool) -> None:
        self.text = text
        self.may_write = may_write
        self.at = 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def skip(self, signs: str) -> None:
        while self.peek() and self.peek() in signs:
            self.at += 1

    def unreadable(self) -> Refused:
        word = self.text[max(self.at - 20, 0) : self.at + 20].strip().replace("\0", "…")
        return Refused(word or "sed", "this sed script cannot be read reliably", "write it more simply")

    def check(self) -> None:
        while True:
            self.skip(" \t\r\n;{}")
            if not self.peek():
                return
            if self.peek() == "#":
                self.line()
                continue
            self.addresses()
            self.command()

    def addresses(self) -> None:
        while True:
            self.skip(" \t,!")
            if match := _NUMBER.match(self.text, self.at):
                self.at = match.end()
            elif self.peek() in ("/", "\\"):
                self.at += self.peek() == "\\"
                self.delimited(pattern=True)
                match = _ADDRESS_TAIL.match(self.text, self.at)
                self.at = match.end() if match else self.at
            else:
                return

    def command(self) -> None:
        name = self.peek()
        self.at += 1
        if name == "{":
            return
        if name == "e":
            raise Refused("e", "this sed script starts a command", "write that command into the shell command")
        if name in ("w", "W"):
            self.writes()
            self.line()
        elif name in ("r", "R"):
            self.line()
        elif name and name in "aic":
            self.insertion()
        elif name and name in ":btTv":
            label = _LABEL.match(self.text, self.at)
            if label is None:
                raise self.unreadable()
            self.at = label.end()
        elif name and name in "sy":
            self.delimited(pattern=name == "s")
            self.at -= 1  # one delimiter ends the first part and starts the second
            self.delimited(pattern=False)
            if name == "s":
                self.flags()
        elif name and name in "=dDgGhHlLnNpPqQxzF}":
            self.skip(" \t0123456789\0")
        else:
            raise self.unreadable()

    def flags(self) -> None:
        while (flag := self.peek()) and flag in "gpiImM0123456789\0":
            self.at += 1
        if flag == "e":
            raise Refused("s///e", "this sed script starts a command", "write that command into the shell command")
        if flag == "w":
            self.writes()
            self.line()
        elif flag and flag not in " \t\r\n;}#":
            raise self.unreadable()

    def writes(self) -> None:
        if not self.may_write:
            raise Refused("w", "this sed script writes a file, which this profile does not allow")

    def line(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def insertion(self) -> None:
        """Text up to the end of the line, and further where a backslash ends it."""
        while True:
            start = self.at
            self.line()
            line = self.text[start : self.at]
            if not self.peek() or (len(line) - len(line.rstrip("\\"))) % 2 == 0:
                return
            self.at += 1

    def delimited(self, *, pattern: bool) -> None:
        """To behind the closing delimiter; in a pattern [brackets] may hold it."""
        delimiter = self.peek()
        if delimiter in ("", "\n", "\\", "[", "]"):
            raise self.unreadable()
        self.at += 1
        while (char := self.peek()) != delimiter:
            if not char:
                raise Refused("sed", "a pattern of this sed script has no end")
            if pattern and char == "[":
                self.bracket()
            self.at += 2 if char == "\\" else 1
        self.at += 1

    def bracket(self) -> None:
        """To the `]` that ends [a bracket expression]."""
        match = _BRACKET.match(self.text, self.at)
        if match is None or "[." in match[0][1:] or "[=" in match[0][1:] or not self.text.startswith("]", match.end()):
            raise self.unreadable()
        self.at = match.end()
