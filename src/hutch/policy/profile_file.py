"""Profiles of one's own, from a TOML file. The only I/O of the policy."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hutch.model.errors import SettingsInvalid
from hutch.policy.profile import OPEN, STRICT, Profile

_SWITCHES = ("any_name", "redirections", "dynamic_names", "functions", "background", "substitutions")
_LISTS = ("allow", "builtins", "forbid")
_KEYS = frozenset({"name", "base", "hints", *_SWITCHES, *_LISTS})
_NAME = re.compile(r"[^\s/;|&<>()$`\"'\\]+")


def load_profile(path: Path) -> Profile:
    """Read a profile. `base` ("strict" or "none") is what the lists add to; a forbidden name leaves the lists.

    Raises: SettingsInvalid, naming the file and the key.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsInvalid(f"policy profile {path} cannot be read: {error}", file=str(path), key="") from error
    unknown = sorted(set(data) - _KEYS)
    if unknown:
        raise _invalid(path, unknown[0], f"is not a key of a profile; the keys are {', '.join(sorted(_KEYS))}")
    return _Reader(path, data).profile()


def _invalid(path: Path, key: str, what: str) -> SettingsInvalid:
    return SettingsInvalid(f"policy profile {path}: {key} {what}", file=str(path), key=key)


class _Reader:
    def __init__(self, path: Path, data: Mapping[str, Any]) -> None:
        self.path = path
        self.data = data

    def profile(self) -> Profile:
        base = self.data.get("base", "strict")
        if base not in ("strict", "none"):
            raise _invalid(self.path, "base", 'must be "strict" or "none"')
        start = STRICT if base == "strict" else Profile(name="none")
        name = self.data.get("name", self.path.stem)
        if not isinstance(name, str) or not name or name in (STRICT.name, OPEN.name):
            raise _invalid(self.path, "name", "must be a text, and not the name of a profile that is there already")
        hints = self.hints()
        forbidden = {**start.forbidden, **{word: hints.get(word, "") for word in self.names("forbid")}}
        allowed = set(self.names("allow")) | set(self.names("builtins"))
        forbidden = {word: hint for word, hint in forbidden.items() if word not in allowed}
        if both := allowed & set(self.names("forbid")):
            raise _invalid(self.path, "forbid", f"names {min(both)}, which is allowed above")
        return Profile(
            name=name,
            programs=(start.programs | set(self.names("allow"))) - set(forbidden),
            builtins=(start.builtins | set(self.names("builtins"))) - set(forbidden),
            forbidden=forbidden,
            **{switch: self.switch(switch, getattr(start, switch)) for switch in _SWITCHES},
        )

    def names(self, key: str) -> list[str]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(word, str) and _NAME.fullmatch(word) for word in value):
            raise _invalid(self.path, key, "must be a list of plain command names")
        return value

    def hints(self) -> dict[str, str]:
        value = self.data.get("hints", {})
        if not isinstance(value, dict) or not all(isinstance(hint, str) for hint in value.values()):
            raise _invalid(self.path, "hints", "must be a table of name = text")
        if strange := set(value) - set(self.names("forbid")):
            raise _invalid(self.path, "hints", f"names {min(strange)}, which is not in forbid")
        return value

    def switch(self, key: str, default: bool) -> bool:
        value = self.data.get(key, default)
        if not isinstance(value, bool):
            raise _invalid(self.path, key, "must be true or false")
        return value
