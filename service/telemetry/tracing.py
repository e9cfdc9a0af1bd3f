"""Sends tracing spans to an OpenTelemetry collector (OTLP over HTTP), for requests and the refreshes that they cause.

    caller's header `traceparent` ──> span of the request ──> span of the refresh that it causes, in any process

The setting `tracing_url` turns tracing on, for which the package's extra `tracing` must be installed. While tracing is
off, the OpenTelemetry library is not loaded.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from config import Settings
from jobs.request_origin import TRACEPARENT
from service.contract.problems import ServiceError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_SERVICE = "rankcurve"
_FAILED_STATUS = 500


class TracingMissingError(ServiceError):
    """The setting tracing_url needs the extra: pip install 'rankcurve[tracing]'."""


class Span:
    def __init__(self, span: Any) -> None:
        self._span = span

    def end(self, status: int, key_id: str) -> None:
        """End the span, and give it the HTTP status of the answer and the id of the caller's API key."""
        from opentelemetry.trace import StatusCode

        self._span.set_attribute("http.response.status_code", status)
        self._span.set_attribute("rankcurve.key", key_id)
        if status >= _FAILED_STATUS:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class Tracer:
    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import propagate, trace

        self._provider = provider
        self._tracer = provider.get_tracer(_SERVICE)
        self._propagate, self._trace = propagate, trace

    def start_request_span(self, method: str, route: str, request_id: str) -> Span:
        """Begin a request's span. Spans that are made later for the same request become its children."""
        span = self._tracer.start_span(
            f"{method} {route}",
            context=self._context(),
            kind=self._trace.SpanKind.SERVER,
            attributes={"http.request.method": method, "http.route": route, "rankcurve.request_id": request_id},
        )
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, self._trace.set_span_in_context(span))
        TRACEPARENT.set(carrier.get("traceparent", ""))
        return Span(span)

    def record_span(self, name: str, seconds: float) -> None:
        """Record, in the current trace, a span that ends now and took `seconds`. Outside a trace, record nothing."""
        if not TRACEPARENT.get():
            return
        ended_ns = time.time_ns()
        span = self._tracer.start_span(name, context=self._context(), start_time=ended_ns - round(seconds * 1e9))
        span.end(ended_ns)

    def _context(self) -> Any:
        return self._propagate.extract({"traceparent": TRACEPARENT.get()})

    def close(self) -> None:
        """Send the spans that are still unsent. The library limits the time that this takes."""
        self._provider.shutdown()


def make_tracer(settings: Settings) -> Tracer | None:
    """Make a tracer that sends spans to `tracing_url`; return None if tracing is off.

    Raises:
        TracingMissingError: the library is not installed.
    """
    if not settings.tracing_url:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
    except ImportError as error:
        raise TracingMissingError(TracingMissingError.__doc__) from error
    provider = TracerProvider(
        resource=Resource.create({"service.name": _SERVICE}),
        sampler=ParentBasedTraceIdRatio(settings.tracing_ratio),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.tracing_url)))
    return Tracer(provider)
