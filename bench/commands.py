"""Figures of one command, and of many at once."""

from __future__ import annotations

from collections.abc import Callable

from bench import references
from bench.plan import Field
from bench.table import Absent, Bound, Reading, Row
from bench.timing import Contestant, per_second, race

CALLERS = (1, 8, 64)
ONE_COMMAND = 'execute("echo hi"), p50'


def one_command(field: Field) -> list[Row]:
    contestants = [
        Contestant("subprocess", references.bare, 10),
        Contestant("hutch", field.free.execute, 10),
        Contestant("quota", field.limited.execute, 10),
    ]
    if field.bubblewrap is None:
        contestants.append(Contestant("bubblewrap", references.bubblewrapped, 4))
    if not isinstance(field.docker, Absent):
        contestants.append(Contestant("docker", field.docker.execute, 2))
    results = race(contestants, rounds=field.plan.rounds, seconds=field.plan.seconds)
    readings = {name: samples.reading() for name, samples in results.items()}

    def row(name: str, shown: str, absent: Absent | None, bound: Bound | None) -> Row:
        reference = readings.get(name) or absent
        return Row(ONE_COMMAND, readings["hutch"], bound, shown, reference, readings["quota"])

    docker_absent = field.docker if isinstance(field.docker, Absent) else None
    return [
        row("subprocess", "subprocess.run, no walls", None, Bound("times", 1.3, 0.5)),
        row("docker", "docker exec by the SDK", docker_absent, Bound("faster", 20, 60)),
        row("bubblewrap", "bubblewrap for each command", field.bubblewrap, None),
    ]


def throughput(field: Field) -> list[Row]:
    handles = [field.free.handle(f"caller-{number}") for number in range(max(CALLERS))]
    for handle in handles:
        field.free.echo_in(handle)
    rows = [_throughput(field, callers, lambda caller: field.free.echo_in(handles[caller])) for callers in CALLERS]
    for handle in handles:
        handle.close_session()
    return rows


def _throughput(field: Field, callers: int, once: Callable[[int], None]) -> Row:
    rounds = 2
    seconds = field.plan.throughput_seconds / rounds
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(per_second(once, callers, seconds).value)
        theirs.append(per_second(lambda _: references.bare(), callers, seconds).value)
    return Row(
        f"commands a second, {callers} callers, a sandbox each" if callers > 1 else "commands a second, 1 caller",
        Reading(sum(ours) / rounds, "/s"),
        reference_name="subprocess.run in threads",
        reference=Reading(sum(theirs) / rounds, "/s"),
    )
