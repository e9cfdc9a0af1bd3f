"""Spans of requests, and of the refreshes that they ask for, to any collector of OpenTelemetry (OTLP over HTTP).

    traceparent of the caller ──> span of the request ──Origin──> span of the refresh, in whatever process

The rule: off, it costs one comparison a request, and nothing of the library is loaded. It is an extra (`tracing`),
asked for by the setting `tracing_url`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from config import Settings
from jobs.origin import TRACEPARENT

from .problems import ServiceError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_SERVICE = "rankcurve"
_FAILED_STATUS = 500


class TracingMissing(ServiceError):
    """The setting tracing_url needs the extra: pip install 'rankcurve[tracing]'."""


class Span(Protocol):
    """One request, being answered."""

    def end(self, status: int, key_id: str) -> None:
        """It is answered."""


class Tracer:
    """Makes spans; `close` sends what is left."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import propagate, trace

        self._provider = provider
        self._tracer = provider.get_tracer(_SERVICE)
        self._propagate, self._trace = propagate, trace

    def request(self, method: str, route: str, request_id: str) -> Span:
        """The span of a request that begins; what is done for it from now on is a part of it."""
        span = self._tracer.start_span(
            f"{method} {route}",
            context=self._context(),
            kind=self._trace.SpanKind.SERVER,
            attributes={"http.request.method": method, "http.route": route, "rankcurve.request_id": request_id},
        )
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, self._trace.set_span_in_context(span))
        TRACEPARENT.set(carrier.get("traceparent", ""))
        return _RequestSpan(span)

    def done(self, name: str, seconds: float) -> None:
        """A span of something that ended now, as a part of the trace that it was done for; none where there is none."""
        if not TRACEPARENT.get():
            return
        ended_ns = time.time_ns()
        span = self._tracer.start_span(name, context=self._context(), start_time=ended_ns - round(seconds * 1e9))
        span.end(ended_ns)

    def _context(self) -> Any:
        return self._propagate.extract({"traceparent": TRACEPARENT.get()})

    def close(self) -> None:
        """Send what is left, within the library's bounds."""
        self._provider.shutdown()


class _RequestSpan:
    def __init__(self, span: Any) -> None:
        self._span = span

    def end(self, status: int, key_id: str) -> None:
        """See `Span`."""
        from opentelemetry.trace import StatusCode

        self._span.set_attribute("http.response.status_code", status)
        self._span.set_attribute("rankcurve.key", key_id)
        if status >= _FAILED_STATUS:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


def make_tracer(settings: Settings) -> Tracer | None:
    """The tracer of the settings; None where tracing is off.

    Raises:
        TracingMissing: the library is not installed.
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
        raise TracingMissing(TracingMissing.__doc__) from error
    provider = TracerProvider(
        resource=Resource.create({"service.name": _SERVICE}),
        sampler=ParentBasedTraceIdRatio(settings.tracing_ratio),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.tracing_url)))
    return Tracer(provider)


class TracedRefreshes:
    """A `RefreshObserver` that makes spans of refreshes, beside whoever watched them before."""

    def __init__(self, observer: Any, tracer: Tracer) -> None:
        self._observer, self._tracer = observer, tracer

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """What else is told is none of its business."""
        told: Callable[..., Any] = getattr(self._observer, name)
        return told

    def refreshed(self, seconds: float) -> None:
        """See `RefreshObserver`."""
        self._observer.refreshed(seconds)
        self._tracer.done("refresh", seconds)
