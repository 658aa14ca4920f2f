"""The judgement itself: text and profile in, verdict out. Pure; nothing is run, no file is read."""

from __future__ import annotations

import threading
from collections import OrderedDict

from hutch.model.errors import CommandRejected
from hutch.model.limits import MAX_COMMAND_BYTES
from hutch.policy.broken import is_surely_broken
from hutch.policy.collect import collect
from hutch.policy.profile import Profile
from hutch.policy.rules import check_facts
from hutch.policy.syntax import parse, without_here_docs
from hutch.policy.verdict import Refused, Verdict

_REMEMBERED = 256
_REMEMBERED_BYTES = 4096  # a longer command is judged again: memory stays below a megabyte
_ALLOWED = Verdict(True)


class Judge:
    """Judges for one profile and remembers what it said of the last commands. Threads may share it."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._recent: OrderedDict[str, Verdict] = OrderedDict()
        self._lock = threading.Lock()

    def judge(self, command: str) -> Verdict:
        with self._lock:
            verdict = self._recent.get(command)
            if verdict is not None:
                self._recent.move_to_end(command)
                return verdict
        verdict = judge(command, self.profile)
        if len(command) <= _REMEMBERED_BYTES:
            with self._lock:
                self._recent[command] = verdict
                if len(self._recent) > _REMEMBERED:
                    self._recent.popitem(last=False)
        return verdict

    def check(self, command: str) -> None:
        """Raises: CommandRejected."""
        raise_refused(self.judge(command))


def judge(command: str, profile: Profile) -> Verdict:
    """Whether the command may run under the profile; never raises for a command."""
    try:
        _check(command, profile)
    except Refused as refused:
        names = profile.names if profile.judged else ()
        return Verdict(False, refused.word, refused.reason, names, refused.hint)
    except RecursionError:
        return Verdict(False, command[:60], "it is nested too deep", (), "split it into several commands")
    return _ALLOWED


def check(command: str, profile: Profile) -> None:
    """Raises: CommandRejected, which names the word, why, and what is allowed."""
    raise_refused(judge(command, profile))


def raise_refused(verdict: Verdict) -> None:
    """Raises: CommandRejected unless the verdict allows."""
    if verdict.allowed:
        return
    message = f"command rejected: {verdict.word!r}: {verdict.reason}"
    if verdict.hint:
        message += f"; {verdict.hint}"
    if verdict.allowed_names:
        message += f". Allowed: {' '.join(verdict.allowed_names)}"
    allowed = list(verdict.allowed_names)
    raise CommandRejected(message, word=verdict.word, reason=verdict.reason, allowed=allowed, hint=verdict.hint)


def _check(command: str, profile: Profile) -> None:
    if not command.strip():
        raise Refused("", "the command is empty")
    if "\0" in command:
        raise Refused("\\0", "it holds a NUL byte, which no command can", "write binary data with printf '\\000'")
    try:
        size_bytes = len(command.encode())
    except UnicodeEncodeError as error:
        word = ascii(command[error.start])[1:-1]
        raise Refused(word, "it is not valid text", "send characters that UTF-8 can hold") from None
    if size_bytes > MAX_COMMAND_BYTES:
        hint = "upload a script with upload_file and run that"
        raise Refused(command[:60], f"it is longer than {MAX_COMMAND_BYTES:,} bytes ({size_bytes:,})", hint)
    if profile.judged:
        check_facts(collect(parse(command)), profile)
    else:
        _check_syntax(command)


def _check_syntax(command: str) -> None:
    """Where all may run, bash itself tells of errors; here only what is surely one is refused before it starts."""
    try:
        parse(command)
    except Refused:
        if is_surely_broken(without_here_docs(command)):
            raise
