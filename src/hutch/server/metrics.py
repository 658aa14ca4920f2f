"""What the server counts: a watcher of its engine, read by Prometheus.

A label takes its values from closed sets: names of outcomes, limits, error codes and routes. Nothing a user, a tenant
or a sandbox may choose ever becomes one, so neither can they learn of each other here nor let the page grow.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from hutch.engine.observe import CommandKind, EventName, Observation
from hutch.engine.survey import Survey
from hutch.model.errors import ERRORS, CommandRejected
from hutch.model.limits import LimitName
from hutch.server.gauges import Held

SESSION_OUTCOMES = ("created", "reused", "renewed", "failed")
SESSION_ENDS = ("closed", "expired")
COMMAND_OUTCOMES = ("ok", "nonzero", "timed_out", "limit", "failed", "refused")
COMMAND_KINDS: tuple[CommandKind, ...] = get_args(CommandKind)
LIMITS: tuple[LimitName, ...] = get_args(LimitName)
FAILURES: tuple[EventName, ...] = (
    "session_creation_failed",
    "command_failed",
    "validation_failed",
    "file_upload_failed",
    "file_download_failed",
    "list_files_failed",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET")
OTHER = "other"
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
LONG = (60, 300, 900, 1800, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
RENEWED_AT_MOST = 10_000  # renewed sessions whose first command is awaited

_SESSION_OUTCOMES = {"session_created": "created", "session_reused": "reused", "session_renewed": "renewed"}
_TRANSFERS = {
    "file_uploaded": ("up", "ok"),
    "file_upload_failed": ("up", "failed"),
    "file_downloaded": ("down", "ok"),
    "file_download_failed": ("down", "failed"),
}


class Metrics:
    """Of one server; of the loop's thread only."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._sessions = self._counter("hutch_sessions", "Sessions asked for.", outcome=SESSION_OUTCOMES)
        self._session_seconds = self._histogram(
            "hutch_session_start_seconds", "From asking for a session to having it.", outcome=SESSION_OUTCOMES[:3]
        )
        self._lives = self._histogram(
            "hutch_session_life_seconds", "How long sessions lived that ended.", LONG, end=SESSION_ENDS
        )
        self._retries = self._counter(
            "hutch_auto_retries",
            "Calls that clients made again in a new session because theirs had expired.",
            outcome=("ok", "failed"),
        )
        self._commands = self._counter(
            "hutch_commands", "Commands that ended or were refused.", kind=COMMAND_KINDS, outcome=COMMAND_OUTCOMES
        )
        self._command_seconds = self._histogram("hutch_command_seconds", "How long commands ran.", kind=COMMAND_KINDS)
        self._output = self._counter("hutch_command_output_bytes", "What commands printed.")
        self._limits = self._counter("hutch_limit_hits", "Limits that commands or uploads ran into.", limit=LIMITS)
        self._failures = Counter(
            "hutch_failures", "Calls that failed, by event and error code.", ("event", "code"), registry=self.registry
        )
        ways = {"direction": ("up", "down")}
        self._transfers = self._counter("hutch_transfers", "Files moved.", **ways, outcome=("ok", "failed"))
        self._bytes = self._counter("hutch_transferred_bytes", "Bytes of files moved.", **ways)
        self._requests = Counter(
            "hutch_http_requests", "Requests answered.", ("method", "route", "status"), registry=self.registry
        )
        self._request_seconds = Histogram(
            "hutch_http_request_seconds",
            "From a request to the end of its answer.",
            ("route",),
            buckets=SHORT,
            registry=self.registry,
        )
        self.requests_open = Gauge(
            "hutch_http_requests_open", "Requests and connections under way.", registry=self.registry
        )
        self._held = Held(self.registry)
        self._renewed: OrderedDict[str, None] = OrderedDict()

    def _counter(self, name: str, meaning: str, **labels: tuple[str, ...]) -> Counter:
        made = Counter(name, meaning, tuple(labels), registry=self.registry)
        _begin_at_zero(made, labels)
        return made

    def _histogram(
        self, name: str, meaning: str, buckets: tuple[float, ...] = SHORT, **labels: tuple[str, ...]
    ) -> Histogram:
        made = Histogram(name, meaning, tuple(labels), buckets=buckets, registry=self.registry)
        _begin_at_zero(made, labels)
        return made

    # -- what happens

    def watch(self, seen: Observation) -> None:
        event = seen.event
        if event in ("command_executed", "command_failed", "validation_failed"):
            self._command(seen)
        elif event in _SESSION_OUTCOMES or event == "session_creation_failed":
            self._session(seen)
        elif event in _TRANSFERS:
            direction, outcome = _TRANSFERS[event]
            self._transfers.labels(direction, outcome).inc()
            self._bytes.labels(direction).inc(seen.size_bytes)
        elif event == "resource_limit_exceeded":
            self._limits.labels(seen.limit if seen.limit in LIMITS else OTHER).inc()
        elif event in ("session_expired", "session_cleaned_up"):
            end = "expired" if event == "session_expired" else "closed"
            self._lives.labels(end).observe(seen.duration_ms / 1000)
            self._renewed.pop(seen.sandbox_id, None)
        if event in FAILURES:
            self._failures.labels(event, seen.code if seen.code in ERRORS else OTHER).inc()

    def _session(self, seen: Observation) -> None:
        outcome = _SESSION_OUTCOMES.get(seen.event, "failed")
        self._sessions.labels(outcome).inc()
        if outcome == "failed":
            if seen.renews:
                self._retries.labels("failed").inc()
            return
        self._session_seconds.labels(outcome).observe(seen.duration_ms / 1000)
        if seen.renews:  # whether it helped shows in the command that it was made for
            self._renewed[seen.sandbox_id] = None
            if len(self._renewed) > RENEWED_AT_MOST:
                self._renewed.popitem(last=False)

    def _command(self, seen: Observation) -> None:
        self._commands.labels(seen.kind, _outcome(seen)).inc()
        if seen.event == "command_executed":
            self._command_seconds.labels(seen.kind).observe(seen.duration_ms / 1000)
            self._output.inc(seen.size_bytes)
        if self._renewed and seen.sandbox_id in self._renewed:
            del self._renewed[seen.sandbox_id]
            self._retries.labels("failed" if seen.event == "command_failed" else "ok").inc()

    def refused_elsewhere(self, count: int) -> None:
        """Commands that clients refused by themselves, as they tell us."""
        if count:
            self._commands.labels("command", "refused").inc(count)
            self._failures.labels("validation_failed", CommandRejected.code).inc(count)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is the pattern that matched, never the path as it was sent."""
        self._requests.labels(method if method in METHODS else OTHER, route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    # -- what is there

    def now(self, survey: Survey) -> None:
        self._held.survey = survey

    def samples(self) -> Iterator[dict[str, Any]]:
        """The same numbers for programs that do not read Prometheus' own text."""
        for family in self.registry.collect():
            for sample in family.samples:
                if not sample.name.endswith(("_created", "_bucket")):
                    yield {"name": sample.name, "labels": dict(sample.labels), "value": sample.value}


def _outcome(seen: Observation) -> str:
    if seen.event != "command_executed":
        return "refused" if seen.event == "validation_failed" else "failed"
    if seen.timed_out:
        return "timed_out"
    if seen.limit is not None:
        return "limit"
    return "nonzero" if seen.exit_code else "ok"


def _begin_at_zero(metric: Counter | Histogram, labels: dict[str, tuple[str, ...]]) -> None:
    """Every combination there can be: a rate is only seen of a series that was there before."""
    combinations: list[tuple[str, ...]] = [()]
    for values in labels.values():
        combinations = [(*one, value) for one in combinations for value in values]
    for one in combinations:
        if one:
            metric.labels(*one)
