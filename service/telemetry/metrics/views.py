"""Metrics that are computed at each scrape: the serving curves, the size of the store, and the build of the service.

`StoreSizes` measures the size of the store every INTERVAL_S seconds, or a local file every LOCAL_INTERVAL_S. It shows
the last result, because a scrape must never wait for the store.
"""

import asyncio
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import structlog
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric, SummaryMetricFamily

from storage.errors import StorageError
from storage.store import Store, StoreSize

from .partitions import PartitionMetrics

log = structlog.get_logger(__name__)
# The time between two measurements. For each measurement, PostgreSQL asks its file system for the size of every table.
INTERVAL_S = 30.0
LOCAL_INTERVAL_S = 1.0  # a local file and its log have grown by megabytes in INTERVAL_S, and cost one call each
_AGE_BUCKETS_S = (10, 60, 300, 3600, 86400)


class ServingCurve(NamedTuple):
    """The facts about a serving curve that the metrics show."""

    as_of_us: int
    knots: int
    live: bool = False


def curve_metrics(curves: Iterable[ServingCurve], now_s: float) -> Iterator[Metric]:
    """Yield the distributions of the ages and knots of the serving curves, without a label for the board."""
    figures = list(curves)
    ages_s = [max(0.0, now_s - figure.as_of_us / 1e6) for figure in figures]
    buckets = [(str(float(bound)), float(sum(age_s <= bound for age_s in ages_s))) for bound in _AGE_BUCKETS_S]
    buckets.append(("+Inf", float(len(ages_s))))
    yield HistogramMetricFamily(
        "rankcurve_curve_age_seconds", "Age of the serving curves", buckets=buckets, sum_value=sum(ages_s)
    )
    knots = [float(figure.knots) for figure in figures]
    yield SummaryMetricFamily("rankcurve_curve_knots", "Knots of the serving curves", len(knots), sum(knots))
    yield GaugeMetricFamily(
        "rankcurve_curve_age_seconds_max", "Age of the oldest serving curve", value=max(ages_s, default=0.0)
    )
    live_s = [age_s for age_s, figure in zip(ages_s, figures, strict=True) if figure.live]
    yield GaugeMetricFamily(
        "rankcurve_curves_live", "Serving curves that are live: their counts follow the posts", value=len(live_s)
    )
    yield GaugeMetricFamily(
        "rankcurve_live_lag_seconds_max",
        "Longest time that a live curve is behind the posts",
        value=max(live_s, default=0.0),
    )


class StoreSizes:
    """The size of one store at the last measurement, and the build of the service that uses the store."""

    def __init__(self, partitions: PartitionMetrics, *, version: str, store: str) -> None:
        self._partitions = partitions
        self._build = {"version": version, "python": platform.python_version(), "store": store}
        self.last: StoreSize | None = None  # None: not measured yet

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
        self, store: Store, sleep: Callable[[float], Awaitable[None]], *, wait_s_max: float
    ) -> AsyncIterator[None]:
        """Measure the size of the store now, and then again and again until the context ends.

        Every INTERVAL_S, measure the partitions too. A partition is away if it does not answer within `wait_s_max`.
        """
        await self.measure_size(store)
        times = round(INTERVAL_S / LOCAL_INTERVAL_S) if store.sole_writer else 1

        async def measure_until_cancelled() -> None:
            while True:
                await self._partitions.measure(store, wait_s_max=wait_s_max)
                for _ in range(times):
                    await sleep(INTERVAL_S / times)
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
        else:
            self._partitions.note_sizes(self.last.partitions)
