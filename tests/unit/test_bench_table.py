"""The verdicts of the benchmark table, and the arithmetic below them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.memory import descendants, kernel_kib, private_dirty_kib
from bench.policy_rows import rate_rows
from bench.table import HEADINGS, Absent, Bound, Reading, Row, cells, markdown, missed, number, score, verdict
from bench.timing import Contestant, Samples, per_second, race


def ms(value: float) -> Reading:
    return Reading(value, "ms")


@pytest.mark.parametrize(
    ("bound", "measured", "reference", "expected"),
    [
        (Bound("times", 1.3, 0.5), 0.4, 1.0, "aim"),
        (Bound("times", 1.3, 0.5), 0.5, 1.0, "aim"),
        (Bound("times", 1.3, 0.5), 1.3, 1.0, "must"),
        (Bound("times", 1.3, 0.5), 1.31, 1.0, "missed"),
        (Bound("faster", 20, 60), 1.0, 60.0, "aim"),
        (Bound("faster", 20, 60), 1.0, 59.9, "must"),
        (Bound("faster", 20, 60), 1.0, 20.0, "must"),
        (Bound("faster", 20, 60), 1.0, 19.9, "missed"),
        (Bound("faster", 20), 1.0, 1000.0, "must"),
        (Bound("value", 1.5, 0.4), 0.4, None, "aim"),
        (Bound("value", 1.5, 0.4), 1.5, None, "must"),
        (Bound("value", 1.5, 0.4), 1.6, None, "missed"),
        (None, 1.0, 1.0, "shown"),
    ],
)
def test_verdicts(bound: Bound | None, measured: float, reference: float | None, expected: str) -> None:
    row = Row("x", ms(measured), bound, "y", None if reference is None else ms(reference))
    assert verdict(row) == expected
    assert (row in missed([row])) is (expected == "missed")


@pytest.mark.parametrize("bound", [Bound("times", 1.3), Bound("faster", 20)])
@pytest.mark.parametrize("reference", [None, Absent("no root"), Reading(0, "ms")])
def test_without_its_reference_nothing_is_judged(bound: Bound, reference: Reading | Absent | None) -> None:
    row = Row("x", ms(1), bound, "Docker", reference)
    assert score(row) is None
    assert verdict(row) == "not judged"
    assert missed([row]) == []


def test_without_a_measurement_nothing_is_judged() -> None:
    assert verdict(Row("x", Absent("guarded"), Bound("value", 1))) == "not judged"
    assert verdict(Row("x", Absent("guarded"))) == "not judged"


def test_the_quota_is_shown_and_never_judged() -> None:
    row = Row("x", ms(1), Bound("times", 1.3), "y", ms(1), with_quota=ms(70))
    assert verdict(row) == "must"
    assert "70.0 ms" in cells(row)


def test_cells_say_what_was_promised_and_reached() -> None:
    row = Row("echo", Reading(0.5, "ms", 0.9), Bound("faster", 20, 60), "Docker", ms(31.8))
    assert cells(row) == (
        "echo",
        ">= 20x faster",
        ">= 60x faster",
        "0.500 ms (p95 0.900)",
        "",
        "Docker: 31.8 ms",
        "63.6x faster",
        "aim",
    )
    absent = Row("echo", ms(1), Bound("faster", 20), "Docker", Absent("needs root"))
    assert cells(absent)[5:] == ("Docker: not here: needs root", "", "not judged")


def test_markdown_is_a_table_with_notes() -> None:
    text = markdown([Row("a | b", ms(1), note="a note\n"), Row("c", ms(2))])
    lines = text.splitlines()
    assert lines[0] == "| " + " | ".join(HEADINGS) + " |"
    assert "a \\| b" in lines[2]
    assert all(line.count("|") - line.count("\\|") == len(HEADINGS) + 1 for line in lines[:4])
    assert "- a | b: a note" in text


@pytest.mark.parametrize(
    ("value", "text"), [(0.1234, "0.123"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,346")]
)
def test_numbers_have_three_figures(value: float, text: str) -> None:
    assert number(value) == text


def test_percentiles_are_by_nearest_rank() -> None:
    samples = Samples([float(n) for n in range(100, 0, -1)])
    assert (samples.percentile(50), samples.percentile(95), samples.percentile(100)) == (50, 95, 100)
    assert Samples([3.0]).percentile(50) == 3
    with pytest.raises(ValueError, match="nothing"):
        Samples().percentile(50)


def test_a_race_takes_turns() -> None:
    order: list[str] = []
    runners = [Contestant(name, lambda name=name: order.append(name), calls) for name, calls in (("a", 2), ("b", 1))]  # type: ignore[misc]
    results = race(runners, rounds=3, seconds=60, warm_up=1)
    assert "".join(order) == "ab" + "aab" + "baa" + "aab"
    assert {name: len(samples.milliseconds) for name, samples in results.items()} == {"a": 6, "b": 3}


def test_a_race_ends_when_its_time_is_over() -> None:
    results = race([Contestant("a", lambda: None, 1)], rounds=1000, seconds=-1, warm_up=0)
    assert len(results["a"].milliseconds) == 2


def test_throughput_counts_every_caller() -> None:
    seen: set[int] = set()
    assert per_second(seen.add, callers=3, seconds=0.05).value > 0
    assert seen == {0, 1, 2}


def test_memory_is_read_from_what_the_kernel_tells(tmp_path: Path) -> None:
    for pid, parent in ((1, 0), (10, 1), (11, 10), (12, 11), (20, 1)):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (a) b (c) S {parent} 0 0")
        (folder / "smaps_rollup").write_text("Rss: 900 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty:   70 kB\n")
    (tmp_path / "meminfo").write_text("MemTotal: 5000 kB\nSlab: 100 kB\nKernelStack: 20 kB\n")
    assert descendants(10, tmp_path) == {11, 12}
    assert private_dirty_kib({11, 12, 99}, tmp_path) == 140
    assert kernel_kib(tmp_path / "meminfo") == 120


def test_policy_rates_become_rows() -> None:
    rows = rate_rows(
        {
            "detection": 0.975,
            "entries": 210,
            "held_out": {"false_refusals": 0.05, "entries": 40, "classes": {"quoting": 1.0}},
        }
    )
    assert [(row.figure, str(row.measured), row.note) for row in rows] == [
        ("policy: detection", "97.5 %", ""),
        ("policy: held out, false refusals", "5.00 %", "classes quoting 100%"),
    ]
    assert {verdict(row) for row in rows} == {"shown"}
