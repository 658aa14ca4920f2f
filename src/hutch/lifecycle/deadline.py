"""When a sandbox is looked at next, and what is done then.

A sandbox has one deadline with one action. Two kinds:

- *idle* (threads): the sandbox goes when nothing happened for `timeout` seconds. Use counts as activity, and so does a
  process that runs. Before that, its machine may be stopped to save memory, when nothing runs in it.
- *absolute* (`create(timeout=)`): it goes at a fixed time, whatever happens in it, and only its owner moves that time.
  Its machine is never stopped before: what was promised is a computer for that long, /tmp and all.

A stored deadline is a promise to look, not to act: whoever looks asks `when_due` with what is true by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hutch.model.session import DeadlineAction


class Deadline(NamedTuple):
    at: float
    action: DeadlineAction


@dataclass(frozen=True, slots=True)
class IdleRule:
    timeout: float  # seconds without activity until it is removed
    stop_after: float | None  # seconds without activity until its machine is stopped; None: never


@dataclass(frozen=True, slots=True)
class AbsoluteRule:
    ends_at: float


Rule = IdleRule | AbsoluteRule


@dataclass(frozen=True, slots=True)
class Facts:
    now: float
    last_activity: float
    busy: bool  # a process runs in it, or a call is under way
    machine_runs: bool


def rule_of(idle_seconds: float, deadline_at: float, stop_after: float | None) -> Rule:
    """The rule of a stored sandbox: one without an idle time-out has an absolute deadline, the stored one."""
    return IdleRule(idle_seconds, stop_after) if idle_seconds > 0 else AbsoluteRule(deadline_at)


def next_deadline(rule: Rule, facts: Facts) -> Deadline:
    """The next moment at which something may have to be done, if nothing happens until then."""
    if isinstance(rule, AbsoluteRule):
        return Deadline(rule.ends_at, "remove")
    quiet_since = _quiet_since(facts)
    remove_at = quiet_since + rule.timeout
    if rule.stop_after is not None and facts.machine_runs and quiet_since + rule.stop_after < remove_at:
        return Deadline(quiet_since + rule.stop_after, "stop")
    return Deadline(remove_at, "remove")


def when_due(rule: Rule, facts: Facts) -> DeadlineAction | Deadline:
    """What to do now, or, when it is not time yet (there was activity, or something runs), when to look again."""
    deadline = next_deadline(rule, facts)
    if isinstance(rule, IdleRule) and facts.now >= _quiet_since(facts) + rule.timeout:
        return "remove"  # also when the stop before it was slept through
    return deadline.action if facts.now >= deadline.at else deadline


def _quiet_since(facts: Facts) -> float:
    """The latest activity. One in the future, after the clock was set back, must not keep a sandbox for ever."""
    return facts.now if facts.busy else min(facts.last_activity, facts.now)
