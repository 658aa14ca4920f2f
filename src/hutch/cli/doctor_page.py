"""How doctor's findings look."""

from __future__ import annotations

from collections.abc import Sequence

from hutch.cli import show
from hutch.cli.diagnosis import Diagnosis, wall_row
from hutch.cli.selftest import Outcome

STYLES = {
    "up": "green",
    "down": "bold red",
    "tolerated": "yellow",
    "off": "yellow",
    "passed": "green",
    "failed": "bold red",
}
NEEDS = {"required": "required", "strict": "for strict", "best_effort": "best effort"}


def print_diagnosis(diagnosis: Diagnosis) -> None:
    report = diagnosis.report
    versions = {"hutch": diagnosis.version, **(report.versions if report else {})}
    _section("Versions", ["PART", "VERSION"], [list(pair) for pair in versions.items()])
    if report is not None:
        walls = [wall_row(report, at) for at in range(len(report.walls))]
        rows = [[wall["name"], NEEDS[wall["need"]], wall["state"], wall["detail"]] for wall in walls]
        _section("Walls", ["WALL", "NEED", "STATE", "DETAIL"], rows)
        _section("Limits", ["LIMIT", "HOW IT IS HELD"], [list(pair) for pair in report.limits.items()])
    _section("Data folder", ["WHAT", "VALUE"], _data_rows(diagnosis))
    _section("Settings that are set", ["VARIABLE", "VALUE"], [[one.source, one.value] for one in diagnosis.settings])
    if diagnosis.unknown:
        show.note(f"no setting has these names, so they have no effect: {', '.join(diagnosis.unknown)}")
    for text in diagnosis.absent:
        show.note(text)
    if report is not None and report.missing_programs:
        show.note(f"programs that commands will miss: {', '.join(report.missing_programs)}")
    if report is not None and report.usable:
        for text in report.notes:
            show.note(show.visible(text))


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    rows = [["passed" if one.passed else "failed", one.name, one.seen] for one in outcomes]
    _section("In a sandbox", ["", "CHECK", "SEEN"], rows)


def print_verdict(diagnosis: Diagnosis, outcomes: Sequence[Outcome]) -> None:
    for problem in diagnosis.problems:
        show.note(f"problem: {show.visible(problem)}")
    failed = sum(not one.passed for one in outcomes)
    if failed:
        show.line(f"{failed} of {len(outcomes)} checks failed.")
    elif diagnosis.healthy:
        show.line("Sandboxes can be started, and every wall they need stands.")
    else:
        show.line("Sandboxes cannot be started as they should be; see the problems above.")


def _data_rows(diagnosis: Diagnosis) -> list[list[str]]:
    data = diagnosis.data
    if data.path is None:
        return []
    return [
        ["folder", data.path],
        ["free", "unknown" if data.free_bytes is None else show.size(data.free_bytes)],
        ["sandboxes", "unknown" if data.sandboxes is None else str(data.sandboxes)],
        ["state", "usable" if data.problem is None else "cannot be used"],
    ]


def _section(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        show.heading(title)
        show.table(columns, rows, STYLES)
        show.line()
