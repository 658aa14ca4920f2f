"""What fake sandboxes run when a test registered nothing: a few commands, `;`, `&&`, `&`, `>` and `>>`.

It is no shell. What it does not know it refuses loudly, so that no test passes by accident; for more, register a
behaviour with `FakeProvider.on`.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hutch.model.errors import HutchError, SandboxFileNotFound
from hutch.model.session import WORKSPACE_DIR
from hutch.testing.fake_files import Link
from hutch.testing.fake_process import Behaviour, Running

_QUOTED = re.compile(r"'[^']*'")
_FOREIGN = re.compile(r"[$`*?\[\]{}()|<\\\n#~]")
# Words a real shell would obey: "command not found" would be a lie for them.
_SHELL_WORDS = (
    "if then elif else fi for select while until do done case esac time coproc function ! [[ { . source [ alias bg "
    "break builtin cd command continue declare disown enable eval exec export fg getopts hash history jobs kill let "
    "local printf pushd popd read readonly return set shift shopt test times trap type typeset ulimit umask unalias "
    "unset wait"
)
_PROGRAMS = "cat echo false ln printenv pwd sleep true write yes"


class UnknownCommand(LookupError):
    """The fake has no behaviour for this command; the test must register one."""


@dataclass(frozen=True, slots=True)
class Step:
    words: tuple[str, ...]
    target: str | None = None  # of `>` or `>>`
    append: bool = False
    background: bool = False
    only_after_success: bool = False


def parse(text: str) -> list[Step]:
    """Raises: UnknownCommand when `text` needs more of a shell than this is."""
    if _FOREIGN.search(_QUOTED.sub("", text)):
        raise UnknownCommand(f"the fake cannot interpret {text!r}: register a behaviour with on(…)")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&>")
    lexer.whitespace_split = True
    steps: list[Step] = []
    words: list[str] = []
    after_success = False
    for token in [*lexer, ";"]:
        if token not in (";", "&", "&&"):
            words.append(token)
            continue
        if words:
            steps.append(_step(words, background=token == "&", after_success=after_success))
        after_success = token == "&&"
        words = []
    return steps


def _step(words: Sequence[str], *, background: bool, after_success: bool) -> Step:
    if words[0] in _SHELL_WORDS.split() or "=" in words[0]:
        raise UnknownCommand(f"the fake does not know {words[0]!r}: register a behaviour for the whole command")
    for operator in (">", ">>"):
        if operator in words:
            at = words.index(operator)
            if at != len(words) - 2:
                raise UnknownCommand(f"the fake wants exactly one name after {operator}: {' '.join(words)!r}")
            return Step(tuple(words[:at]), words[at + 1], operator == ">>", background, after_success)
    return Step(tuple(words), None, False, background, after_success)


def shell(text: str) -> Behaviour:
    """A behaviour that runs `text`. Raises: UnknownCommand."""
    steps = parse(text)

    async def run(me: Running) -> int:
        code = 0
        for step in steps:
            if step.only_after_success and code != 0:
                continue
            if step.words[0] == "exit":
                return int(step.words[1]) if len(step.words) > 1 else code
            if step.background:
                me.child(step.words[0], one(step))
                code = 0
            elif step.words[0] == "sleep":
                code = (await me.child("sleep", one(step)).ended).exit_code
            else:
                code = await run_step(me, step)
        return code

    return run


def words(argv: Sequence[str]) -> Behaviour:
    """A behaviour for an argument vector without a shell. Raises: SandboxFileNotFound (no such program)."""
    if argv[0] not in _PROGRAMS.split():
        raise SandboxFileNotFound(f"no such program in the sandbox: {argv[0]!r}", path=argv[0])
    return one(Step(tuple(argv)))


def one(step: Step) -> Behaviour:
    async def run(me: Running) -> int:
        return await run_step(me, step)

    return run


async def run_step(me: Running, step: Step) -> int:
    name, *arguments = step.words
    kept = bytearray()
    printer: Callable[[bytes], object] = me.out if step.target is None else kept.extend
    code = await _run_command(me, name, arguments, printer)
    if step.target is not None:
        try:
            path = workspace_path(me, step.target)
            old = me.computer.tree.file(path).data if step.append and me.computer.tree.find(path).node else b""
            me.computer.tree.write(path, old + bytes(kept))
        except HutchError as error:
            me.err(f"bash: {step.target}: {error}\n")
            return 1
    return code


async def _run_command(me: Running, name: str, arguments: list[str], put: Callable[[bytes], object]) -> int:
    match name, arguments:
        case "true", _:
            return 0
        case "false", _:
            return 1
        case "echo", ["-n", *rest]:
            put(" ".join(rest).encode())
        case "echo", rest:
            put((" ".join(rest) + "\n").encode())
        case "pwd", []:
            put((me.request.cwd + "\n").encode())
        case "printenv", [variable]:
            if variable not in me.request.env:
                return 1
            put((me.request.env[variable] + "\n").encode())
        case "sleep", [seconds]:
            await me.sleep(float(seconds))
        case "yes", []:
            await me.flood()
        case "ln", ["-s", target, name]:
            me.computer.tree.put(workspace_path(me, name), Link(target))
        case "write", [path, text]:
            me.computer.tree.write(workspace_path(me, path), text.encode())
        case "cat", paths:
            return await _cat(me, paths, put)
        case _:
            me.err(f"bash: {name}: command not found\n")
            return 127
    return 0


async def _cat(me: Running, paths: list[str], put: Callable[[bytes], object]) -> int:
    if not paths:
        while data := await me.read():
            put(data)
        return 0
    code = 0
    for path in paths:
        try:
            put(me.computer.tree.file(workspace_path(me, path)).data)
        except HutchError as error:
            me.err(f"cat: {path}: {error}\n")
            code = 1
    return code


def workspace_path(me: Running, path: str) -> str:
    """A path as a command writes it, relative to the workspace."""
    whole = posixpath.normpath(posixpath.join(me.request.cwd, path))
    return posixpath.relpath(whole, WORKSPACE_DIR) if whole.startswith(WORKSPACE_DIR) else whole
