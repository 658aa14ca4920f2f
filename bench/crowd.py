"""Figures of many sandboxes: what an idle one costs, and whether a thousand slow down one another."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from functools import partial

from bench.hutch_side import HutchSide
from bench.memory import descendants, kernel_kib, private_dirty_kib
from bench.plan import Field
from bench.references import bare
from bench.table import Absent, Bound, Reading, Row
from bench.timing import Samples, timed
from hutch import SandboxClient

_SETTLE_SECONDS = 4.0  # idle: what is kept at hand after a command, for two seconds, is gone
_KIB_PER_MB = 1_000_000 / 1024


@dataclass(frozen=True, slots=True)
class _Phase:
    """Commands in sandboxes, and how the machine itself felt meanwhile."""

    commands: Samples = field(default_factory=Samples)
    bare: Samples = field(default_factory=Samples)


def idle_memory(here: Field) -> list[Row]:
    """Of sandboxes that ran one command and now wait."""
    before_pids, before_kernel = descendants(os.getpid()), kernel_kib()
    handles = _open(here.free, "idle", here.plan.idle)
    time.sleep(_SETTLE_SECONDS)
    pids, kernel = descendants(os.getpid()) - before_pids, kernel_kib() - before_kernel
    private: Reading | Absent
    whole: Reading | Absent
    try:
        dirty = private_dirty_kib(pids)
    except PermissionError:
        private = whole = Absent("the processes of a sandbox are guarded; only root may look into them")
    else:
        private = Reading(dirty / len(handles) / _KIB_PER_MB, "MB")
        whole = Reading((dirty + max(0, kernel)) / len(handles) / _KIB_PER_MB, "MB")
    _close(handles)
    note = f"mean of {len(handles)} sandboxes, {len(pids) / len(handles):.1f} processes each"
    return [
        Row("idle sandbox, private dirty memory", private, Bound("value", 1.5, 0.4), note=note),
        Row("idle sandbox, with the kernel's share", whole, Bound("value", 2.0, 0.8), note="noisy on a busy machine"),
    ]


def many_live(here: Field) -> list[Row]:
    """One sandbox alone before and after, and the whole crowd in between."""
    plan = here.plan
    before, after, many = _Phase(), _Phase(), _Phase()
    alone = _open(here.free, "alone", 1)
    _commands(here.free, alone, plan.crowd_commands // 2, before)
    started = time.monotonic()
    crowd = _open(here.free, "crowd", plan.crowd)
    opened = time.monotonic() - started
    _commands(here.free, crowd, plan.crowd_commands, many)
    started = time.monotonic()
    _close(crowd)
    closed = time.monotonic() - started
    _commands(here.free, alone, plan.crowd_commands // 2, after)
    _close(alone)
    one = min(before, after, key=lambda phase: phase.commands.percentile(95))  # the stricter of the two
    return [
        Row(
            f"{plan.crowd:,} live sandboxes, p95 of a command in any",
            Reading(many.commands.percentile(95), "ms"),
            Bound("times", 2),
            "p95 with one sandbox, the better of before and after",
            Reading(one.commands.percentile(95), "ms"),
            note=f"p50 {_both(50, many.commands, one.commands)}; meanwhile p95 of a bare subprocess "
            f"{_both(95, many.bare, one.bare)}; made in {opened:.1f} s, closed in {closed:.1f} s, by one caller",
        )
    ]


def _both(percent: float, many: Samples, one: Samples) -> str:
    return f"{many.percentile(percent):.2f} ms against {one.percentile(percent):.2f} ms"


def _open(side: HutchSide, name: str, sandboxes: int) -> list[SandboxClient]:
    handles = [side.handle(f"{name}-{number}") for number in range(sandboxes)]
    for handle in handles:
        side.echo_in(handle)
    return handles


def _close(handles: list[SandboxClient]) -> None:
    for handle in handles:
        handle.close_session()


def _commands(side: HutchSide, handles: list[SandboxClient], number: int, into: _Phase) -> None:
    chosen = random.Random(1)
    for turn in range(number):
        into.commands.milliseconds.append(timed(partial(side.echo_in, chosen.choice(handles))))
        if turn % 5 == 0:
            into.bare.milliseconds.append(timed(bare))
