"""What the server holds right now, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hutch.engine.survey import Survey

GAUGES = {
    "sessions": ("hutch_sessions_active", "Sessions used since this server started that have not ended."),
    "sandboxes_running": ("hutch_sandboxes_running", "Sandboxes that run, spare ones too."),
    "sandboxes_spare": ("hutch_sandboxes_spare", "Sandboxes started ahead that no session has taken."),
    "sandboxes_max": ("hutch_sandboxes_max", "Sandboxes that may run at once (MAX_POOL_SIZE)."),
    "processes_running": ("hutch_processes_running", "Commands, background processes and shells under way."),
    "workspaces": ("hutch_workspaces_counted", "Workspaces whose size is known."),
    "workspace_bytes": ("hutch_workspace_bytes", "What those workspaces hold together."),
    "workspace_files": ("hutch_workspace_files", "Files in those workspaces."),
}
_NOTHING = Survey(*[0] * 13)


class Held(Collector):
    """The last survey, which is made for each reading."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.survey: Survey | None = None
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        return self._families(_NOTHING)

    def collect(self) -> Iterator[Metric]:
        return iter(()) if self.survey is None else self._families(self.survey)

    def _families(self, survey: Survey) -> Iterator[Metric]:
        for field, (name, meaning) in GAUGES.items():
            yield GaugeMetricFamily(name, meaning, value=getattr(survey, field))
        takes = CounterMetricFamily(
            "hutch_pool_takes", "New sessions that found a spare sandbox, or did not.", labels=["outcome"]
        )
        takes.add_metric(["hit"], survey.pool_hits)
        takes.add_metric(["miss"], survey.pool_misses)
        yield takes
        asked = CounterMetricFamily(
            "hutch_egress_requests", "Requests of sandboxes to hosts outside, by how they went.", labels=["outcome"]
        )
        for outcome in ("passed", "refused", "failed"):
            asked.add_metric([outcome], getattr(survey, f"egress_{outcome}"))
        yield asked
