"""Figures of the command policy on its corpora: how much is caught, and how often it nags."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping

from bench.plan import Field
from bench.table import Absent, Reading, Row


def rows(field: Field) -> list[Row]:
    if importlib.util.find_spec("bench.policy_rates") is None:
        return [Row("policy: rates", Absent("bench/policy_rates.py is missing"))]
    return rate_rows(importlib.import_module("bench.policy_rates").rates())


def rate_rows(rates: Mapping[str, object]) -> list[Row]:
    """A row for each rate (0 to 1) at the top of `rates` or one level below; deeper ones become its note."""
    found: list[Row] = []
    for name, value in rates.items():
        if isinstance(value, float):
            found.append(_row(name, value, {}))
        elif isinstance(value, Mapping):
            found += [_row(f"{name}, {part}", rate, value) for part, rate in value.items() if isinstance(rate, float)]
    return found


def _row(name: str, rate: float, siblings: Mapping[str, object]) -> Row:
    details = [text for part, value in siblings.items() if isinstance(value, Mapping) for text in _details(part, value)]
    return Row(f"policy: {name.replace('_', ' ')}", Reading(rate * 100, "%"), note="; ".join(details))


def _details(part: str, values: Mapping[str, object]) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, float):
            yield f"{part} {name} {value:.0%}"
