"""Metrics of the streams, and of the feed that finds their events.

No label names a board or an owner, because callers choose the boards and owners to follow.
"""

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
        """Set the number of open streams. The feed calls this whenever the number has changed."""
        self._clients.set_value(clients)

    def streamed(self, *, rows: int, events: int, seconds: float) -> None:
        """Count the events that one read of the journal sent to clients, and the seconds that the read took.

        If the read found no rows and sent no events, its seconds are not counted.
        """
        self._events.inc(events)
        if rows or events:
            self._seconds.observe(seconds)
