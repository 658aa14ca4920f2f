"""The table of figures: what was promised, what was measured, and the verdict. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["aim", "must", "missed", "shown", "not judged"]
Unit = Literal["ms", "MB", "/s", "%"]
# How a figure is judged: times its reference (small is good), that many times faster than it (large is good),
# or by its own value (small is good).
Kind = Literal["times", "faster", "value"]


@dataclass(frozen=True, slots=True)
class Bound:
    kind: Kind
    must: float
    aim: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured number; `spread` is its 95th percentile, where there is one."""

    value: float
    unit: Unit
    spread: float | None = None

    def __str__(self) -> str:
        text = f"{number(self.value)} {self.unit}"
        return text if self.spread is None else f"{text} (p95 {number(self.spread)})"


@dataclass(frozen=True, slots=True)
class Absent:
    """A number that could not be had here, and why."""

    why: str

    def __str__(self) -> str:
        return f"not here: {self.why}"


@dataclass(frozen=True, slots=True)
class Row:
    figure: str
    measured: Reading | Absent
    bound: Bound | None = None
    reference_name: str = ""
    reference: Reading | Absent | None = None
    with_quota: Reading | None = None  # the same at the template's CPU quota; never judged
    note: str = ""


def number(value: float) -> str:
    """Three figures that count."""
    if value >= 1000:
        return f"{value:,.0f}"
    for limit, digits in ((100, 0), (10, 1), (1, 2)):
        if value >= limit:
            return f"{value:.{digits}f}"
    return f"{value:.3f}"


def score(row: Row) -> float | None:
    """What the bound is compared with; None when a number for it is missing."""
    if row.bound is None or isinstance(row.measured, Absent):
        return None
    if row.bound.kind == "value":
        return row.measured.value
    if not isinstance(row.reference, Reading) or row.measured.value <= 0 or row.reference.value <= 0:
        return None
    if row.bound.kind == "times":
        return row.measured.value / row.reference.value
    return row.reference.value / row.measured.value


def verdict(row: Row) -> Verdict:
    if row.bound is None:
        return "not judged" if isinstance(row.measured, Absent) else "shown"
    reached = score(row)
    if reached is None:
        return "not judged"
    if row.bound.aim is not None and _holds(row.bound.kind, reached, row.bound.aim):
        return "aim"
    return "must" if _holds(row.bound.kind, reached, row.bound.must) else "missed"


def _holds(kind: Kind, reached: float, wanted: float) -> bool:
    return reached >= wanted if kind == "faster" else reached <= wanted


def missed(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if verdict(row) == "missed"]


# --- words -----------------------------------------------------------------------------------------------------------

HEADINGS = ("Figure", "Must", "Aim", "Hutch", "With the CPU quota", "Reference", "Result", "Verdict")


def cells(row: Row) -> tuple[str, ...]:
    """One line of the table, in the order of HEADINGS."""
    unit = row.measured.unit if isinstance(row.measured, Reading) else "MB"
    must = _wanted(row.bound, row.bound.must, unit) if row.bound else ""
    aim = _wanted(row.bound, row.bound.aim, unit) if row.bound and row.bound.aim is not None else ""
    reference = f"{row.reference_name}: {row.reference}" if row.reference is not None else row.reference_name
    return (row.figure, must, aim, str(row.measured), str(row.with_quota or ""), reference, _result(row), verdict(row))


def _wanted(bound: Bound, wanted: float, unit: Unit) -> str:
    sign = ">=" if bound.kind == "faster" else "<="
    ending = {"times": "x", "faster": "x faster", "value": f" {unit}"}[bound.kind]
    return f"{sign} {wanted:g}{ending}"


def _result(row: Row) -> str:
    reached = score(row)
    if row.bound is None or reached is None:
        return ""
    return number(reached) + {"times": "x", "faster": "x faster", "value": ""}[row.bound.kind]


def markdown(rows: Sequence[Row]) -> str:
    lines = [_line(HEADINGS), _line(["---"] * len(HEADINGS)), *(_line(cells(row)) for row in rows)]
    notes = [f"- {row.figure}: {row.note}" for row in rows if row.note]
    return "\n".join([*lines, "", *notes]).rstrip() + "\n"


def _line(words: Sequence[str]) -> str:
    return "| " + " | ".join(word.replace("|", "\\|").replace("\n", " ") for word in words) + " |"
