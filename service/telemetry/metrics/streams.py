"""Metrics of the streams, and of the feed that finds their events."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from .cells import CellSet
from .loop import LoopGauge

_SECONDS_BUCKETS = (0.001, 0.005, 0.02, 0.1, 1)


class StreamMetrics:
    """Counts what the feed of one process does; a `FeedObserver`."""

    def __init__(self, registry: CollectorRegistry, cells: CellSet) -> None:
        self._clients = LoopGauge(cells.gauges, "rankcurve_streams_open", "Streams that are open")
        registry.register(self._clients)
        self._events = Counter("rankcurve_stream_events", "Events handed to streams", registry=registry)
        self._seconds = Histogram(
            "rankcurve_stream_look_seconds",
            "Time to read the journal once and to pass its events to streams",
            buckets=_SECONDS_BUCKETS,
            registry=registry,
        )

    def streams(self, clients: int) -> None:
        self._clients.set_value(clients)

    def streamed(self, *, rows: int, events: int, seconds: float) -> None:
        self._events.inc(events)
        if rows or events:
            self._seconds.observe(seconds)
