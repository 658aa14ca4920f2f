"""The states of a sandbox: one table of what may happen in which state, and what is then to be done.

The store repeats the guard with a compare-and-set, so that of two processes that step from the same state one wins.
A step is written down *before* its instructions are carried out: after a crash the state says what was begun, and all
instructions may safely be carried out twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hutch.model.errors import HutchError
from hutch.model.session import SandboxState

SandboxEvent = Literal[
    "create",  # from nothing
    "started",  # its machine runs
    "start_failed",  # its first machine could not be started
    "restart_failed",  # its machine could not be started again
    "wake",  # somebody wants to use it
    "stop",  # its machine is to go, its files stay (idle, or asked for)
    "stopped",  # its machine is gone, as told
    "died",  # its machine is gone, by itself or with the process that ran it
    "expire",  # its deadline has come
    "remove",  # its owner is done with it
    "removed",  # nothing of it is left
]


@dataclass(frozen=True, slots=True)
class StartMachine:
    """Start a machine from the folder; then `started`, `start_failed` or `restart_failed`."""


@dataclass(frozen=True, slots=True)
class AwaitStart:
    """Somebody starts it already: wait for that."""


@dataclass(frozen=True, slots=True)
class StopMachine:
    """End the machine, if there is one; then `stopped`."""


@dataclass(frozen=True, slots=True)
class SweepMachine:
    """End what a dead machine left running. Its files stay."""


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Delete the folder and all that a machine left elsewhere."""


@dataclass(frozen=True, slots=True)
class ForgetSession:
    """Delete the rows of sandbox and session; then `removed`. After the files: its user id becomes free with it."""


Instruction = StartMachine | AwaitStart | StopMachine | SweepMachine | DeleteFiles | ForgetSession
Outcome = tuple[SandboxState, tuple[Instruction, ...]]
Step = tuple[SandboxEvent, SandboxState]  # what happened, and the state it led to

HISTORY_KEPT = 16


@dataclass(frozen=True, slots=True)
class SandboxLife:
    """Where a sandbox stands (None: it does not exist yet), and the latest steps that led there."""

    state: SandboxState | None
    history: tuple[Step, ...] = ()


class UnknownTransition(HutchError):
    """An event that cannot happen in that state: a mistake of ours. details: `state`, `event`, `history`."""


_END: tuple[Instruction, ...] = (StopMachine(), DeleteFiles(), ForgetSession())

TRANSITIONS: Mapping[tuple[SandboxState | None, SandboxEvent], Outcome] = {
    (None, "create"): ("creating", (StartMachine(),)),
    #
    ("creating", "started"): ("running", ()),
    ("creating", "start_failed"): ("removing", _END),
    ("creating", "restart_failed"): ("stopped", (SweepMachine(),)),
    ("creating", "wake"): ("creating", (AwaitStart(),)),
    ("creating", "died"): ("stopped", (SweepMachine(),)),  # with the process that was starting it
    ("creating", "expire"): ("removing", _END),
    ("creating", "remove"): ("removing", _END),
    #
    ("running", "start_failed"): ("removing", _END),  # who started it was called off when that was written down
    ("running", "restart_failed"): ("stopped", (SweepMachine(),)),
    ("running", "wake"): ("running", ()),
    ("running", "stop"): ("running", (StopMachine(),)),
    ("running", "stopped"): ("stopped", ()),
    ("running", "died"): ("stopped", (SweepMachine(),)),
    ("running", "expire"): ("removing", _END),
    ("running", "remove"): ("removing", _END),
    #
    ("stopped", "wake"): ("creating", (StartMachine(),)),
    ("stopped", "stop"): ("stopped", ()),
    ("stopped", "stopped"): ("stopped", ()),  # news that came late
    ("stopped", "died"): ("stopped", ()),
    ("stopped", "expire"): ("removing", _END),
    ("stopped", "remove"): ("removing", _END),
    #
    ("removing", "started"): ("removing", _END),  # a start that was under way: end that machine, too
    ("removing", "start_failed"): ("removing", ()),
    ("removing", "restart_failed"): ("removing", ()),
    ("removing", "stop"): ("removing", ()),
    ("removing", "stopped"): ("removing", ()),
    ("removing", "died"): ("removing", ()),
    ("removing", "expire"): ("removing", _END),  # again, after a crash or a failure on the way
    ("removing", "remove"): ("removing", _END),
    ("removing", "removed"): ("removed", ()),
    #
    ("removed", "stopped"): ("removed", ()),
    ("removed", "died"): ("removed", ()),
    ("removed", "expire"): ("removed", ()),
    ("removed", "remove"): ("removed", ()),
    ("removed", "removed"): ("removed", ()),
}


def step(life: SandboxLife, event: SandboxEvent) -> tuple[SandboxLife, tuple[Instruction, ...]]:
    """What `event` makes of a sandbox, and what is to be done, in that order.

    Raises: UnknownTransition.
    """
    outcome = TRANSITIONS.get((life.state, event))
    if outcome is None:
        history = [f"{one} -> {state}" for one, state in life.history]
        raise UnknownTransition(
            f"{event!r} cannot happen to a sandbox that is {life.state or 'not there yet'}; before: {history}",
            state=life.state,
            event=event,
            history=history,
        )
    state, instructions = outcome
    return SandboxLife(state, (*life.history, (event, state))[-HISTORY_KEPT:]), instructions
