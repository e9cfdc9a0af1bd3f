"""Figures of the store: what runs there, on how many connections, and what had to be tried again.

The rule: kinds of statements are names of the code, pools those of the settings.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from storage.observing import STATEMENT_KINDS

from .cells import CellSet
from .loop import LoopGauges

_WAIT_BUCKETS_S = (0, 0.01, 1)


class StoreMetrics:
    """What one process asks of its store; a `StoreObserver`."""

    def __init__(self, registry: CollectorRegistry, cells: CellSet) -> None:
        statements = Counter("rankcurve_store_statements", "Statements that the store ran", ["kind"], registry=registry)
        rows = Counter("rankcurve_store_rows", "Rows that statements answered or changed", ["kind"], registry=registry)
        # Made once: to look up a label's child costs as much as to count.
        self._statements = {kind: statements.labels(kind) for kind in STATEMENT_KINDS}
        self._rows = {kind: rows.labels(kind) for kind in STATEMENT_KINDS}
        self._retries = Counter(
            "rankcurve_store_retries", "Attempts that a lost race or connection made necessary", registry=registry
        )
        self._waits = Histogram(
            "rankcurve_store_connection_wait_seconds",
            "Time that programs waited for a connection to the store",
            ["pool"],
            buckets=_WAIT_BUCKETS_S,
            registry=registry,
        )
        labels = ("pool", "kind")
        self._lent = LoopGauges(cells.gauges, "rankcurve_store_connections_lent", "Connections in use", labels)
        self._waiting = LoopGauges(
            cells.gauges, "rankcurve_store_connections_awaited", "Programs that wait for a connection", labels
        )
        self._limit = LoopGauges(
            cells.gauges, "rankcurve_store_connections_limit", "Connections that there may be", labels
        )
        registry.register(self._limit)
        registry.register(self._lent)
        registry.register(self._waiting)

    def connection_waited(self, pool: str, kind: str, seconds: float) -> None:
        """See `StoreObserver`."""
        self._waits.labels(pool).observe(seconds)

    def connections_lent(self, pool: str, kind: str, lent: int, *, waiting: int, limit: int) -> None:
        """See `StoreObserver`."""
        self._lent.set((pool, kind), lent)
        self._waiting.set((pool, kind), waiting)
        self._limit.set((pool, kind), limit)

    def statement_ran(self, kind: str, rows: int) -> None:
        """See `StoreObserver`."""
        self._statements[kind].inc()
        self._rows[kind].inc(rows)

    def tried_again(self) -> None:
        """See `StoreObserver`."""
        self._retries.inc()
