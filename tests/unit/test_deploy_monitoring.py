"""The alert rules and the dashboard speak of metrics, labels and values that a server has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from hutch.engine.observe import EventName, Observation
from hutch.engine.survey import Survey
from hutch.server.metrics import Metrics
from tests.promql import Named, named_in

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
DASHBOARD = ROOT / "deploy/grafana/hutch.json"
GUIDE = ROOT / "docs/how-to/monitor.md"
PROMETHEUS_ADDS = frozenset({"instance", "job"})
OF_PROMETHEUS: Mapping[str, dict[str, set[str]]] = {"up": {}}
OPEN_SETS = frozenset({"code", "event", "method", "route", "status", "le"})  # values come with use
SEVERITIES = frozenset({"critical", "warning", "info"})


def existing() -> dict[str, dict[str, set[str]]]:
    """Every name a server has ever samples of, with its labels and the values they begin with."""
    metrics = Metrics()
    metrics.now(Survey(*[0] * 13))
    metrics.watch(Observation("list_files_failed", "t", code="session_expired"))
    metrics.request("GET", "/health", 200, 0.1)
    found: dict[str, dict[str, set[str]]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


HAS = {**existing(), **OF_PROMETHEUS}


def problems(named: Named, has: Mapping[str, dict[str, set[str]]]) -> list[str]:
    missing = [f"there is no metric {name}" for name in sorted(named.metrics - set(has))]
    known = PROMETHEUS_ADDS.union(*(has.get(name, {}) for name in named.metrics))
    missing += [f"nothing here has a label {label}" for label in sorted(named.grouped - known)]
    for matcher in named.matchers:
        labels = has.get(matcher.metric, {})
        if matcher.label not in set(labels) | PROMETHEUS_ADDS:
            missing.append(f"{matcher.metric} has no label {matcher.label}")
        elif matcher.label in labels and matcher.label not in OPEN_SETS:
            pattern = re.compile(matcher.value if "~" in matcher.how else re.escape(matcher.value))
            if not any(pattern.fullmatch(value) for value in labels[matcher.label]):
                missing.append(f"{matcher.metric} has no {matcher.label} {matcher.value}")
    return missing


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def dashboard_expressions() -> Iterator[tuple[str, str, str]]:
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"] or ""


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_what_there_is(rule: dict[str, Any]) -> None:
    named = named_in(rule["expr"])
    assert named.metrics
    assert problems(named, HAS) == []
    assert rule["labels"]["severity"] in SEVERITIES
    told = " ".join(rule["annotations"].values())
    shown = set(re.findall(r"\$labels\.(\w+)", told))
    assert shown <= named.grouped | PROMETHEUS_ADDS
    assert rule["annotations"]["summary"]


@pytest.mark.parametrize(("title", "expression", "legend"), list(dashboard_expressions()))
def test_a_panel_asks_for_what_there_is(title: str, expression: str, legend: str) -> None:
    named = named_in(expression)
    assert named.metrics
    assert problems(named, HAS) == []
    shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
    assert shown <= named.grouped | PROMETHEUS_ADDS


def test_the_dashboard_is_whole() -> None:
    whole = json.loads(DASHBOARD.read_text())
    numbers = [panel["id"] for panel in whole["panels"]]
    assert len(set(numbers)) == len(numbers)
    asked = [one["query"] for one in whole["templating"]["list"] if one["type"] == "query"]
    for query in asked:
        match = re.fullmatch(r"label_values\((\w+), (\w+)\)", query["query"])
        assert match is not None
        assert match[1] in HAS
        assert match[2] in PROMETHEUS_ADDS
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in whole["panels"]}
    assert len(places) == len(numbers)


def test_every_metric_of_ours_is_on_the_dashboard_and_in_the_guide() -> None:
    ours = {re.sub(r"_(bucket|count|sum)$", "", name) for name in HAS if name.startswith("hutch_")}
    ours = {name for name in ours if not name.endswith("_created")}
    shown = " ".join(expression for _, expression, _ in dashboard_expressions())
    assert [name for name in sorted(ours) if name not in shown] == []
    guide = GUIDE.read_text()
    assert [name for name in sorted(ours) if f"`{name}`" not in guide] == []


def test_every_event_of_the_log_is_in_the_guide() -> None:
    guide = GUIDE.read_text()
    assert [name for name in get_args(EventName) if f"`{name}`" not in guide] == []


@pytest.mark.parametrize("name", sorted(set().union(*(named_in(rule["expr"]).metrics for rule in rules()))))
def test_a_renamed_metric_would_be_noticed(name: str) -> None:
    renamed = {other: labels for other, labels in HAS.items() if other != name}
    assert any(problems(named_in(rule["expr"]), renamed) for rule in rules())


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ('rate(hutch_commands_total{outcome="lost"}[5m])', "hutch_commands_total has no outcome lost"),
        ('hutch_commands_total{result="ok"}', "hutch_commands_total has no label result"),
        ("sum by (tenant) (hutch_sessions_total)", "nothing here has a label tenant"),
        ("hutch_sessions_active > 0 and hutch_sessions", "there is no metric hutch_sessions"),
    ],
)
def test_what_is_wrong_is_told(expression: str, wrong: str) -> None:
    assert problems(named_in(expression), HAS) == [wrong]


def test_expressions_are_read_as_prometheus_does() -> None:
    named = named_in(
        '5 * sum without (a, b) (rate(x:y_total{c=~"d|{e}",f!="g(h)"}[5m] offset 1h)) / on (i) group_left z'
    )
    assert named.metrics == {"x:y_total", "z"}
    assert named.grouped == {"a", "b", "i"}
    assert [(one.label, one.how, one.value) for one in named.matchers] == [("c", "=~", "d|{e}"), ("f", "!=", "g(h)")]
    with pytest.raises(ValueError, match="cannot read"):
        named_in("a ? b")
