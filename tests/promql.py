"""Which metrics and labels a PromQL expression names. Enough of the language for rules and dashboards."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<range>\[[^\]]*\])
    | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:ms|[smhdwy])?)
    | (?P<name>[A-Za-z_:][A-Za-z0-9_:]*)
    | (?P<mark>=~|!~|!=|==|>=|<=|[-+*/%^(){},=<>])
    )""",
    re.VERBOSE,
)
_GROUPING = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_WORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan"})


@dataclass(frozen=True, slots=True)
class Matcher:
    metric: str
    label: str
    how: str
    value: str


@dataclass(slots=True)
class Named:
    """What an expression names."""

    metrics: set[str] = field(default_factory=set)
    matchers: list[Matcher] = field(default_factory=list)
    grouped: set[str] = field(default_factory=set)


def named_in(expression: str) -> Named:
    """Raises: ValueError when it is no PromQL that this reads."""
    tokens = _tokens(expression)
    found, at = Named(), 0
    while at < len(tokens):
        kind, text = tokens[at]
        after = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        at += 1
        if kind != "name" or text.lower() in _WORDS:
            continue
        if text in _GROUPING:
            at = _grouping(tokens, at, found)
        elif after == "(" or (after in _GROUPING):  # a function or an aggregation
            continue
        else:
            found.metrics.add(text)
            if after == "{":
                at = _matchers(tokens, at + 1, text, found)
    return found


def _tokens(expression: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    text = expression.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"cannot read {text[at:]!r}")
        tokens.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return tokens


def _grouping(tokens: list[tuple[str, str]], at: int, found: Named) -> int:
    if tokens[at][1] != "(":
        return at  # group_left needs none
    while tokens[at][1] != ")":
        if tokens[at][0] == "name":
            found.grouped.add(tokens[at][1])
        at += 1
    return at + 1


def _matchers(tokens: list[tuple[str, str]], at: int, metric: str, found: Named) -> int:
    while tokens[at][1] != "}":
        (_, label), (_, how), (kind, value) = tokens[at : at + 3]
        if kind != "string":
            raise ValueError(f"the label {label} of {metric} is matched with {value}, which is no text")
        found.matchers.append(Matcher(metric, label, how, value[1:-1]))
        at += 3
        if tokens[at][1] == ",":
            at += 1
    return at + 1
