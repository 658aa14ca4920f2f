"""The rules: facts of a command and a profile in, nothing or a refusal out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hutch.policy import builtins, made_options, programs
from hutch.policy.accounting import CARRIAGE_RETURN
from hutch.policy.facts import Assignment, Call, Evaluation, Facts, Function
from hutch.policy.names import INSTEAD, INTEGERS, REFUSED_BUILTINS, WRAPPERS, is_dangerous
from hutch.policy.profile import Profile
from hutch.policy.values import UNKNOWN, Values, check_evaluations
from hutch.policy.verdict import Refused
from hutch.policy.words import Word

MAX_NESTED_COMMANDS = 5
_SYSTEM_PATH = re.compile(r"/(?:usr/)?bin/([^/]+)")
_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_.:+@-]+")
# A dash or an expansion that comes first in one of {these,words}, or behind one that is empty.
_BRACED_OPTION = re.compile(r"[{,][-\0]|\.\.-|[{,][,}].*\}[-\0]", re.DOTALL)
_HOME = frozenset({"HOME", "PWD", "OLDPWD"})  # what ~, ~+ and ~- stand for
_FOLDER = re.compile(r"[/\0][\w\0 ./@%+,=:-]*")
_NETWORK_PATH = re.compile(r"/dev/(tcp|udp)/")


def check_facts(facts: Facts, profile: Profile) -> None:
    """Raises: Refused at the first thing the profile does not allow."""
    _Rules(facts, profile).check()


class _Rules:
    def __init__(self, facts: Facts, profile: Profile) -> None:
        self.facts = facts
        self.profile = profile
        self.functions: dict[str, list[Function]] = {}
        self.first_call = 0  # of a function, from outside any function
        self.values = Values(())

    def check(self) -> None:
        self.check_shape()
        for function in self.facts.functions:
            self.define(function)
        outside = [call for call in self.facts.calls if not call.in_function and call.words]
        self.first_call = min((call.start for call in outside if call.words[0].literal in self.functions), default=0)
        names = [self.name(call) for call in self.facts.calls]
        for call, name in zip(self.facts.calls, names, strict=True):
            if name in self.functions:
                self.pass_arguments(call)
            elif name in builtins.CHECKS:
                builtins.CHECKS[name](call, self.facts)
        for assignment in self.facts.assignments:
            if is_dangerous(assignment.name):
                raise builtins.dangerous(assignment.name, assignment.raw)
            if assignment.name in INTEGERS:
                self.facts.evaluations.append(Evaluation(assignment.raw, frozenset({assignment.name})))
        self.values = Values(self.facts.assignments, self.facts.recased)
        for call, name in zip(self.facts.calls, names, strict=True):
            self.check_arguments(name, call)
            if name in made_options.CHECKS:
                made_options.CHECKS[name](call, self.values)
        made_options.check_compounds(self.facts, self.values)
        self.check_homes()
        self.check_redirections()
        check_evaluations(self.facts.evaluations, self.values, self.facts)

    def check_shape(self) -> None:
        profile, facts = self.profile, self.facts
        if facts.background and not profile.background:
            raise Refused("&", "this profile does not allow background commands")
        if facts.substitution and not profile.substitutions:
            raise Refused(facts.substitution, "this profile does not allow substitutions")
        if facts.functions and not profile.functions:
            raise Refused(facts.functions[0].name.raw, "this profile does not allow functions")

    # names

    def define(self, function: Function) -> None:
        name = function.name.raw
        if _FUNCTION_NAME.fullmatch(name) is None:
            raise Refused(name[:60], "this is no plain name for a function", "use letters, digits and _")
        taken = self.profile.programs | self.profile.builtins | set(self.profile.forbidden)
        if name in taken or name in REFUSED_BUILTINS or name in WRAPPERS:
            raise Refused(name, "a function may not take the name of a command", "give it another name")
        self.functions.setdefault(name, []).append(function)

    def name(self, call: Call) -> str:
        """The command that runs, or "" when a call has no name. `time` is a word in front of one."""
        words = call.words
        while call.begins and words and words[0].raw == "time":
            del words[0]
            while words and words[0].raw in ("-p", "--"):
                del words[0]
        if not words:
            return ""
        word = words[0]
        if word.literal in ("[[", "(("):
            raise Refused(word.raw[:60], "quoted, this is no test but a name nothing has", "write it without quotes")
        if word.literal is None or (word.pattern and word.raw != "["):
            if self.profile.dynamic_names:
                return ""
            kind = "a pattern" if word.literal is not None else "an expansion"
            hint = "write the command's name out, as a plain word"
            raise Refused(word.raw[:60], f"{kind} decides which command runs", hint)
        name = word.literal
        if name in self.functions and self.reached(call, name):
            return name
        return self.allowed(name, word.raw)

    def reached(self, call: Call, name: str) -> bool:
        """Whether the function is surely defined when it is called."""
        limit = max(self.first_call, call.start) if call.in_function else call.start
        if any(function.certain and function.start < limit for function in self.functions[name]):
            return True
        hint = "define it before it is called, and not inside if, && or a loop"
        raise Refused(name, "this function may not be defined when it is called", hint)

    def allowed(self, name: str, raw: str) -> str:
        profile = self.profile
        path = _SYSTEM_PATH.fullmatch(name)
        if path and (path[1] in profile.programs or (profile.any_name and path[1] not in profile.forbidden)):
            return path[1]
        plain = name.rsplit("/", 1)[-1]
        if plain in profile.forbidden:
            raise Refused(raw[:60], f"{plain} is forbidden", profile.forbidden[plain])
        if profile.any_name or name in profile.programs or name in profile.builtins:
            return name
        raise self.unknown(name, raw)

    def unknown(self, name: str, raw: str) -> Refused:
        word = raw[:60] or "''"
        if name in REFUSED_BUILTINS:
            return Refused(word, f"{name} is not allowed", REFUSED_BUILTINS[name])
        if "\r" in name:
            return Refused(word, CARRIAGE_RETURN, "end lines with \\n alone")
        if not name.isascii():
            hint = "write it with plain letters"
            return Refused(word, "it is not on the list; it has letters that only look like others", hint)
        if "/" in name:
            return Refused(word, "a program is named by its plain name", "only allowed programs run, not files")
        return Refused(word, "it is not on the list", INSTEAD.get(name, ""))

    # arguments

    def pass_arguments(self, call: Call) -> None:
        for word in call.words[1:]:
            self.facts.assignments.append(Assignment("@", word.raw, word, split="holes"))

    def check_arguments(self, name: str, call: Call) -> None:
        if name in self.functions or (name not in programs.CHECKS and name not in WRAPPERS):
            return
        for word in call.words[1:]:
            self.check_spread(word)
        for vector in self.values.vectors(call.words[1:]):
            self.check_program(name, vector, 0)

    def check_spread(self, word: Word) -> None:
        """An option must not come out of a brace or a file's name."""
        if not word.pattern:
            return
        for text in self.values.texts(word):
            bare = text.lstrip(UNKNOWN)
            if text.startswith("-") or (word.braces and bare.startswith("{") and _BRACED_OPTION.search(bare)):
                hint = "write the arguments out, or quote it"
                raise Refused(word.raw[:60], "bash would make other arguments of it", hint)

    def check_program(self, name: str, arguments: Sequence[str], depth: int) -> None:
        if depth > MAX_NESTED_COMMANDS:
            raise Refused(name, "commands are nested too deep")
        if check := programs.CHECKS.get(name):
            check(arguments, self.profile.redirections)
        inner: list[list[str]] = []
        if name == "find":
            inner = list(programs.find_commands(arguments))
        elif name in WRAPPERS:
            inner = [command for command in [programs.wrapped_command(arguments)] if command]
        for command in inner:
            self.check_started(command, depth)

    def check_started(self, command: Sequence[str], depth: int) -> None:
        """A program that another one starts: no built-in, no function."""
        if not command or UNKNOWN in command[0] or "{}" in command[0]:
            shown = command[0].replace(UNKNOWN, "…") if command else "-exec"
            raise Refused(shown, "it is not known which program would start", "write the program's name out")
        name = self.allowed(command[0], command[0])
        if not self.profile.any_name and name not in self.profile.programs:
            raise Refused(command[0], "only a program can be started there")
        arguments = [argument.replace("{}", UNKNOWN) for argument in command[1:]]  # find puts a file's name there
        self.check_program(name, arguments, depth + 1)

    def check_homes(self) -> None:
        for assignment in self.facts.assignments:
            texts = self.values.texts(assignment.value) if assignment.name in _HOME and assignment.value else []
            if any(_FOLDER.fullmatch(text) is None for text in texts):
                raise Refused(assignment.raw, "~ would stand for this text", "give it a folder's whole path")

    def check_redirections(self) -> None:
        for redirection in self.facts.redirections:
            texts = self.values.texts(redirection.target) if redirection.target else []
            if any(_NETWORK_PATH.match(text) for text in texts):
                raise Refused(redirection.raw, "a sandbox has no network", "bring files in with upload_file")
            if redirection.writes and not self.profile.redirections and texts != ["/dev/null"]:
                raise Refused(redirection.raw, "this profile does not allow writing files")
