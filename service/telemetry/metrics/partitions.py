"""The figures of each partition of a store, as they were last measured, and the metrics made of them.

Every figure has the label `partition`, also in a store with one partition. A store has at most 64 partitions.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric

from storage.errors import StorageError
from storage.meter import Meter
from storage.reads.partition_figures import find_away_partitions, read_partition_figures
from storage.store import PartitionSize, Store

log = structlog.get_logger(__name__)
# Reading the figures scans the totals of all boards. The pause after a scan is this many times as long as the scan, so
# scans take at most 1 % of the time.
_PAUSE_RATIO = 99


@dataclass(slots=True)
class MeasuredPartition:
    """A partition as it was last measured. What was not measured yet is None."""

    reachable: bool = True
    bytes: int | None = None
    node: str | None = None
    boards: int | None = None
    entries: int | None = None
    log_next: int | None = None
    fold_lag_seconds: float | None = None


_GAUGES = {  # by the fields that they show
    "reachable": "Whether the partition answered the last check: 1 or 0",
    "bytes": "Size of the partition, its indexes included",
    "boards": "Leaderboards of the partition",
    "entries": "Entries of the partition's leaderboards",
    "log_next": "Log position of the next changes in the partition",
    "fold_lag_seconds": "Time for which changes in the partition have not been folded",
}


class PartitionMetrics:
    """The partitions of one store, by number."""

    def __init__(self, meter: Meter) -> None:
        self.measured: dict[int, MeasuredPartition] = {}
        self._meter = meter
        self._scans_at_s = 0.0  # when the next scan may begin, by the clock of the event loop

    def collect(self) -> Iterator[Metric]:
        for name, text in _GAUGES.items():
            family = GaugeMetricFamily(f"rankcurve_partition_{name}", text, labels=("partition",))
            for number, found in sorted(self.measured.items()):
                if (value := getattr(found, name)) is not None:
                    family.add_metric((str(number),), value)
            yield family

    def note_sizes(self, sizes: tuple[PartitionSize, ...]) -> None:
        for size in sizes:
            if size.number < 0:  # the control partition
                continue
            if size.number not in self.measured:
                self.measured[size.number] = MeasuredPartition()
                self._meter.add("rankcurve_partition_posts_applied", 0, str(size.number))
            self.measured[size.number].bytes, self.measured[size.number].node = size.store_bytes, size.node

    async def measure(self, store: Store, *, wait_s_max: float) -> None:
        """Check which partitions answer within `wait_s_max`. If a scan is due, read the figures of those."""
        await self.check(store, wait_s_max=wait_s_max)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        if begun_s >= self._scans_at_s:
            await self.scan(store)
            now_s = loop.time()
            self._scans_at_s = now_s + _PAUSE_RATIO * (now_s - begun_s)

    async def check(self, store: Store, *, wait_s_max: float) -> None:
        """Check which partitions answer within `wait_s_max`."""
        try:
            away = await find_away_partitions(store, wait_s_max=wait_s_max)
        except StorageError:
            away = list(self.measured)
        for number, found in self.measured.items():
            found.reachable = number not in away

    async def scan(self, store: Store) -> None:
        """Read the figures of the partitions that answered the last check."""
        for number, found in list(self.measured.items()):
            if not found.reachable:
                continue
            try:
                figures = await store.at(number).read(read_partition_figures, heavy=True)
            except StorageError as error:
                log.info("partition_figures_unknown", partition=number, detail=error.detail)
                continue
            found.boards, found.entries, found.log_next = figures.boards, figures.entries, figures.log_next
            folded_us = figures.folded_us
            found.fold_lag_seconds = None if folded_us is None else max(0.0, time.time() - folded_us / 1e6)
