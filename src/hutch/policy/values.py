"""What a word can become: the texts its variables were given in the same command.

A value from outside (a file, a program's output, the environment) is unknown and stands as NUL."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence, Set

from hutch.policy.facts import Assignment, Evaluation, Facts
from hutch.policy.verdict import Refused
from hutch.policy.words import Hole, Word, decode_ansi_c

UNKNOWN = "\0"
MAX_VECTORS = 20_000  # argument vectors looked at in one command
MAX_CHARACTERS = 4_000_000  # of values followed in one command
# awk's $(NF - 1) is no substitution, nor is there such a command.
_CODE_IN_SUBSCRIPT = re.compile(r"\[[^\]\n]*(\$\((?!NF\b)|`|\$\{)")
_ELEMENT_KEY = re.compile(r"\A\[[^\]$`]*\]=")
_BLANKS = re.compile(r"[ \t\n]")
_RECASES = re.compile(r"\$\{\w+(?:\[[^\]]*\])?(?:[,^]|@[ULu]\})")
_INDIRECT = re.compile(r"\$\{!\w+\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*]")
_DEFAULT = re.compile(r"\$\{[!#]?[\w@*]+(?:\[[^\]]*\])?:?[-=+](.*)\}", re.DOTALL)


def _changed(expansion: str, texts: Sequence[str]) -> list[str]:
    """What `${x,,}`, `${x^^}` and `${x@E}` make of the variable's texts."""
    if expansion.endswith("@E}"):
        return [decode_ansi_c(text) for text in texts if text != UNKNOWN]
    if _RECASES.match(expansion):
        return [text.lower() for text in texts] + [text.upper() for text in texts]
    return []


class Values:
    def __init__(self, assignments: Iterable[Assignment], recased: Set[str] = frozenset()) -> None:
        self._given: dict[str, list[Assignment]] = {}
        for assignment in assignments:
            self._given.setdefault(assignment.name, []).append(assignment)
        self._recased = recased
        self._known: dict[str, list[str]] = {}
        self._harmless: set[str] = set()
        self._characters = 0
        self._vectors = 0
        self._separators = [_BLANKS]
        if "IFS" in self._given:
            given = self._values_of("IFS", frozenset({"IFS"}))
            self._separators += [re.compile(f"[{re.escape(text)}]") for text in given if text.strip(UNKNOWN)]

    def texts(self, word: Word, within: frozenset[str] = frozenset()) -> list[str]:
        """All texts the word can have, unknown parts as NUL.

        Raises: Refused when there are too many to follow.
        """
        found = [""]
        for piece in word.pieces:
            choices = self._choices(word, piece, "" in found, within)
            found = [start + choice for start in found for choice in choices]
            self._spend(found)
        return list(dict.fromkeys(found))

    def _choices(self, word: Word, piece: str | Hole, first: bool, within: frozenset[str]) -> list[str]:
        """What the piece can be. A variable nobody sets may be nothing, and an option then comes first."""
        if isinstance(piece, str):
            return [piece]
        bares = first and word.text.lstrip(UNKNOWN)[:1] in ("-", "{") and self._may_be_unset(piece)
        return [*self._of(piece, within), ""] if bares else self._of(piece, within)

    def _may_be_unset(self, hole: Hole) -> bool:
        return hole.variable is not None and hole.variable not in self._given

    def _spend(self, texts: Sequence[str]) -> None:
        self._characters += len(texts) + sum(map(len, texts))
        if self._characters > MAX_CHARACTERS:
            raise Refused("=", "its variables have too many values to follow", "split it into several commands")

    def _of(self, hole: Hole, within: frozenset[str]) -> list[str]:
        found: dict[str, None] = {}
        if hole.variable:
            names = [hole.variable]
        else:  # ${x%…}, ${x:-text}: what the variable holds, the text, or something made of them
            names = _NAME.findall(hole.text)[:1] if hole.kind == "expansion" else []
            found[UNKNOWN] = None
            if default := _DEFAULT.fullmatch(hole.text):
                found[default[1].replace('"', "").replace("'", "").replace("\\", "")] = None
        for name in names:
            label = "@" if name.isdigit() or name == "*" else name
            known = [UNKNOWN] if label in within else self._values_of(label, within | {label})
            found.update(dict.fromkeys(known))
            if _INDIRECT.fullmatch(hole.text):
                for other in set(known) & self._given.keys() - within:
                    found.update(dict.fromkeys(self._values_of(other, within | {label, other})))
        if hole.variable is None:
            found.update(dict.fromkeys(_changed(hole.text, list(found))))
        return list(found)

    def _values_of(self, name: str, within: frozenset[str]) -> list[str]:
        if len(within) == 1 and name in self._known:
            return self._known[name]
        found: dict[str, None] = {}
        for assignment in self._given.get(name, ()):
            texts = self._given_texts(assignment, within)
            if assignment.appends:
                texts = [start + text for start in [*found, ""] for text in texts]
                self._spend(texts)
            found.update(dict.fromkeys(texts))
        known = list(found) or [UNKNOWN]
        if name in self._recased:
            known += [text.lower() for text in found] + [text.upper() for text in found]
            self._spend(known)
        if len(within) == 1:
            self._known[name] = known
        return known

    def _given_texts(self, assignment: Assignment, within: frozenset[str]) -> list[str]:
        if assignment.value is None:
            return [UNKNOWN]
        texts = self.texts(assignment.value, within)
        if assignment.split == "all":
            texts += [part for text in texts for separator in self._separators for part in separator.split(text)]
        elif assignment.split:
            texts = list(itertools.chain.from_iterable(self._fields(assignment.value, within)))
        self._spend(texts)
        return texts

    def vectors(self, words: Sequence[Word]) -> Iterator[list[str]]:
        """All argument vectors the words can become.

        Raises: Refused when there are too many to follow.
        """
        for parts in itertools.product(*[self.fields(word) for word in words]):
            self._vectors += 1
            if self._vectors > MAX_VECTORS:
                raise Refused(words[0].raw[:60], "its arguments have too many values to follow", "split the command")
            yield list(itertools.chain.from_iterable(parts))

    def fields(self, word: Word) -> list[list[str]]:
        """All lists of arguments the word can become: bash splits what stands in no quotes, and drops what is empty.

        Raises: Refused when there are too many to follow.
        """
        return self._fields(word, frozenset())

    def _fields(self, word: Word, within: frozenset[str]) -> list[list[str]]:
        if word.literal is not None:
            return [[word.literal]]
        found = [[text] for text in self.texts(word, within)]
        if any(not hole.quoted for hole in word.holes):
            found = found if "IFS" in self._given else []
            for separator in self._separators:
                found += self._split(word, separator, within)
            if not word.text.strip(UNKNOWN) and all(self._may_be_unset(hole) for hole in word.holes):
                found.append([])
        if len(word.holes) == 1 and word.holes[0].many and not word.text.strip(UNKNOWN):
            found += [[], self._of(word.holes[0], within)]
        return [list(fields) for fields in dict.fromkeys(map(tuple, found))]

    def _split(self, word: Word, separator: re.Pattern[str], within: frozenset[str]) -> list[list[str]]:
        found = [[""]]
        for piece in word.pieces:
            choices = self._choices(word, piece, [""] in found, within)
            splits = isinstance(piece, Hole) and not piece.quoted
            parts = [separator.split(choice) if splits else [choice] for choice in choices]
            found = [[*fields[:-1], fields[-1] + first, *more] for fields in found for first, *more in parts]
            self._spend(["".join(fields) for fields in found])
        return [[field for field in fields if field] for fields in found]

    def code_for(self, names: Iterable[str]) -> str | None:
        """Text given to one of the variables that would run when bash calculates with it."""
        queue = list(names)
        seen: set[str] = set()
        while queue:
            found = queue.pop()
            name = "@" if found.isdigit() or found == "*" else found
            if name in seen or name in self._harmless:
                continue
            seen.add(name)
            for assignment in self._given.get(name, ()):
                for piece in assignment.value.pieces if assignment.value else ():
                    if isinstance(piece, Hole):
                        queue += _NAME.findall(piece.text) if piece.kind.endswith("expansion") else []
                    elif any(sign in _ELEMENT_KEY.sub("", piece) for sign in "[$`"):
                        return assignment.raw
                    else:
                        queue += _NAME.findall(piece)  # bash takes the text for a variable's name
        self._harmless |= seen
        return None


def check_evaluations(evaluations: Sequence[Evaluation], values: Values, facts: Facts) -> None:
    """Arithmetic reads the text of variables as an expression, and runs `a[$(command)]` it finds there.

    Raises: Refused.
    """
    hint = "calculate with plain numbers"
    for evaluation in evaluations:
        if code := values.code_for(evaluation.names):
            raise Refused(code[:60], f"{evaluation.raw} would calculate with this text and run what it holds", hint)
    if any(evaluation.names for evaluation in evaluations):
        for text in facts.inert:
            if match := _CODE_IN_SUBSCRIPT.search(text):
                word = text[match.start() : match.start() + 60]
                raise Refused(word, "this text would run if it reached the arithmetic beside it", hint)
