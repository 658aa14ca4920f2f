"""A second opinion on text the grammar cannot read: is it surely no bash?

The grammar has gaps, and where every command may run it would be wrong to refuse good bash for them. This looks only
for what no bash could be: an end that is missing, an operator or a keyword with nothing where something must stand."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(r"\n|;;&|;;|;&|&&|\|\||\|&|&>>?|[;&|()]|[^\s;&|()]+|[ \t\r]+")
_CLOSERS = {"if": "fi", "do": "done", "case": "esac", "{": "}"}
_OPENS_COMMAND = frozenset("if then else elif while until do ! { ( && || | |& ; & \n ;; ;& ;;& start".split(" "))
_NEEDS_COMMAND = frozenset("if then else elif while until do && || | |&".split())
_ENDS = frozenset("then else elif fi do done esac ) } && || | |& ; & ;; ;& ;;&".split())


def is_surely_broken(text: str) -> bool:
    """`text` has no here-documents (any more)."""
    bare = _without_quotes(text)
    if bare is None:
        return True
    has_case = re.search(r"(?<![^\s;&|()])case\s", bare) is not None
    depth, waiting, before = 0, list[str](), "start"
    for token in _tokens(bare):
        depth += (token == "(") - (token == ")")
        if depth < 0 and not has_case:
            return True
        commanding = before in _OPENS_COMMAND
        if commanding and token in _ENDS and (before in _NEEDS_COMMAND or (before == "start" and token != "}")):
            return True
        if token in _CLOSERS and (commanding or (token == "{" and before == ")")):
            waiting.append(_CLOSERS[token])
        elif token in _CLOSERS.values() and commanding and (not waiting or waiting.pop() != token):
            return True
        if token != "\n" or before not in _NEEDS_COMMAND:
            before = token
    return depth > 0 or bool(waiting) or before in _NEEDS_COMMAND


def _tokens(bare: str) -> Iterator[str]:
    return (match[0] for match in _TOKEN.finditer(bare) if match[0].strip(" \t\r"))


def _without_quotes(text: str) -> str | None:
    """The text with quoted parts, expansions and comments as a plain letter; None when one of them has no end."""
    kept: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            kept.append(" " if text[at + 1 : at + 2] == "\n" else "q")
            at += 2
        elif char == "#" and (at == 0 or text[at - 1] in " \t\n;&|("):
            at = (text + "\n").find("\n", at)
        else:
            end = _quoted_end(text, at)
            if end is None:
                return None
            kept.append("q" if end > at else char)
            at = max(end, at + 1)
    return "".join(kept)


def _quoted_end(text: str, at: int) -> int | None:
    """Where a quote or expansion that starts at `at` ends; `at` itself when none starts, None when it has no end."""
    if text[at] == "'":
        return text.find("'", at + 1) + 1 or None
    if text.startswith("$'", at):
        match = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL).match(text, at)
        return match.end() if match else None
    for opener, closer in (('"', '"'), ("`", "`"), ("${", "}")):
        if text.startswith(opener, at):
            return _closing(text, at + len(opener), closer)
    return at


def _closing(text: str, at: int, closer: str) -> int | None:
    """Behind the closer; substitutions inside are stepped over by their brackets alone."""
    stack = [closer]
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 2
            continue
        if char == stack[-1]:
            stack.pop()
        elif text.startswith(("$(", "${"), at):
            at += 1
            stack.append(")" if text[at] == "(" else "}")
        elif char == '"' and stack[-1] != '"':
            stack.append('"')
        elif char == "'" and stack[-1] == ")":
            at = text.find("'", at + 1)
            if at < 0:
                return None
        at += 1
        if not stack:
            return at
    return None
