"""Metrics of the store: its statements, connections, retries and size, and the build of the service that uses it.

`StoreSizes` measures the size of the store every INTERVAL_S seconds and shows the last result, because a scrape must
never wait for the store.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from storage.engines.store_observer import STATEMENT_KINDS
from storage.errors import StorageError
from storage.store import Store, StoreSize

from .cells import CellSet
from .loop import LoopGauges

log = structlog.get_logger(__name__)
# The time between two measurements. For each measurement, PostgreSQL asks its file system for the size of every table.
INTERVAL_S = 30.0
_WAIT_BUCKETS_S = (0, 0.01, 1)


class StoreMetrics:
    """Counts the statements, connections and retries of one process; a `StoreObserver`."""

    def __init__(self, registry: CollectorRegistry, cells: CellSet) -> None:
        statements = Counter("rankcurve_store_statements", "Statements that the store ran", ["kind"], registry=registry)
        rows = Counter("rankcurve_store_rows", "Rows that statements returned or changed", ["kind"], registry=registry)
        # The counter of each label is looked up only once, because a lookup costs as much as counting.
        self._statements = {kind: statements.labels(kind) for kind in STATEMENT_KINDS}
        self._rows = {kind: rows.labels(kind) for kind in STATEMENT_KINDS}
        self._retries = Counter(
            "rankcurve_store_retries", "Programs run again after a lost race or a lost connection", registry=registry
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
            cells.gauges, "rankcurve_store_connections_limit", "Connections that the connection pool may open", labels
        )
        registry.register(self._limit)
        registry.register(self._lent)
        registry.register(self._waiting)

    def connection_waited(self, pool: str, kind: str, seconds: float) -> None:
        self._waits.labels(pool).observe(seconds)

    def connections_lent(self, pool: str, kind: str, lent: int, *, waiting: int, limit: int) -> None:
        self._lent.set_value((pool, kind), lent)
        self._waiting.set_value((pool, kind), waiting)
        self._limit.set_value((pool, kind), limit)

    def statement_ran(self, kind: str, rows: int) -> None:
        self._statements[kind].inc()
        self._rows[kind].inc(rows)

    def tried_again(self) -> None:
        self._retries.inc()


class StoreSizes(Collector):
    """The size of one store at the last measurement, and the build of the service that uses the store."""

    def __init__(self, registry: CollectorRegistry, *, version: str, store: str) -> None:
        self._build = {"version": version, "python": platform.python_version(), "store": store}
        self.last: StoreSize | None = None  # None: not measured yet
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "rankcurve_build_info",
            "Versions of the service and of Python, and the kind of store, as labels; always 1",
            labels=tuple(self._build),
        )
        build.add_metric(tuple(self._build.values()), 1)
        yield build
        if self.last is None:
            return
        yield GaugeMetricFamily(
            "rankcurve_store_bytes", "Size of the store, its log included", value=self.last.store_bytes
        )
        if self.last.disk_free_bytes is not None:
            yield GaugeMetricFamily(
                "rankcurve_store_disk_free_bytes",
                "Free space on the disk of a SQLite store",
                value=self.last.disk_free_bytes,
            )

    @asynccontextmanager
    async def measure_periodically(
        self, store: Store, sleep: Callable[[float], Awaitable[None]]
    ) -> AsyncIterator[None]:
        """Measure the size of the store now, and then every INTERVAL_S seconds until the context ends."""
        await self.measure_size(store)

        async def measure_until_cancelled() -> None:
            while True:
                await sleep(INTERVAL_S)
                await self.measure_size(store)

        measuring = asyncio.create_task(measure_until_cancelled(), name="store size")
        try:
            yield
        finally:
            measuring.cancel()

    async def measure_size(self, store: Store) -> None:
        """Measure the size of the store. Keep the previous size if the store does not answer."""
        try:
            self.last = await store.size()
        except StorageError as error:
            log.info("store_size_unknown", detail=error.detail)
