"""Metrics of sharing curves through memcached. If memcached returns wrong data, only these metrics show that."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from prometheus_client import CollectorRegistry, Counter

from storage.curves.shared_curves import ReadOutcome, WriteOutcome

from .loop import WatchedGauge


class SharingMetrics:
    """Counts the reads, writes and failures of one process with memcached; a `SharingObserver`."""

    def __init__(self, registry: CollectorRegistry, views: CollectorRegistry) -> None:
        self._views = views
        self._reads = Counter(
            "rankcurve_shared_curve_reads", "Lookups of curves in memcached", ["outcome"], registry=registry
        )
        self._writes = Counter(
            "rankcurve_shared_curve_writes", "Writes of curves to memcached", ["outcome"], registry=registry
        )
        for counter, outcomes in ((self._reads, get_args(ReadOutcome)), (self._writes, get_args(WriteOutcome))):
            for outcome in outcomes:
                counter.labels(outcome)  # this shows the counter as 0 before its first event
        self._errors = Counter(
            "rankcurve_memcached_errors", "Failures of memcached servers in calls", registry=registry
        )

    def shared_read(self, outcome: ReadOutcome) -> None:
        self._reads.labels(outcome).inc()

    def shared_write(self, outcome: WriteOutcome) -> None:
        self._writes.labels(outcome).inc()

    def memcached_failed(self, servers: int) -> None:
        self._errors.inc(servers)

    def watch_servers(self, count_skipped: Callable[[], int]) -> None:
        """Show at every scrape how many servers this process currently skips after failures (open circuit breaker)."""
        self._views.register(
            WatchedGauge(
                "rankcurve_memcached_servers_left_alone",
                "memcached servers that are not asked for a while, after failures",
                count_skipped,
            )
        )
