"""Traces by OpenTelemetry: a span for each request, within the caller's own trace, and in it one for what it ran.

Neither its SDK nor an exporter is loaded unless its standard variables ask for traces.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers

from hutch.engine.observe import Observation
from hutch.model.errors import SettingsInvalid

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_SPANS = {
    "session_created": "create",
    "session_renewed": "create",
    "session_reused": "create",
    "session_creation_failed": "create",
    "command_executed": "exec",
    "command_failed": "exec",
    "validation_failed": "exec",
}
_NANOSECONDS = 1_000_000_000


class Tracing:
    """Watches the engine and every request. What callers wrote is in no span: only ids, outcomes and numbers."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("hutch")
        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()

    @contextlib.contextmanager
    def request(self, method: str, headers: Headers) -> Iterator[None]:
        given = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        parent = self._propagator.extract(given)
        with self._tracer.start_as_current_span(
            method,
            context=parent,
            kind=self._trace.SpanKind.SERVER,
            attributes={"http.request.method": method},
            record_exception=False,  # its message may quote what a caller sent
            set_status_on_exception=False,
        ):
            yield

    def answered(self, method: str, route: str, status: int) -> None:
        """The current request was."""
        span = self._trace.get_current_span()
        span.set_attributes({"http.route": route, "http.response.status_code": status})
        span.update_name(f"{method} {route}")
        if status >= 500:
            span.set_status(self._trace.StatusCode.ERROR)

    def watch(self, seen: Observation) -> None:
        """A command or session is told of when it is over; its span begins when it did."""
        name = _SPANS.get(seen.event)
        if name is None:
            return
        end = time.time_ns()
        span = self._tracer.start_span(
            name, start_time=end - round(seen.duration_ms / 1000 * _NANOSECONDS), attributes=_attributes(seen)
        )
        if seen.code:
            span.set_status(self._trace.StatusCode.ERROR)
        span.end(end)

    def close(self) -> None:
        """Send what is waiting to be sent."""
        self._provider.shutdown()


def _attributes(seen: Observation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "hutch.event": seen.event,
        "hutch.sandbox_id": seen.sandbox_id,
        "hutch.session_id": seen.session_id,
        "hutch.exit_code": seen.exit_code,
        "hutch.limit": seen.limit,
        "hutch.timed_out": seen.timed_out or None,
        "error.type": seen.code,
    }
    return {name: value for name, value in found.items() if value not in (None, "")}


def open_tracing() -> Tracing:
    """As the OTEL_ variables say: where to, for whom, how many. Raises: SettingsInvalid without the packages."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise SettingsInvalid(
            "OTEL_ variables ask for traces, which need: pip install 'hutch[otel]'. "
            "OTEL_SDK_DISABLED=true turns them off."
        ) from None
    resource = Resource({"service.name": "hutch"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)
