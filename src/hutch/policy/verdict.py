"""What the policy says about a command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    word: str = ""  # what was refused, as written
    reason: str = ""
    allowed_names: tuple[str, ...] = ()  # what the profile lets stand where a command name stands; empty: anything
    hint: str = ""  # what to do instead


class Refused(Exception):
    """Raised inside the policy at the first thing that may not run; never leaves it."""

    def __init__(self, word: str, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.word = word
        self.reason = reason
        self.hint = hint
