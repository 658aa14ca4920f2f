"""Built-ins whose arguments name variables or are calculated with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hutch.policy.facts import Assignment, Call, Evaluation, Facts
from hutch.policy.names import is_dangerous
from hutch.policy.verdict import Refused
from hutch.policy.words import Word, decode_ansi_c, hides_code, plain_word

_TARGET = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:\[(?P<index>.*)\])?(?P<value>\+?=.*)?", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"\[(.*?)\]\+?=", re.DOTALL)
_MADE = re.compile(r"[\\'\"`$]")  # an expansion that makes text of its own
_LITERAL_NAME = "write the variable's name out"
_READ_VALUED = "adinNptu"
_SET_LETTERS = frozenset("abefhmnotuvxBCETP")
_SET_NAMES = frozenset(
    "allexport braceexpand emacs errexit errtrace functrace hashall ignoreeof interactive-comments monitor noclobber "
    "noexec noglob nolog notify nounset onecmd physical pipefail verbose vi xtrace".split()
)


def _target(text: str, shown: str, facts: Facts) -> re.Match[str]:
    """A variable, perhaps with a subscript (which bash calculates) and a value."""
    match = _TARGET.fullmatch(text)
    if match is None:
        raise Refused(shown[:60], "this is not a variable's name", _LITERAL_NAME)
    if match["index"] and ("$" in match["index"] or "`" in match["index"]):
        raise Refused(shown[:60], "bash would calculate this subscript and run what it holds", "use a plain subscript")
    if is_dangerous(match["name"]):
        raise dangerous(match["name"], shown)
    if names := _NAME.findall(match["index"] or ""):
        facts.evaluations.append(Evaluation(shown[:60], frozenset(names)))
    return match


def dangerous(name: str, shown: str) -> Refused:
    return Refused(shown[:60] or name, f"{name} makes programs run other code", "leave the variable as it is")


def read_keys(name: str, elements: Sequence[Word], facts: Facts) -> None:
    """`[key]=value` in an array: bash calculates with the key, whatever its quotes.

    Raises: Refused.
    """
    opened = False  # a key goes on over blanks; the tree shows several words
    for word in elements:
        divided = opened and "]" in word.raw
        starts = word.raw.startswith("[")
        opened = opened or (starts and "]" not in word.raw)
        key = _KEY.match(word.text) if starts else None
        if divided or (key and ("$" in key[1] or "`" in key[1])):
            raise Refused(word.raw[:60], "bash would calculate this subscript and run what it holds")
        if key:
            written = _KEY.match(word.raw)
            names = frozenset(_NAME.findall(written[1] if written else word.raw))
            facts.evaluations.append(Evaluation(word.raw[:60], names))
            first = word.pieces[0] if isinstance(word.pieces[0], str) else ""
            whole = _KEY.match(first)
            pieces = (first[whole.end() :] if whole else "", *word.pieces[1:])
            facts.assignments.append(Assignment(name, word.raw[:60], replace(word, pieces=pieces)))


def _options(words: Sequence[Word], signs: str = "-") -> tuple[str, list[Word]]:
    letters = ""
    for index, word in enumerate(words):
        text = word.text
        if text == "--":
            return letters, list(words[index + 1 :])
        if len(text) < 2 or text[0] not in signs:
            return letters, list(words[index:])
        if word.literal is None:
            raise Refused(word.raw[:60], "an expansion makes part of this option", "write the option out")
        letters += text[1:]
    return letters, []


def _declare(call: Call, facts: Facts) -> None:
    letters, words = _options(call.words[1:], "-+")
    name = call.words[0].text
    if "n" in letters and name != "export":
        raise Refused(f"{name} -n", "a name for another variable hides what is set", "use the variable itself")
    if "f" in letters and name == "export":
        raise Refused("export -f", "functions cannot be given to other programs")
    for word in words:
        head = word.pieces[0] if word.pieces else ""
        if not isinstance(head, str) or (len(word.pieces) > 1 and "=" not in head):
            raise Refused(word.raw[:60], "an expansion names the variable", _LITERAL_NAME)
        match = _target(head, word.raw, facts)
        value = (match["value"] or "").lstrip("+")[1:]
        facts.assignments.append(
            Assignment(match["name"], word.raw, Word(word.raw, (value, *word.pieces[1:]), False, False))
        )
        facts.compounds.append(facts.assignments[-1].value or word)
        if set(letters) & set("luc"):
            facts.recased.add(match["name"])
        if "i" in letters:
            facts.evaluations.append(Evaluation(word.raw[:60], frozenset({match["name"]})))


def _unset(call: Call, facts: Facts) -> None:
    letters, words = _options(call.words[1:])
    if "f" in letters:
        raise Refused("unset -f", "a function must keep its meaning to the end", "leave the function defined")
    for word in words:
        if word.literal is None:
            raise Refused(word.raw[:60], "an expansion names the variable", _LITERAL_NAME)
        match = _target(word.literal, word.raw, facts)
        if "v" not in letters and any(function.name.literal == match["name"] for function in facts.functions):
            raise Refused(word.raw[:60], "a function must keep its meaning to the end", "use unset -v for a variable")


def _read(call: Call, facts: Facts) -> None:
    words, index = call.words[1:], 0
    while index < len(words) and words[index].text.startswith("-") and words[index].text != "-":
        text = words[index].literal
        if text is None:
            raise Refused(words[index].raw[:60], "an expansion makes part of this option", "write the option out")
        index += 1
        if text == "--":
            break
        letter = next((letter for letter in text[1:] if letter in _READ_VALUED), "")
        value = text[1:].partition(letter)[2] if letter else ""
        if letter and not value and index < len(words):
            if letter == "a":
                _reads(words[index], True, facts)
            index += 1
        elif letter == "a":
            _reads(plain_word(value), True, facts)
    for word in words[index:]:
        _reads(word, len(words) > index + 1, facts)


def _reads(word: Word, divided: bool, facts: Facts) -> None:
    if word.literal is None:
        raise Refused(word.raw[:60], "an expansion names the variable", _LITERAL_NAME)
    match = _target(word.literal, word.raw, facts)
    plain = [plain_word(text.literal.replace("\\", "")) for text in facts.here_strings if text.literal]
    for value in [*facts.here_strings, *plain, None]:
        facts.assignments.append(Assignment(match["name"], f"read {word.raw}", value, split="all" if divided else ""))


def _printf(call: Call, facts: Facts) -> None:
    words = call.words[1:]
    if not words or not words[0].text.startswith("-v"):
        return
    named = words[1:2] if words[0].text == "-v" else [plain_word(words[0].text[2:])]
    if not named or named[0].literal is None or "\0" in named[0].literal:
        raise Refused(call.words[1].raw[:60], "an expansion names the variable", _LITERAL_NAME)
    match = _target(named[0].literal, named[0].raw, facts)
    given = words[2:] if words[0].text == "-v" else words[1:]
    joined = Word(named[0].raw, tuple(piece for word in given[1:] for piece in word.pieces), False, False)  # %s%s
    escaped = [plain_word(decode_ansi_c(word.literal)) for word in given if word.literal and "\\" in word.literal]
    for word in [*given, joined, *escaped, None]:
        facts.assignments.append(Assignment(match["name"], f"printf -v {match['name']}", word))


def _let(call: Call, facts: Facts) -> None:
    for word in call.words[1:]:
        made = any(hole.variable is None and _MADE.search(hole.text, 2) for hole in word.holes)
        if made or hides_code(word.text.replace("\\", ""), True) or "$" in word.text or "\0(" in word.text:
            raise Refused(word.raw[:60], "bash would calculate this text and run what it holds", "use $(( … ))")
        names = set(_NAME.findall(word.text))
        names |= {name for hole in word.holes for name in re.findall(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*]", hole.text)}
        facts.evaluations.append(Evaluation(word.raw[:60], frozenset(names)))


def _set(call: Call, facts: Facts) -> None:
    words = call.words[1:]
    while words and words[0].text[:1] in ("-", "+") and words[0].text != "--":
        option = words.pop(0)
        names = [words.pop(0) for letter in option.text if letter == "o" and words]
        check_set_option(option.text, [name.text for name in names], option.raw)
    for value in words:
        facts.assignments.append(Assignment("@", value.raw, value, split="holes"))


def check_set_option(letters: str, names: Sequence[str], raw: str) -> None:
    """Raises: Refused for an option of `set` that changes how commands are read."""
    if set(letters[1:]) - _SET_LETTERS or set(names) - _SET_NAMES:
        raise Refused(raw[:60], "it changes how commands are read", "leave the option out")


def _test(call: Call, facts: Facts) -> None:
    words = call.words
    for before, option, word in zip(words, words[1:], words[2:], strict=False):
        # Behind an operand, as in `[ "$1" = -v ]`, it is text.
        starts = before is words[0] or before.literal is None or before.literal in ("-a", "-o", "!", "(")
        if option.text not in ("-v", "-R") or not starts:
            continue
        if word.literal is not None:
            if word.literal != "]":
                _target(word.literal, word.raw, facts)
        else:
            facts.evaluations.append(
                Evaluation(word.raw[:60], frozenset(hole.variable for hole in word.holes if hole.variable))
            )


def _wait(call: Call, facts: Facts) -> None:
    words = call.words[1:]
    while words and words[0].text.startswith("-"):
        option = words.pop(0)
        if option.literal is None:
            raise Refused(option.raw[:60], "an expansion makes part of this option", "write the option out")
        before, found, attached = option.text.partition("p")
        if option.text == "--":
            return
        if not found:
            continue
        named = plain_word(attached) if attached else words.pop(0) if words else plain_word("")
        if named.literal is None:
            raise Refused(named.raw[:60], "an expansion names the variable", _LITERAL_NAME)
        match = _target(named.literal, named.raw, facts)
        facts.assignments.append(Assignment(match["name"], f"wait {before}p", None))


CHECKS: Mapping[str, Callable[[Call, Facts], None]] = {
    "declare": _declare,
    "typeset": _declare,
    "local": _declare,
    "export": _declare,
    "readonly": _declare,
    "unset": _unset,
    "read": _read,
    "printf": _printf,
    "let": _let,
    "set": _set,
    "test": _test,
    "[": _test,
    "wait": _wait,
}
