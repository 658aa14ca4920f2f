"""Measuring in turns: contestants take blocks of calls one after the other, so that noise hits all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bench.table import Reading

PAUSE = 0.25  # seconds: what one contestant leaves to be done afterwards is not the next one's to pay for


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    once: Callable[[], object]
    calls: int  # in each round


@dataclass(slots=True)
class Samples:
    milliseconds: list[float] = field(default_factory=list[float])

    def percentile(self, percent: float) -> float:
        """By nearest rank. Raises: ValueError without samples."""
        if not self.milliseconds:
            raise ValueError("nothing was measured")
        ordered = sorted(self.milliseconds)
        return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]

    def reading(self) -> Reading:
        return Reading(self.percentile(50), "ms", self.percentile(95))


def timed(once: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    started = time.perf_counter()
    once()
    return (time.perf_counter() - started) * 1000


def race(contestants: Sequence[Contestant], *, rounds: int, seconds: float, warm_up: int = 2) -> dict[str, Samples]:
    """Up to `rounds` rounds, fewer when `seconds` are over, but never fewer than two."""
    for contestant in contestants:
        for _ in range(warm_up):
            contestant.once()
    results = {contestant.name: Samples() for contestant in contestants}
    until = time.monotonic() + seconds
    for turn in range(rounds):
        if turn >= 2 and time.monotonic() > until:
            break
        # Another one begins each round: whoever follows a heavy neighbour meets cold caches.
        first = turn % len(contestants)
        for contestant in [*contestants[first:], *contestants[:first]]:
            time.sleep(PAUSE)
            taken = results[contestant.name].milliseconds
            taken.extend(timed(contestant.once) for _ in range(contestant.calls))
    return results


def per_second(once: Callable[[int], object], callers: int, seconds: float) -> Reading:
    """How many calls end in a second when `callers` threads make them; each gets its number."""
    until = time.monotonic() + seconds

    def work(caller: int) -> int:
        done = 0
        while done == 0 or time.monotonic() < until:  # each takes part, however late its thread begins
            once(caller)
            done += 1
        return done

    started = time.monotonic()
    with ThreadPoolExecutor(callers) as threads:
        done = sum(threads.map(work, range(callers)))
    return Reading(done / (time.monotonic() - started), "/s")
