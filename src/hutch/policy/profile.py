"""Profiles: what a command may be made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hutch.model.template import ALLOWED_PROGRAMS

_BUILTINS = frozenset(
    ": [ [[ (( break cd continue declare echo exit export false let local printf pwd read return set shift test true "
    "type unset wait".split()
)
_FORBIDDEN: Mapping[str, str] = {
    "rm": "remove files with files.remove(path)",
    "mv": "rename files with files.move(source, target)",
    "dd": "cut bytes with head -c and tail -c",
    "curl": "a sandbox has no network: bring files in with upload_file",
    "wget": "a sandbox has no network: bring files in with upload_file",
    "ssh": "a sandbox has no network",
    "sudo": "there are no privileges to gain: run the command itself",
    "chmod": "files need no modes here: run a script as python3 script.py",
    "chown": "all files belong to the sandbox's only user",
}


@dataclass(frozen=True, slots=True)
class Profile:
    """`judged` False looks at the text only (length, NUL, syntax); everything below it then does not matter."""

    name: str
    judged: bool = True
    any_name: bool = False  # every name that is not forbidden may run (a deny list)
    programs: frozenset[str] = frozenset()
    builtins: frozenset[str] = frozenset()
    forbidden: Mapping[str, str] = field(default_factory=dict[str, str])  # name -> what to do instead
    redirections: bool = True  # may write files: `>`, tee, sort -o, sed w, awk >
    dynamic_names: bool = False  # a command name may come from an expansion
    functions: bool = True
    background: bool = True
    substitutions: bool = True  # $(…), `…`, <(…)

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that may stand where a command name stands; empty when any may."""
        return () if self.any_name else tuple(sorted(self.programs | self.builtins))


STRICT = Profile(
    name="strict",
    programs=frozenset(ALLOWED_PROGRAMS) | {"id", "whoami"},
    builtins=_BUILTINS,
    forbidden=_FORBIDDEN,
)
OPEN = Profile(name="open", judged=False)
