from __future__ import annotations

import math

import pytest
from hypothesis import given, stateful
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hutch.lifecycle.deadline import AbsoluteRule, Deadline, Facts, IdleRule, next_deadline, rule_of, when_due
from hutch.model.session import DeadlineAction

# No time bound of its own, and nothing written beside the tests.
any_speed = hypothesis_settings(deadline=None, database=None)

THREAD = IdleRule(timeout=1800, stop_after=300)


def facts(now: float, *, last: float, busy: bool = False, machine_runs: bool = True) -> Facts:
    return Facts(now=now, last_activity=last, busy=busy, machine_runs=machine_runs)


@pytest.mark.parametrize(
    ("rule", "seen", "deadline"),
    [
        (THREAD, facts(0, last=0), Deadline(300, "stop")),
        (THREAD, facts(100, last=50), Deadline(350, "stop")),
        (THREAD, facts(100, last=50, machine_runs=False), Deadline(1850, "remove")),
        (THREAD, facts(100, last=50, busy=True), Deadline(400, "stop")),
        (THREAD, facts(100, last=900), Deadline(400, "stop")),  # the clock was set back
        (IdleRule(1800, None), facts(100, last=50), Deadline(1850, "remove")),
        (IdleRule(1800, None), facts(100, last=50, busy=True), Deadline(1900, "remove")),
        (IdleRule(60, 300), facts(0, last=0), Deadline(60, "remove")),  # shorter than the stop: just removed
        (IdleRule(300, 300), facts(0, last=0), Deadline(300, "remove")),
        (AbsoluteRule(500), facts(499, last=499, busy=True), Deadline(500, "remove")),
        (AbsoluteRule(500), facts(10, last=0), Deadline(500, "remove")),
        (AbsoluteRule(math.inf), facts(10, last=0), Deadline(math.inf, "remove")),
    ],
)
def test_when_to_look_next(rule: IdleRule | AbsoluteRule, seen: Facts, deadline: Deadline) -> None:
    assert next_deadline(rule, seen) == deadline


@pytest.mark.parametrize(
    ("rule", "seen", "answer"),
    [
        (THREAD, facts(299, last=0), Deadline(300, "stop")),
        (THREAD, facts(300, last=0), "stop"),
        (THREAD, facts(300, last=0, machine_runs=False), Deadline(1800, "remove")),
        (THREAD, facts(300, last=250), Deadline(550, "stop")),  # used meanwhile
        (THREAD, facts(300, last=0, busy=True), Deadline(600, "stop")),  # something runs
        (THREAD, facts(1800, last=0), "remove"),  # the stop was slept through
        (THREAD, facts(1800, last=0, machine_runs=False), "remove"),
        (THREAD, facts(9999, last=0, busy=True), Deadline(10_299, "stop")),
        (AbsoluteRule(500), facts(499, last=0), Deadline(500, "remove")),
        (AbsoluteRule(500), facts(500, last=500, busy=True), "remove"),
        (AbsoluteRule(math.inf), facts(1e12, last=0), Deadline(math.inf, "remove")),
    ],
)
def test_what_to_do_when_it_is_time(
    rule: IdleRule | AbsoluteRule, seen: Facts, answer: DeadlineAction | Deadline
) -> None:
    assert when_due(rule, seen) == answer


def test_the_rule_of_a_stored_sandbox() -> None:
    assert rule_of(1800, 5.0, 300) == IdleRule(1800, 300)
    assert rule_of(1800, 5.0, None) == IdleRule(1800, None)
    assert rule_of(0, 5.0, 300) == AbsoluteRule(5.0)


SECONDS = st.floats(min_value=0, max_value=1e6, allow_nan=False)
LENGTHS = st.floats(min_value=1, max_value=1e5, allow_nan=False)
RULES = st.builds(IdleRule, LENGTHS, st.none() | LENGTHS) | st.builds(AbsoluteRule, SECONDS)
FACTS = st.builds(Facts, SECONDS, SECONDS, st.booleans(), st.booleans())


@any_speed
@given(RULES, FACTS)
def test_acting_and_looking_agree(rule: IdleRule | AbsoluteRule, seen: Facts) -> None:
    answer = when_due(rule, seen)
    deadline = next_deadline(rule, seen)
    if isinstance(answer, Deadline):
        assert answer == deadline
        assert answer.at > seen.now  # looking again is never at once: the sweeper cannot spin
    else:
        assert deadline.at <= seen.now
    if answer == "stop":
        assert seen.machine_runs
        assert not seen.busy


@any_speed
@given(st.builds(IdleRule, LENGTHS, st.none() | LENGTHS), FACTS)
def test_an_idle_sandbox_that_is_busy_or_was_just_used_stays(rule: IdleRule, seen: Facts) -> None:
    if seen.busy or seen.last_activity >= seen.now:
        assert isinstance(when_due(rule, seen), Deadline)


class SweptSandbox(stateful.RuleBasedStateMachine):
    """One thread's sandbox, a clock, and a sweeper that looks only when the stored deadline has come."""

    thread = IdleRule(timeout=1800, stop_after=300)

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.quiet_since = 0.0
        self.busy = False
        self.runs = True
        self.gone = False
        self.deadline = next_deadline(self.thread, self.facts())

    def facts(self) -> Facts:
        return Facts(self.now, self.quiet_since, self.busy, self.runs)

    @stateful.rule(seconds=st.integers(1, 900))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        if self.busy:
            self.quiet_since = self.now
        self.sweep()

    @stateful.rule(keeps_running=st.booleans())
    def it_is_used(self, keeps_running: bool) -> None:
        if not self.gone:
            self.quiet_since, self.busy, self.runs = self.now, keeps_running, True
            self.deadline = next_deadline(self.thread, self.facts())

    @stateful.rule()
    def what_ran_ends(self) -> None:
        self.busy = False

    def sweep(self) -> None:
        while not self.gone and self.deadline.at <= self.now:
            answer = when_due(self.thread, self.facts())
            if isinstance(answer, Deadline):
                self.deadline = answer
                continue
            assert not self.busy
            if answer == "remove":
                assert self.now - self.quiet_since >= self.thread.timeout
                self.gone = True
            else:
                assert self.now - self.quiet_since >= 300
                self.runs = False
                self.deadline = next_deadline(self.thread, self.facts())

    @stateful.invariant()
    def it_is_gone_exactly_when_it_was_quiet_for_long_enough(self) -> None:
        assert self.gone or self.now - self.quiet_since < self.thread.timeout

    @stateful.invariant()
    def its_machine_runs_only_while_it_was_used_lately(self) -> None:
        assert self.gone or not self.runs or self.now - self.quiet_since < 300


SweptSandbox.TestCase.settings = hypothesis_settings(any_speed, max_examples=60, stateful_step_count=40)
TestSweptSandbox = SweptSandbox.TestCase
