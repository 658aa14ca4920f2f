"""Options that an expansion makes: what they would do to a built-in is judged once the values are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from hutch.policy.builtins import check_set_option
from hutch.policy.facts import Call, Facts
from hutch.policy.values import UNKNOWN, Values
from hutch.policy.verdict import Refused
from hutch.policy.words import Word

_CODE = re.compile(r"\A[A-Za-z_]\w*\[.*(?:\$[({]|`)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _refused(word: Word) -> Refused:
    return Refused(word.raw[:60], "an expansion makes an option of this built-in", "write the option out")


def _leading(words: Sequence[Word], values: Values) -> list[tuple[Word, list[list[str]]]]:
    """The words that may be options because no sure operand stands before them, and what they can become."""
    found: list[tuple[Word, list[list[str]]]] = []
    for word in words:
        fields = values.fields(word)
        found.append((word, fields))
        if all(field and field[0][:1] not in ("-", "+") for field in fields):
            break
    return found


def _names_a_variable(call: Call, values: Values, letter: str) -> None:
    """`printf -v` and `wait -p` calculate with the subscript of the name behind them."""
    words = call.words[1:]
    for index, (word, fields) in enumerate(_leading(words, values)):
        made = word.literal is None or index > 0  # a literal first option has been judged
        if made and any(text.startswith("-") and letter in text for field in fields for text in field):
            raise _refused(word)
        unknown = any(text.startswith(UNKNOWN) for field in fields for text in field)
        if unknown and any(_CODE.match(other.text) for other in words[index + 1 : index + 2]):
            raise _refused(word)


def _printf(call: Call, values: Values) -> None:
    words = call.words[1:]
    if words and words[0].literal is None:
        _names_a_variable(call, values, "v")


def _wait(call: Call, values: Values) -> None:
    if any(word.literal is None for word in call.words):
        _names_a_variable(call, values, "p")


def _set(call: Call, values: Values) -> None:
    for word, fields in _leading(call.words[1:], values):
        if word.literal == "--":
            return
        for field in fields if word.literal is None else ():
            for text in field:
                if text[:1] in ("-", "+") and UNKNOWN not in text:
                    check_set_option(text, [""] * text.count("o"), word.raw)


def _test(call: Call, values: Values) -> None:
    """`-v` and `-R` calculate with the subscript of the name behind them."""
    before = False  # the word before may be one of them
    for word in call.words[1:]:
        ends: list[bool] = []
        for field in values.fields(word):
            operator = before
            for text in field:
                if operator and _CODE.match(text):
                    raise Refused(word.raw[:60], "bash could calculate this subscript and run what it holds")
                made = word.literal is None and UNKNOWN in text and not text.strip("-vR" + UNKNOWN)
                operator = made or text in ("-v", "-R")
            ends.append(operator)
        before = any(ends)


CHECKS: Mapping[str, Callable[[Call, Values], None]] = {
    "printf": _printf,
    "wait": _wait,
    "set": _set,
    "test": _test,
    "[": _test,
}


def check_compounds(facts: Facts, values: Values) -> None:
    """`declare` reads a value like `([key]=text)` again, as an array's. Raises: Refused."""
    for word in facts.compounds:
        for text in values.texts(word):
            if not text.startswith("("):
                continue
            if "$" in text or "`" in text or values.code_for(_NAME.findall(text)):
                raise Refused(word.raw[:60], "bash reads this value again, and would run what it holds", "use x=(…)")
