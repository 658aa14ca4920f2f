"""What a command is made of, gathered from its syntax tree; the rules judge these facts alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hutch.policy.words import Word


@dataclass(slots=True)
class Call:
    """A simple command: a name and its arguments."""

    words: list[Word]
    start: int
    in_function: bool
    begins: bool = True  # nothing of its pipeline stands before its name, so `time` there is no name


@dataclass(frozen=True, slots=True)
class Assignment:
    """A variable gets a value. `value` None: from data nobody sees here."""

    name: str
    raw: str
    value: Word | None
    appends: bool = False
    split: Literal["", "holes", "all"] = ""  # it gets the fields of the value, not the whole


@dataclass(frozen=True, slots=True)
class Function:
    name: Word
    start: int
    certain: bool  # the definition runs whatever happens


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A place where bash calculates with the text of variables, and runs substitutions it finds in them."""

    raw: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Redirection:
    raw: str
    writes: bool
    target: Word | None


@dataclass(slots=True)
class Facts:
    calls: list[Call] = field(default_factory=list[Call])
    assignments: list[Assignment] = field(default_factory=list[Assignment])
    functions: list[Function] = field(default_factory=list[Function])
    evaluations: list[Evaluation] = field(default_factory=list[Evaluation])
    redirections: list[Redirection] = field(default_factory=list[Redirection])
    here_strings: list[Word] = field(default_factory=list[Word])
    compounds: list[Word] = field(default_factory=list[Word])  # values that declare reads as (…) of an array
    recased: set[str] = field(default_factory=set[str])  # variables whose text declare -l or -u changes
    inert: list[str] = field(default_factory=list[str])  # quoted text, as data
    background: bool = False
    substitution: str = ""  # the first one, as written
