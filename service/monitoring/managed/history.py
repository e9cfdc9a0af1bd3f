"""Computes how metrics grew recently, from snapshots that a task takes every `rates_tick_s` seconds.

The metrics are those that Prometheus scrapes. In a node with several processes, they are sums over all processes, so
every process computes the same figures.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import structlog
from prometheus_client.core import Metric

from config.settings import ManagedSettings

log = structlog.get_logger(__name__)

KEPT_S = 900.0  # the longest time that `growth` and `list_numbers` look back
PERCENTILES: Mapping[str, float] = {"P50": 0.5, "P75": 0.75, "P95": 0.95, "P99": 0.99, "P999": 0.999}
PERCENTILE_WINDOW_S = 300.0

Labels = tuple[tuple[str, str], ...]
SampleKey = tuple[str, Labels]


@dataclass(slots=True)
class MetricFamily:
    """A Prometheus metric, and the labels of all its samples that were seen so far."""

    name: str
    kind: str
    documentation: str
    labels: dict[Labels, None] = field(default_factory=dict)  # labels of each sample without `le`, oldest first
    bounds: tuple[tuple[float, str], ...] = ()  # upper bounds of a histogram's buckets, as number and as text
    _buckets: dict[Labels, list[SampleKey]] = field(default_factory=dict)

    def buckets(self, labels: Labels) -> list[SampleKey]:
        """Return the sample keys of a histogram's buckets, in the order of `bounds`."""
        found = self._buckets.get(labels)
        if found is None or len(found) != len(self.bounds):
            name = f"{self.name}_bucket"
            found = [(name, tuple(sorted((*labels, ("le", text))))) for _, text in self.bounds]
            self._buckets[labels] = found
        return found


class _Snapshot(NamedTuple):
    at_s: float
    values: array[float]


class MetricHistory:
    """Keeps as many snapshots of the metrics as the longest window needs."""

    def __init__(
        self,
        collect: Callable[[], Iterable[Metric]],
        limits: ManagedSettings,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._collect, self._limits, self._monotonic, self._sleep = collect, limits, monotonic, sleep
        self.families: dict[str, MetricFamily] = {}
        self._indexes: dict[SampleKey, int] = {}
        ticks = round(KEPT_S / limits.rates_tick_s) + 2
        self._past: deque[_Snapshot] = deque(maxlen=ticks)

    async def run(self) -> None:
        """Take a snapshot every `rates_tick_s` seconds until the task is cancelled."""
        while True:
            try:
                self.note_snapshot()
            except Exception as error:  # a metric failed: skip this snapshot and go on
                log.error("figures_not_noted", exc_info=error)
            await self._sleep(self._limits.rates_tick_s)

    def note_snapshot(self) -> None:
        self._past.append(self._take())

    def read_moment(self) -> MetricsMoment:
        return MetricsMoment(self._take(), list(self._past), self._indexes)

    def _take(self) -> _Snapshot:
        indexes = self._indexes
        values = array("d", bytes(8 * len(indexes)))
        for metric in self._collect():
            family = self.families.get(metric.name)
            if family is None:
                family = MetricFamily(metric.name, metric.type, metric.documentation)
                self.families[metric.name] = family
            for sample in metric.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                index = indexes.get(key)
                if index is None:
                    index = indexes[key] = len(values)
                    values.append(0.0)
                    _note(family, key[1])
                values[index] = sample.value
        return _Snapshot(self._monotonic(), values)


def _note(family: MetricFamily, labels: Labels) -> None:
    others = tuple(label for label in labels if label[0] != "le")
    family.labels.setdefault(others)
    if len(others) < len(labels):
        text = dict(labels)["le"]
        family.bounds = tuple(sorted({*family.bounds, (float(text), text)}))


class MetricsMoment:
    """The metrics at one moment, and the snapshots before it. The attributes of managed objects read from it."""

    def __init__(self, present: _Snapshot, past: Sequence[_Snapshot], indexes: Mapping[SampleKey, int]) -> None:
        self._present, self._past, self._indexes = present, past, indexes
        self._times = [snapshot.at_s for snapshot in past]
        self._befores: dict[float, _Snapshot | None] = {}  # the snapshot at the start of each window

    def value(self, sample: str, labels: Labels = ()) -> float:
        """Return the current number of a Prometheus sample, or 0."""
        index = self._indexes.get((sample, labels))
        return 0.0 if index is None else _at(self._present, index)

    def growth(self, sample: str, labels: Labels, window_s: float) -> float:
        """Return how much a sample grew over the window.

        If the first snapshot is later than the start of the window, the window begins at that snapshot.
        """
        before = self._before(window_s)
        index = self._indexes.get((sample, labels))
        if index is None:
            return 0.0
        return max(0.0, _at(self._present, index) - (0.0 if before is None else _at(before, index)))

    def list_numbers(self, samples: Sequence[tuple[str, Labels]]) -> list[tuple[float, float]]:
        """Return the age of each snapshot in seconds, oldest first, and the sum of these samples in it."""
        indexes = [self._indexes[sample] for sample in samples if sample in self._indexes]
        return [
            (self._present.at_s - snapshot.at_s, sum(_at(snapshot, index) for index in indexes))
            for snapshot in (*self._past, self._present)
        ]

    def _before(self, window_s: float) -> _Snapshot | None:
        if window_s not in self._befores:
            found = bisect_right(self._times, self._present.at_s - window_s)
            self._befores[window_s] = self._past[max(0, found - 1)] if self._past else None
        return self._befores[window_s]

    def percentiles(self, family: MetricFamily, labels: Labels) -> dict[str, float | None]:
        """Return percentiles of a histogram in the last PERCENTILE_WINDOW_S seconds; None if it had no observations."""
        below = [self.growth(*bucket, PERCENTILE_WINDOW_S) for bucket in family.buckets(labels)]
        bounds = [bound for bound, _ in family.bounds]
        return {name: quantile(bounds, below, share) for name, share in PERCENTILES.items()}


def quantile(bounds: Sequence[float], below: Sequence[float], share: float) -> float | None:
    """Return the quantile `share` of a histogram. `below` counts the observations up to each bound.

    Inside a bucket the quantile is interpolated linearly. If the quantile lies above the last finite bound, that bound
    is returned.

    Source: Prometheus' `histogram_quantile`.
    """
    if not below or below[-1] <= 0:
        return None
    wanted = share * below[-1]
    if wanted <= below[0]:
        return max(0.0, bounds[0]) * (wanted / below[0] if below[0] else 0.0)
    for (low, low_count), (high, high_count) in pairwise(zip(bounds, below, strict=True)):
        if wanted <= high_count:
            if high == float("inf"):
                return low
            return low + (high - low) * (wanted - low_count) / (high_count - low_count)
    return bounds[-1]


def _at(snapshot: _Snapshot, index: int) -> float:
    """Return the number of a sample in a snapshot, or 0 if the sample first appeared after the snapshot."""
    return snapshot.values[index] if index < len(snapshot.values) else 0.0
