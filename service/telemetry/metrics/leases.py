"""Metrics of leases: requests and their outcomes, transactions, moved resources, and the exchange with other stores."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, Summary

from storage.leases.peers.exchange import AppliedPage

from .cells import Cells
from .loop import LoopGauge

OUTCOMES = ("kept", "extended", "acquired", "released", "no_resource", "refused")
_SECONDS_BUCKETS = (0.002, 0.005, 0.02, 0.1, 1)


class LeaseMetrics:
    """Counts what one process does for leases; a `LeaseObserver`, `BalanceObserver` and `ExchangeObserver`."""

    def __init__(self, registry: CollectorRegistry, gauges: Cells) -> None:
        self._requests = Counter("rankcurve_lease_requests", "Requests for leases", ["outcome"], registry=registry)
        for outcome in OUTCOMES:
            self._requests.labels(outcome)  # this shows the counter as 0 before the first request
        self._seconds = Histogram(
            "rankcurve_lease_write_seconds",
            "Time of a transaction that changes leases",
            buckets=_SECONDS_BUCKETS,
            registry=registry,
        )
        self._group = Summary(
            "rankcurve_lease_write_requests", "Requests in a transaction that changes leases", registry=registry
        )

        self._waiting = LoopGauge(
            gauges, "rankcurve_lease_requests_waiting", "Requests for leases that wait for a transaction"
        )
        registry.register(self._waiting)
        self._moved = Counter(
            "rankcurve_lease_resources_moved",
            "Free resources that the balancer moved to another region",
            registry=registry,
        )

        self._exchanged = Counter(
            "rankcurve_lease_events_exchanged", "Events read from the journals of other stores", registry=registry
        )
        self._duplicates = Counter(
            "rankcurve_lease_duplicates", "Keys with a lease in two stores", ["outcome"], registry=registry
        )
        for outcome in ("found", "released"):
            self._duplicates.labels(outcome)
        self._peer_failures = Counter(
            "rankcurve_lease_peer_failures", "Failed reads of the journals of other stores", registry=registry
        )

    def lease_answered(self, outcome: str) -> None:
        self._requests.labels(outcome).inc()

    def page_taken_in(self, taken: AppliedPage) -> None:
        self._exchanged.inc(taken.events)
        self._duplicates.labels("found").inc(taken.duplicates)
        self._duplicates.labels("released").inc(taken.released)

    def peer_away(self) -> None:
        self._peer_failures.inc()

    def resources_moved(self, resources: int) -> None:
        self._moved.inc(resources)

    def lease_requests_waiting(self, requests: int) -> None:
        self._waiting.set_value(requests)

    def lease_group_written(self, requests: int, seconds: float) -> None:
        self._group.observe(requests)
        self._seconds.observe(seconds)
