"""Measures a store and its partitions from time to time, so that a scrape never has to wait for the store.

The partitions' figures have the label `partition`, even in a store with one partition. A store has at most 64 of them.
"""

import asyncio
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric

from storage.errors import StorageError
from storage.limits.held_posts import COUNTED_MAX, count_all_held
from storage.meter import Meter
from storage.reads.away_partitions import find_away_partitions
from storage.store import Store, StoreSize

log = structlog.get_logger(__name__)
# The time between two measurements, at each of which PostgreSQL asks its file system for the size of every table.
INTERVAL_S = 30.0
LOCAL_INTERVAL_S = 1.0  # a SQLite file and its log may grow by megabytes in INTERVAL_S, and are cheap to measure
PARTITION_GAUGES = {  # help text of each gauge, by the name of its figure
    "reachable": "Whether the partition answered the last check: 1 or 0",
    "bytes": "Size of the partition, its indexes included",
    "held_posts": f"Posts that wait for a verdict; at most {COUNTED_MAX:,} are counted",
}


class StoreFigures:
    def __init__(self, store: Store, meter: Meter, *, version: str, wait_s_max: float) -> None:
        """Prepare to measure a store. A partition is unreachable if it does not answer within `wait_s_max` seconds."""
        self._store, self._meter, self._wait_s_max = store, meter, wait_s_max
        self._build = {"version": version, "python": platform.python_version(), "store": store.dialect.name}
        self.size: StoreSize | None = None  # None: not measured yet
        self.partitions: dict[int, dict[str, float | None]] = {}  # the measured figures, by partition number

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "rankcurve_build_info",
            "Versions of the service and of Python, and the kind of store, as labels; always 1",
            labels=tuple(self._build),
        )
        build.add_metric(tuple(self._build.values()), 1)
        yield build
        if self.size is not None:
            text = "Size of the store, its log included"
            yield GaugeMetricFamily("rankcurve_store_bytes", text, value=self.size.store_bytes)
            if self.size.disk_free_bytes is not None:
                text = "Free space on the disk of a SQLite store"
                yield GaugeMetricFamily("rankcurve_store_disk_free_bytes", text, value=self.size.disk_free_bytes)
        for name, text in PARTITION_GAUGES.items():
            family = GaugeMetricFamily(f"rankcurve_partition_{name}", text, labels=("partition",))
            for number, found in sorted(self.partitions.items()):
                if (value := found.get(name)) is not None:
                    family.add_metric((str(number),), value)
            yield family

    @asynccontextmanager
    async def measure_periodically(self, sleep: Callable[[float], Awaitable[None]]) -> AsyncIterator[None]:
        """Measure the size of the store periodically until the `async with` block ends.

        The block does not wait for the first measurement, which takes a second if there are thousands of tables. Every
        INTERVAL_S seconds, also check which partitions answer.
        """
        times = round(INTERVAL_S / LOCAL_INTERVAL_S) if self._store.sole_writer else 1

        async def measure_until_cancelled() -> None:
            await self.measure_size()
            while True:
                await self.check_partitions()
                for _ in range(times):
                    await sleep(INTERVAL_S / times)
                    await self.measure_size()

        measuring = asyncio.create_task(measure_until_cancelled(), name="store size")
        try:
            yield
        finally:
            measuring.cancel()

    async def measure_size(self) -> None:
        try:
            self.size = await self._store.size()
        except StorageError as error:
            log.info("store_size_unknown", detail=error.detail)
            return
        for size in self.size.partitions:
            if size.number >= 0:  # number -1 is the control partition, which holds no entries of boards
                self._meter.add("rankcurve_partition_posts_applied", 0, str(size.number))
                self.partitions.setdefault(size.number, {"reachable": True})["bytes"] = size.store_bytes

    async def check_partitions(self) -> None:
        try:
            away = await find_away_partitions(self._store, wait_s_max=self._wait_s_max)
        except StorageError:
            away = list(self.partitions)
        for number, found in self.partitions.items():
            found["reachable"] = number not in away
            with suppress(StorageError):
                found["held_posts"] = None if number in away else await self._store.at(number).read(count_all_held)
