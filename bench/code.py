"""Figures of code that keeps its state, against a fresh Python for each piece."""

from __future__ import annotations

from bench.plan import Field
from bench.table import Bound, Row
from bench.timing import Contestant, race
from hutch import SandboxClient


def rows(field: Field) -> list[Row]:
    client = SandboxClient(policy="open", data_dir=field.folder / "code")
    handle = client.for_thread("bench", "code")

    def warm() -> None:
        if handle.code.run("6 * 7")["outputs"][0]["data"] != {"text/plain": "42"}:
            raise RuntimeError("6 * 7 went wrong")

    def fresh() -> None:
        if handle.execute("python3 -c 'print(6 * 7)'")["stdout"] != "42\n":
            raise RuntimeError("6 * 7 went wrong")

    contestants = [Contestant("warm", warm, 10), Contestant("fresh", fresh, 10)]
    results = race(contestants, rounds=field.plan.rounds, seconds=field.plan.seconds)
    handle.close_session()
    return [
        Row(
            'code.run("6 * 7") in a warm kernel, p50',
            results["warm"].reading(),
            Bound("times", 1.0),
            "python3 -c in the same sandbox",
            results["fresh"].reading(),
        )
    ]
