from __future__ import annotations

from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hutch.lifecycle.sandbox import (
    HISTORY_KEPT,
    TRANSITIONS,
    AwaitStart,
    DeleteFiles,
    ForgetSession,
    Instruction,
    SandboxEvent,
    SandboxLife,
    StartMachine,
    StopMachine,
    SweepMachine,
    UnknownTransition,
    step,
)
from hutch.model.session import SandboxState

# No time bound of its own, and nothing written beside the tests.
any_speed = hypothesis_settings(deadline=None, database=None)

STATES: tuple[SandboxState | None, ...] = (None, *get_args(SandboxState))
EVENTS: tuple[SandboxEvent, ...] = get_args(SandboxEvent)
END = (StopMachine(), DeleteFiles(), ForgetSession())


def run(*events: SandboxEvent) -> tuple[SandboxState | None, list[tuple[Instruction, ...]]]:
    life, done = SandboxLife(None), []
    for event in events:
        life, instructions = step(life, event)
        done.append(instructions)
    return life.state, done


@pytest.mark.parametrize(
    ("events", "state", "last"),
    [
        (("create",), "creating", (StartMachine(),)),
        (("create", "started"), "running", ()),
        (("create", "start_failed"), "removing", END),
        (("create", "wake"), "creating", (AwaitStart(),)),
        (("create", "died"), "stopped", (SweepMachine(),)),
        (("create", "started", "wake"), "running", ()),
        (("create", "started", "stop"), "running", (StopMachine(),)),
        (("create", "started", "stop", "stopped"), "stopped", ()),
        (("create", "started", "died"), "stopped", (SweepMachine(),)),
        (("create", "started", "died", "wake"), "creating", (StartMachine(),)),
        (("create", "started", "died", "wake", "restart_failed"), "stopped", (SweepMachine(),)),
        (("create", "started", "died", "wake", "started"), "running", ()),
        (("create", "started", "expire"), "removing", END),
        (("create", "started", "remove", "died"), "removing", ()),
        (("create", "remove", "started"), "removing", END),
        (("create", "started", "remove", "remove"), "removing", END),
        (("create", "started", "remove", "removed"), "removed", ()),
        (("create", "started", "remove", "removed", "died"), "removed", ()),
    ],
)
def test_what_happens_to_a_sandbox(
    events: tuple[SandboxEvent, ...], state: SandboxState, last: tuple[Instruction, ...]
) -> None:
    reached, done = run(*events)
    assert reached == state
    assert done[-1] == last


@pytest.mark.parametrize(("state", "event"), list(product(STATES, EVENTS)))
def test_every_pair_has_an_outcome_or_raises_with_its_history(state: SandboxState | None, event: SandboxEvent) -> None:
    life = SandboxLife(state, (("create", "creating"), ("started", "running")))
    if (state, event) in TRANSITIONS:
        after, instructions = step(life, event)
        assert (after.state, instructions) == TRANSITIONS[state, event]
        assert after.history[-1] == (event, after.state)
        return
    with pytest.raises(UnknownTransition) as caught:
        step(life, event)
    assert caught.value.details == {
        "state": state,
        "event": event,
        "history": ["create -> creating", "started -> running"],
    }
    assert event in str(caught.value)


@pytest.mark.parametrize("state", [state for state in STATES if state is not None])
@pytest.mark.parametrize("event", ["expire", "remove"])
def test_an_end_can_be_begun_from_anywhere_and_begun_again(state: SandboxState, event: SandboxEvent) -> None:
    life, instructions = step(SandboxLife(state), event)
    if state == "removed":
        assert (life.state, instructions) == ("removed", ())
    else:
        assert (life.state, instructions) == ("removing", END)


def test_nothing_returns_from_its_end() -> None:
    for (state, _), (after, instructions) in TRANSITIONS.items():
        if state == "removing":
            assert after in ("removing", "removed")
        if state == "removed":
            assert (after, instructions) == ("removed", ())


def test_files_go_only_on_the_way_out_and_before_the_session_is_forgotten() -> None:
    for (_, _), (after, instructions) in TRANSITIONS.items():
        deletes = DeleteFiles() in instructions
        assert deletes == (ForgetSession() in instructions)
        if deletes:
            assert after == "removing"
            assert instructions == END


def test_only_one_event_of_a_start_can_follow() -> None:
    """A machine is started from nothing or from its files alone, never beside another."""
    starting = {key for key, (_, instructions) in TRANSITIONS.items() if StartMachine() in instructions}
    assert starting == {(None, "create"), ("stopped", "wake")}


@any_speed
@given(st.lists(st.sampled_from(EVENTS), max_size=60))
def test_any_order_of_events_keeps_the_promises(events: list[SandboxEvent]) -> None:
    """Walks with whatever comes; unknown steps change nothing. A machine never runs where no start was asked for."""
    life, _ = step(SandboxLife(None), "create")
    starts_asked = 1
    for event in events:
        if (life.state, event) not in TRANSITIONS:
            with pytest.raises(UnknownTransition, match=str(life.history[-1][0])):
                step(life, event)
            continue
        after, instructions = step(life, event)
        starts_asked += StartMachine() in instructions
        if after.state == "running" and life.state != "running":
            assert event == "started"
            assert starts_asked > 0
        assert 0 < len(after.history) <= HISTORY_KEPT
        life = after
