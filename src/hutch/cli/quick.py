"""`hutch exec` without typer, which takes longer to load than a command takes to run.

It understands the plain spellings of the options that `verbs.py` declares, and leaves everything else (help, mistakes,
rare spellings) to typer by returning None. A test holds the two to the same answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hutch.cli.exec import ExecRequest

TEXTS = {
    "--thread": "thread",
    "-t": "thread",
    "--user": "user",
    "--template": "template",
    "--policy": "policy",
    "--timeout": "timeout",
    "--cwd": "cwd",
    "--url": "url",
    "--api-key": "api_key",
    "--env": "env",
    "-e": "env",
}
FLAGS = {"--stdin": ("stdin", True), "--no-stdin": ("stdin", False), "--json": ("as_json", True)}
SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?\Z", re.ASCII)


def exec_request(arguments: Sequence[str]) -> ExecRequest | None:
    if arguments[:1] != ["exec"]:
        return None
    found: dict[str, Any] = {}
    env: dict[str, str] = {}
    rest = list(arguments[1:])
    while rest and rest[0].startswith("-") and rest[0] != "--":
        word = rest.pop(0)
        if word in FLAGS:
            name, found[name] = FLAGS[word]
            continue
        option, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if option not in TEXTS or not (equals or rest):
            return None
        if not _keep(found, env, TEXTS[option], value if equals else rest.pop(0)):
            return None
    command = tuple(rest[1:] if rest[:1] == ["--"] else rest)
    return ExecRequest(command, **found, env=env) if command else None


def _keep(found: dict[str, Any], env: dict[str, str], name: str, value: str) -> bool:
    """False when the value needs somebody to complain about it."""
    if name == "env":
        variable, equals, content = value.partition("=")
        env[variable] = content
        return bool(variable and equals)
    if name == "timeout":
        if SECONDS.match(value) is None:
            return False
        found[name] = float(value)
        return True
    found[name] = value
    return True
