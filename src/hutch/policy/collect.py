"""Syntax tree in, facts out. Only node kinds known here are read, and every byte of the text is accounted for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from hutch.policy.accounting import (
    check_comment,
    check_descriptor,
    check_edges,
    check_gaps,
    check_joined,
    check_leaf,
    opaque,
)
from hutch.policy.builtins import read_keys
from hutch.policy.facts import Assignment, Call, Evaluation, Facts, Function, Redirection
from hutch.policy.syntax import Script, parse, parse_here_doc
from hutch.policy.verdict import Refused
from hutch.policy.words import Hole, Word, plain_variable, read_word

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH = 150
MAX_BACKTICK_DEPTH = 4

_HOLES = frozenset("simple_expansion expansion command_substitution process_substitution arithmetic_expansion".split())
_WORD_PARTS = _HOLES | frozenset(
    "command_name word number string raw_string ansi_c_string translated_string concatenation brace_expression "
    "variable_name array test_operator extglob_pattern regex special_variable_name subscript".split()
)
_KNOWN = _WORD_PARTS | frozenset(
    "program list pipeline subshell compound_statement negated_command if_statement elif_clause else_clause "
    "while_statement for_statement c_style_for_statement case_statement case_item do_group redirected_statement "
    "function_definition test_command variable_assignment variable_assignments declaration_command unset_command "
    "command file_redirect herestring_redirect heredoc_redirect heredoc_start heredoc_body heredoc_content heredoc_end "
    "file_descriptor string_content comment unary_expression binary_expression ternary_expression postfix_expression "
    "parenthesized_expression".split()
)
_BESIDE_WORDS = frozenset("variable_assignment file_redirect herestring_redirect heredoc_redirect comment".split())
_NUMERIC_TESTS = re.compile(rb"(?<!\S)-(?:eq|ne|lt|le|gt|ge|v|R)(?!\S)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*]")


class _Place(NamedTuple):
    depth: int = 0
    expanding: bool = False  # quotes do not keep bash from expanding here: "…", arithmetic, subscripts, ${…}
    in_function: bool = False
    certain: bool = True  # runs whatever happens


def collect(script: Script) -> Facts:
    """Raises: Refused for what cannot be read reliably."""
    facts = Facts()
    _gather(script, facts, 0)
    return facts


def _gather(script: Script, facts: Facts, backticks: int) -> None:
    check_edges(script.masked, script.root)
    _Collector(script, facts, backticks).visit(script.root, _Place())
    for doc in script.here_docs:
        if not doc.expands:
            facts.inert.append(doc.body)
        elif "$" in doc.body or "`" in doc.body:
            _Collector(parse_here_doc(doc.body), facts, backticks, here_doc=True).visit_body()


class _Collector:
    def __init__(self, script: Script, facts: Facts, backticks: int, here_doc: bool = False) -> None:
        self.source = script.source
        self.masked = script.masked
        self.root = script.root
        self.facts = facts
        self.backticks = backticks
        self.here_doc = here_doc
        self.calls: dict[int, Call] = {}  # by node id: redirections bring stray arguments later

    def text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode(errors="replace")

    def visit_body(self) -> None:
        """Only the body of the one here-document this tree was made of."""
        bodies = [node for node in self.descend(self.root) if node.type == "heredoc_body"]
        if len(bodies) != 1 or bodies[0].end_byte < len(self.source) - len("\nHUTCH_END\n") - 1:
            raise Refused("<<", "its here-document cannot be read reliably", "write the text with echo or printf")
        self.visit(bodies[0], _Place(expanding=True))

    def descend(self, node: Node) -> list[Node]:
        found = [node]
        for node in found:
            found.extend(node.children)
        return found

    def visit(self, node: Node, place: _Place) -> None:
        kind = node.type
        if place.depth > MAX_DEPTH:
            raise Refused(self.text(node)[:60], "it is nested too deep", "split it into several commands")
        if not node.is_named:
            return
        if kind not in _KNOWN:
            raise Refused(self.text(node)[:60], "this construct is not understood", "write it more simply")
        special = getattr(self, f"visit_{kind}", None)
        if special is not None:
            special(node, place)
        else:
            self.visit_children(node, place)

    def visit_children(self, node: Node, place: _Place) -> None:
        children = node.children
        if not children:
            self.facts.inert += check_leaf(node.type, self.text(node), place.expanding)
            return
        check_gaps(self.masked, node)
        inner = _Place(place.depth + 1, place.expanding, place.in_function, place.certain)
        for child in children:
            if child.type == "&" and node.type != "binary_expression":
                self.facts.background = True
            self.visit(child, inner)

    def opaque(self, node: Node) -> Refused:
        return opaque(self.text(node))

    def visit_comment(self, node: Node, place: _Place) -> None:
        check_comment(self.text(node), self.source[: node.start_byte][-2:], place.expanding)

    def visit_simple_expansion(self, node: Node, place: _Place) -> None:
        check_joined(self.source, node)
        self.visit_children(node, place)

    def visit_concatenation(self, node: Node, place: _Place) -> None:
        if not place.expanding:  # ${x:+a "b"} may hold several words
            check_joined(self.source, node)
        self.visit_children(node, place)

    # words

    def holes(self, node: Node, into: dict[int, tuple[int, Hole]], base: int) -> None:
        if node.type in _HOLES or node.type == "array":
            start = len(self.source[base : node.start_byte].decode(errors="replace"))
            end = start + len(self.text(node))
            into[start] = (end, Hole(node.type, self.text(node), plain_variable(self.text(node))))
            return
        for child in node.children:
            self.holes(child, into, base)

    def words(self, nodes: list[Node]) -> list[Word]:
        """Neighbours without a blank between them are one word, whatever the tree says."""
        groups: list[list[Node]] = []
        for node in nodes:
            gap = self.source[groups[-1][-1].end_byte : node.start_byte] if groups else b" "
            if not gap.replace(b"\\\n", b""):
                groups[-1].append(node)
            else:
                groups.append([node])
        for group in groups:
            check_descriptor(self.source, group[0].start_byte, group[-1].end_byte)
        return [self.word(group) for group in groups]

    def word(self, group: list[Node]) -> Word:
        start, end = group[0].start_byte, group[-1].end_byte
        holes: dict[int, tuple[int, Hole]] = {}
        for node in group:
            self.holes(node, holes, start)
        return read_word(self.source[start:end].decode(errors="replace"), holes)

    # commands

    def visit_command(self, node: Node, place: _Place) -> None:
        self.visit_children(node, place)
        parts = [child for child in node.children if child.type not in _BESIDE_WORDS]
        redirects = [child for child in node.children if child.type == "file_redirect"]
        strays = [stray for redirect in redirects for stray in self.strays(redirect)]
        self.add_call(node, sorted(parts + strays, key=lambda part: part.start_byte), place)

    def add_call(self, node: Node, parts: list[Node], place: _Place) -> None:
        begins = not parts or parts[0].start_byte == node.start_byte
        call = Call(self.words(parts), node.start_byte, place.in_function, begins)
        self.calls[node.id] = call
        self.facts.calls.append(call)

    def visit_declaration_command(self, node: Node, place: _Place) -> None:
        self.visit_children(node, place)
        self.add_call(node, [child for child in node.children if child.type != "comment"], place)

    visit_unset_command = visit_declaration_command

    def visit_redirected_statement(self, node: Node, place: _Place) -> None:
        self.visit_children(node, place)
        redirects = [child for child in node.children if child.type.endswith("_redirect")]
        strays = [stray for redirect in redirects for stray in self.strays(redirect)]
        body = node.child_by_field_name("body")
        call = self.last_call(body) if body else None
        if strays and call is None:
            raise Refused(self.text(strays[0])[:60], "it follows a redirection but belongs to no command")
        if call is None:
            return
        call.words.extend(self.words(strays))

    def last_call(self, node: Node) -> Call | None:
        while node.type in ("pipeline", "list", "negated_command"):
            node = [child for child in node.children if child.is_named and child.type != "comment"][-1]
        return self.calls.get(node.id)

    def targets(self, redirect: Node) -> list[Node]:
        return redirect.children_by_field_name("destination")

    def strays(self, redirect: Node) -> list[Node]:
        """The grammar gives a redirection all words behind it; bash gives it the first one."""
        targets = self.targets(redirect)
        count = 1
        while count < len(targets) and targets[count - 1].end_byte == targets[count].start_byte:
            count += 1
        return targets[count:]

    def visit_file_redirect(self, node: Node, place: _Place) -> None:
        self.visit_children(node, place)
        targets, strays = self.targets(node), self.strays(node)
        words = self.words(targets[: len(targets) - len(strays)])
        operator = next((child.type for child in node.children if not child.is_named), "<")
        if re.match(rb"\d*<<<", self.source[node.start_byte : node.end_byte]):
            self.facts.here_strings += words[:1]
        target = words[0] if words else None
        writes = ">" in operator and target is not None
        if operator == ">&" and target is not None and re.fullmatch(r"[0-9]+-?|-", target.text):
            writes = False  # another descriptor
        self.facts.redirections.append(Redirection(self.text(node)[:60], writes, target))

    def visit_heredoc_redirect(self, node: Node, place: _Place) -> None:
        hint = "end the text with its mark alone on a line, and write the mark as a plain word"
        raise Refused(self.text(node).split("\n")[0][:60], "its here-document cannot be read reliably", hint)

    def visit_function_definition(self, node: Node, place: _Place) -> None:
        name = node.child_by_field_name("name")
        if name is None:
            raise Refused(self.text(node)[:60], "this function has no name")
        self.facts.functions.append(Function(self.word([name]), node.start_byte, place.certain))
        self.visit_children(node, place._replace(in_function=True))

    # what runs only sometimes; a function defined there may be missing when it is called

    def visit_list(self, node: Node, place: _Place) -> None:
        """`a && b && c` is a list in a list: the left side is walked in a loop, as there may be thousands."""
        inner = place._replace(certain=False)
        rest: list[Node] = []
        while node.type == "list" and node.children[0].type == "list":
            check_gaps(self.masked, node)
            rest += reversed(node.children[1:])
            node = node.children[0]
        self.visit_children(node, inner)
        for part in reversed(rest):
            self.visit(part, inner)

    visit_subshell = visit_if_statement = visit_while_statement = visit_case_statement = visit_list

    def visit_pipeline(self, node: Node, place: _Place) -> None:
        self.visit_list(node, place)
        for part in node.named_children[1:]:
            call = self.calls.get((part.child_by_field_name("body") or part).id)
            if call is not None:
                call.begins = False

    # expansions

    def visit_command_substitution(self, node: Node, place: _Place) -> None:
        self.substitution(node)
        inner = _Place(place.depth, in_function=place.in_function, certain=False)
        if not self.masked.startswith((b"`", b"$`"), node.start_byte):
            self.visit_children(node, inner)
            return
        body = self.text(node).lstrip("$")[1:-1]
        if "\\" not in body:
            self.visit_children(node, inner)
            return
        # Inside backquotes a backslash belongs to the quotes first; what bash then reads is another text.
        if self.backticks >= MAX_BACKTICK_DEPTH or re.search(r"(?<!\\)(?:\\\\)*`", body):
            raise Refused(self.text(node)[:60], "its backquotes cannot be judged", "write $(…) instead of `…`")
        escapes = r"\\([$`\\\"])" if place.expanding else r"\\([$`\\])"
        _gather(parse(re.sub(escapes, r"\1", body)), self.facts, self.backticks + 1)

    def visit_process_substitution(self, node: Node, place: _Place) -> None:
        self.substitution(node)
        self.visit_children(node, _Place(place.depth, in_function=place.in_function, certain=False))

    def substitution(self, node: Node) -> None:
        self.facts.substitution = self.facts.substitution or self.text(node)[:60]

    def visit_string(self, node: Node, place: _Place) -> None:
        for child in node.children:
            if child.is_named and child.type not in _HOLES and child.type != "string_content":
                raise self.opaque(node)
        self.visit_children(node, place._replace(expanding=True))

    def visit_expansion(self, node: Node, place: _Place) -> None:
        text = self.text(node)
        if re.search(r"@[A-Za-z]*P[A-Za-z]*\}\Z", text):
            raise Refused(text[:60], "it expands the text of a variable as a prompt, running what it holds")
        if re.match(r"\$\{![A-Za-z0-9_@*]+(\[[^@*].*\])?[^A-Za-z0-9_@*\[]", text):
            self.evaluate(node)  # the variable's text names what is read, subscript included
        elif re.match(r"\$\{[A-Za-z0-9_@*]+(\[.*\])?:(?![-=?+])", text):
            self.evaluate(node)
        if assigned := re.match(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(\[.*\])?:?=", text):
            itself = Word(text, (Hole(node.type, text),), False, False)  # it becomes what it gives
            self.facts.assignments.append(Assignment(assigned[1], text[:60], itself))
        self.visit_children(node, place._replace(expanding=True))

    def evaluate(self, node: Node) -> None:
        text = re.sub(r"\$\([^(].*?\)|`[^`]*`", " ", self.text(node), flags=re.DOTALL)
        self.facts.evaluations.append(Evaluation(self.text(node)[:60], frozenset(_NAME.findall(text))))

    def visit_arithmetic_expansion(self, node: Node, place: _Place) -> None:
        self.evaluate(node)
        self.visit_children(node, place._replace(expanding=True))

    def visit_c_style_for_statement(self, node: Node, place: _Place) -> None:
        body = node.child_by_field_name("body")
        check_gaps(self.masked, node)
        for child in node.children:
            if body is not None and child.id == body.id:
                self.visit(child, place._replace(depth=place.depth + 1, certain=False))
            elif child.is_named:
                self.evaluate(child)
                self.visit(child, place._replace(depth=place.depth + 1, expanding=True))

    def check_opening(self, node: Node) -> None:
        """`{` and `[[` are words: with a letter behind them they would be a command's name."""
        opening = node.children[0]
        behind = self.source[opening.end_byte : opening.end_byte + 1]
        if opening.type in ("{", "[[") and behind not in (b" ", b"\t", b"\n"):
            raise Refused(self.text(node)[:60], f"a blank is missing behind {opening.type}")

    def visit_compound_statement(self, node: Node, place: _Place) -> None:
        self.check_opening(node)
        calculates = self.source.startswith(b"((", node.start_byte)
        if calculates:
            self.evaluate(node)
        self.visit_children(node, place._replace(expanding=place.expanding or calculates))

    def visit_subscript(self, node: Node, place: _Place) -> None:
        index = node.child_by_field_name("index")
        if index is not None and self.text(index) not in ("@", "*"):
            self.evaluate(index)
        self.visit_children(node, place._replace(expanding=True))

    def visit_test_command(self, node: Node, place: _Place) -> None:
        self.check_opening(node)
        if not self.masked.startswith((b"[[", b"(("), node.start_byte):
            raise Refused(self.text(node)[:60], "this test cannot be read reliably", "write it with [[ … ]]")
        numeric = _NUMERIC_TESTS.search(self.masked, node.start_byte, node.end_byte) is not None
        if numeric or self.masked.startswith(b"((", node.start_byte):
            self.evaluate(node)
        self.visit_children(node, place._replace(expanding=numeric))

    # assignments

    def visit_variable_assignment(self, node: Node, place: _Place) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        target = re.match(r"[A-Za-z_][A-Za-z0-9_]*", self.text(name)) if name else None
        if name is None or target is None or (name.type == "variable_name" and target[0] != self.text(name)):
            if place.expanding:  # `i = 0` in arithmetic
                self.visit_children(node, place)
                return
            raise Refused(self.text(node)[:60], "this assignment cannot be read reliably")
        if not place.expanding:
            check_joined(self.source, node)
        self.visit_children(node, place)
        many = value is not None and value.type == "array"
        elements = [] if value is None else value.children[1:-1] if many else [value]
        appends = not many and any(child.type == "+=" for child in node.children)
        raw = self.text(node)[:60]
        words = self.words([element for element in elements if element.type in _WORD_PARTS])
        split: Literal["holes", ""] = "holes" if many else ""
        self.facts.assignments += [Assignment(target[0], raw, word, appends, split) for word in words]
        read_keys(target[0], words if many else [], self.facts)
        if not words:
            self.facts.assignments.append(Assignment(target[0], raw, None, appends))

    def visit_for_statement(self, node: Node, place: _Place) -> None:
        name = node.child_by_field_name("variable")
        values = node.children_by_field_name("value")
        label = self.text(name) if name else ""
        everything = Word('"$@"', (Hole("simple_expansion", "$@", "@", quoted=True),), False, False)
        for word in self.words(values) or [everything]:
            self.facts.assignments.append(Assignment(label, f"for {label}", word, split="holes"))
        self.visit_children(node, place._replace(certain=False))
