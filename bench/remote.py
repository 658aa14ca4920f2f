"""Figures of the API over loopback: what HTTP adds to a command, what a server holds while files pass through it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.cluster_side import ClusterMissing, cluster
from bench.commands import CALLERS
from bench.hutch_side import HutchSide
from bench.plan import Field
from bench.remote_side import Address, RemoteSide, server
from bench.table import Absent, Bound, Reading, Row
from bench.timing import Contestant, Samples, per_second, race

_BLOCK = 1_000_000
_MB = 1_000_000 / 1024  # in KiB


@dataclass(frozen=True, slots=True)
class Against:
    """With whom an address takes turns."""

    name: str
    side: HutchSide | RemoteSide
    bound: Bound | None = None  # of what the address adds to one command


def rows(field: Field) -> list[Row]:
    with server(field.folder / "served") as address:
        found = at(field, address, "over HTTP", Against("local", field.free, Bound("value", 1.5, 0.6)))
    return found + through_a_coordinator(field)


def through_a_coordinator(field: Field) -> list[Row]:
    """Two workers behind it, of which one is asked without it as well."""
    way = "through a coordinator"
    try:
        with cluster(field.folder / "cluster") as (coordinator, worker):
            direct = RemoteSide(worker, "direct-")
            try:
                return at(field, coordinator, way, Against("the worker itself", direct))
            finally:
                direct.close()
    except ClusterMissing as missing:
        return [Row(_added(way, "the worker itself"), Absent(str(missing)))]


def at(field: Field, address: Address, way: str, against: Against) -> list[Row]:
    """All figures of an address; `way` names it in the table."""
    side = RemoteSide(address)
    try:
        return [
            *_overhead(field, side, way, against),
            *_throughput(field, side, way, against),
            *_first(field, side, way),
            *_large(field, side, way),
        ]
    finally:
        side.close()


def _added(way: str, other: str) -> str:
    return f'execute("echo hi") {way}: added to {other}, p50'


def _overhead(field: Field, side: RemoteSide, way: str, against: Against) -> list[Row]:
    contestants = [Contestant("other", against.side.execute, 10), Contestant("remote", side.execute, 10)]
    results = race(contestants, rounds=field.plan.rounds, seconds=field.plan.seconds)
    other, remote = results["other"].reading(), results["remote"].reading()
    added = Reading(remote.value - other.value, "ms")
    return [Row(_added(way, against.name), added, against.bound, against.name, other, note=f"{way} {remote}")]


def _throughput(field: Field, side: RemoteSide, way: str, against: Against) -> list[Row]:
    """The callers are threads of one program, which has its share in the time."""
    most = max(CALLERS)
    here = [against.side.handle(f"caller-{number}") for number in range(most)]
    there = [side.handle(f"caller-{number}") for number in range(most)]
    for number in range(most):
        against.side.echo_in(here[number])
        side.echo_in(there[number])
    found = [
        Row(
            f"commands a second {way}, {callers} caller{'s, a sandbox each' if callers > 1 else ''}",
            _warm(lambda caller: side.echo_in(there[caller]), callers, field.plan.throughput_seconds),
            reference_name=against.name,
            reference=_warm(lambda caller: against.side.echo_in(here[caller]), callers, field.plan.throughput_seconds),
        )
        for callers in CALLERS
    ]
    for handle in [*here, *there]:
        handle.close_session()
    return found


def _warm(once: Callable[[int], object], callers: int, seconds: float) -> Reading:
    """The threads and connections of so many callers are there before."""
    per_second(once, callers, 0)
    return per_second(once, callers, seconds)


def _first(field: Field, side: RemoteSide, way: str) -> list[Row]:
    ways = {"server-sent events": side.first_by_events, "a new WebSocket": side.first_by_websocket}
    taken = {name: Samples() for name in ways}
    for turn in range(2 + field.plan.rounds):
        for name, once in ways.items():
            milliseconds = once()
            if turn >= 2:  # the first ones warm up
                taken[name].milliseconds.append(milliseconds)
    return [Row(f"first output {way} by {name}, p50", samples.reading()) for name, samples in taken.items()]


def _large(field: Field, side: RemoteSide, way: str) -> list[Row]:
    source, target = field.folder / "large.up", field.folder / "large.down"
    size = field.plan.large_bytes
    with source.open("wb") as file:
        for _ in range(size // _BLOCK):
            file.write(b"\xa5" * _BLOCK)
    found: list[Row] = []
    try:
        for word, deed in (
            ("up", lambda: side.large.upload_file(source, "large")),
            ("down", lambda: side.large.download_file("large", target)),
        ):
            found += _transfer(side.address, f"{size // 1_000_000:,} MB {word} {way}", size, deed)
        if target.stat().st_size != size:
            raise RuntimeError("what came back is not what was sent")
    finally:
        source.unlink()
        target.unlink(missing_ok=True)
    return found


def _transfer(address: Address, what: str, size: int, deed: Callable[[], object]) -> Iterator[Row]:
    before = address.resident_kib()
    address.forget_peak()
    started = time.perf_counter()
    deed()
    seconds = time.perf_counter() - started
    grown = max(0, address.peak_kib() - before)
    note = f"{seconds:.1f} s, {size / 1_000_000 / seconds:,.0f} MB a second"
    yield Row(f"{what}: most the server grew", Reading(grown / _MB, "MB"), note=note)
