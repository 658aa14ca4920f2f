"""Traces: spans of requests and of what they ran, within the caller's own trace; nothing unless asked for."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from hutch.model.errors import SettingsInvalid
from hutch.server.services import ServerOptions
from hutch.server.tracing import Tracing, open_tracing
from hutch.settings import read_server_settings
from hutch.testing.fake_provider import FakeProvider
from tests.server_rig import Served, served
from tests.unit.engine_stage import settings

pytestmark = pytest.mark.once

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
SECRET = "Zanzibar"


@contextmanager
def traced(folder: Path) -> Iterator[tuple[Served, httpx.Client, InMemorySpanExporter]]:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    with served(settings(folder), FakeProvider(), ServerOptions(tracing=Tracing(provider))) as server:
        head = {"authorization": f"Bearer {server.key}"}
        with httpx.Client(base_url=server.url, headers=head, trust_env=False) as http:
            yield server, http, kept
    provider.shutdown()


def named(kept: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = (span for span in kept.get_finished_spans() if span.name == name)
    return found


def test_what_a_caller_asked_for_is_in_its_own_trace(tmp_path: Path) -> None:
    with traced(tmp_path) as (_, http, kept):
        order = {"user_id": SECRET, "thread_id": SECRET, "template": "open"}
        sandbox = http.put("/v1/sessions", json=order, headers=PARENT).json()["sandbox_id"]
        ran = http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": f"echo {SECRET}; exit 3"}, headers=PARENT)
        assert ran.json()["exit_code"] == 3
    create, run = named(kept, "create"), named(kept, "exec")
    for span, request in (
        (create, named(kept, "PUT /v1/sessions")),
        (run, named(kept, "POST /v1/sandboxes/{sandbox_id}/exec")),
    ):
        assert request.context is not None
        assert request.parent is not None
        assert span.parent is not None
        assert f"{request.context.trace_id:032x}" == TRACE
        assert f"{request.parent.span_id:016x}" == SPAN
        assert span.parent.span_id == request.context.span_id
        assert (request.start_time or 0) <= (span.start_time or 0) <= (span.end_time or 0) <= (request.end_time or 0)
    assert run.attributes is not None
    assert (run.attributes["hutch.exit_code"], run.attributes["hutch.sandbox_id"]) == (3, sandbox)
    assert create.attributes is not None
    assert create.attributes["hutch.event"] == "session_created"
    assert not any(SECRET in span.to_json() for span in kept.get_finished_spans())


def test_failures_are_marked(tmp_path: Path) -> None:
    with traced(tmp_path) as (_, http, kept):
        order = {"user_id": "u", "thread_id": "t"}
        sandbox = http.put("/v1/sessions", json=order).json()["sandbox_id"]
        assert http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": f"rm {SECRET}"}).status_code == 400
        assert http.get("/v1/sessions", headers={"traceparent": "00-forged"}).status_code == 200
    run = named(kept, "exec")
    assert run.status.status_code is StatusCode.ERROR
    assert run.attributes is not None
    assert run.attributes["error.type"] == "command_rejected"
    request = named(kept, "POST /v1/sandboxes/{sandbox_id}/exec")
    assert request.attributes is not None
    assert request.attributes["http.response.status_code"] == 400
    assert named(kept, "GET /v1/sessions").parent is None
    assert not any(SECRET in span.to_json() for span in kept.get_finished_spans())


def test_a_mistake_of_ours_is_marked_without_what_it_was_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(tenant: str) -> None:
        raise RuntimeError(SECRET)

    with traced(tmp_path) as (server, http, kept):
        monkeypatch.setattr(server.engine.sessions, "list", broken)
        assert http.get("/v1/sessions").status_code == 500
    request = named(kept, "GET /v1/sessions")
    assert request.status.status_code is StatusCode.ERROR
    assert SECRET not in request.to_json()


def test_two_requests_at_once_keep_their_traces_apart(tmp_path: Path) -> None:
    with traced(tmp_path) as (server, http, kept):
        head = {"authorization": f"Bearer {server.key}"}
        sandboxes = [
            http.put("/v1/sessions", json={"user_id": "u", "thread_id": name, "template": "open"}).json()["sandbox_id"]
            for name in "ab"
        ]
        kept.clear()

        async def both() -> None:
            async with httpx.AsyncClient(base_url=server.url, headers=head, trust_env=False) as client:
                async with asyncio.TaskGroup() as group:
                    for number, sandbox in enumerate(sandboxes):
                        order = {"argv": ["sleep", "0.2"]}
                        parent = {"traceparent": f"00-{number + 1:032x}-{SPAN}-01"}
                        group.create_task(client.post(f"/v1/sandboxes/{sandbox}/exec", json=order, headers=parent))

        asyncio.run(both())
    found = {
        (span.context.trace_id, span.attributes["hutch.sandbox_id"])
        for span in kept.get_finished_spans()
        if span.name == "exec" and span.context is not None and span.attributes is not None
    }
    assert found == {(1, sandboxes[0]), (2, sandboxes[1])}


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_SERVICE_NAME": "other"}, False),
    ],
)
def test_the_standard_variables_say_whether(variables: dict[str, str], wanted: bool) -> None:
    assert read_server_settings(variables).traces is wanted


def test_traces_without_their_packages_are_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(SettingsInvalid, match=r"hutch\[otel\]"):
        open_tracing()


def test_neither_sdk_nor_exporter_is_loaded_unless_asked_for(tmp_path: Path) -> None:
    script = (
        "import sys; from hutch.server.app import create_app; import hutch.cli.serve\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={**os.environ}, timeout=60
    )
    assert said.stdout == "[]\n"
