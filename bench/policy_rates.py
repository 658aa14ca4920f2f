"""Rates of the command policy: how much of the hostile corpus it refuses, and how much ordinary work it refuses.

`python -m bench.policy_rates` prints them, by class and for the held-out set, with what judging costs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hutch.policy import OPEN, STRICT, Profile, judge
from tests.hostile import policy_corpora as corpora


def _refused(commands: Sequence[str], profile: Profile = STRICT) -> float:
    return sum(not judge(command, profile).allowed for command in commands) / len(commands)


def rates() -> dict[str, object]:
    """Rates from 0 to 1. Known misses count as spellings that were not detected."""
    classes = corpora.hostile()
    by_class = {
        f"{row.number} {row.name}": _refused([*row.spellings, *(text for text, _ in row.misses)]) for row in classes
    }
    hostile = [text for row in classes for text in (*row.spellings, *(text for text, _ in row.misses))]
    ordinary, unseen = corpora.ordinary(), corpora.held_out()
    return {
        "corpus": {"detection": _refused(hostile), "false_refusals": _refused(ordinary), "by_class": by_class},
        "held_out": {"detection": _refused(unseen.hostile), "false_refusals": _refused(unseen.ordinary)},
        "open": {"false_refusals": _refused([*ordinary, *unseen.ordinary], OPEN)},
        "commands": {
            "hostile": len(hostile),
            "ordinary": len(ordinary),
            "held_out": len(unseen.hostile) + len(unseen.ordinary),
        },
    }


def microseconds(command: str, rounds: int = 2000) -> float:
    """What one judgement costs, nothing remembered."""
    judge(command, STRICT)
    started = time.perf_counter()
    for _ in range(rounds):
        judge(command, STRICT)
    return (time.perf_counter() - started) / rounds * 1e6


def main() -> None:
    found = rates()
    for group in ("corpus", "held_out", "open", "commands"):
        values = found[group]
        assert isinstance(values, dict)
        for name, value in values.items():
            for label, rate in value.items() if isinstance(value, dict) else ((name, value),):
                shown = f"{rate:.1%}" if isinstance(rate, float) else str(rate)
                print(f"{group:10} {label:45} {shown}")
    for command in ("echo hi", "jq -r '.[].amount' data.json | awk '{sum += $1} END {print sum}'"):
        print(f"{'cost':10} {command[:45]:45} {microseconds(command):.0f} us")


if __name__ == "__main__":
    main()
