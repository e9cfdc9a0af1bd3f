"""Computes how much metrics grew recently, from snapshots that a task takes every `rates_tick_s` seconds.

Operators want rates, and counters alone only show totals since the start. The metrics are those that Prometheus
scrapes, summed over all processes of the node, so every process computes the same figures.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from math import inf
from typing import NamedTuple

import structlog
from prometheus_client.core import Metric

from config.settings import ManagedSettings
from service.telemetry.metrics.process import Metrics

log = structlog.get_logger(__name__)

KEPT_S = 900.0  # the longest time that `growth` and `list_totals` look back
PERCENTILES: Mapping[str, float] = {"P50": 0.5, "P75": 0.75, "P95": 0.95, "P99": 0.99, "P999": 0.999}
PERCENTILE_WINDOW_S = 300.0

Labels = tuple[str, ...]  # label values of a series, in the order of the family's labels


class _Snapshot(NamedTuple):
    at_s: float
    processes: Mapping[str, float]
    totals: array[float]


class MetricHistory:
    def __init__(
        self,
        metrics: Metrics,
        limits: ManagedSettings,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._metrics, self._limits, self._monotonic, self._sleep = metrics, limits, monotonic, sleep
        ticks = round(KEPT_S / limits.rates_tick_s) + 2
        self._past: deque[_Snapshot] = deque(maxlen=ticks)

    async def run(self) -> None:
        while True:
            try:
                self.note_snapshot()
            except Exception as error:  # skip this snapshot, because a metric failed, and go on
                log.error("figures_not_noted", exc_info=error)
            await self._sleep(self._limits.rates_tick_s)

    def note_snapshot(self) -> None:
        self._past.append(self._take())

    def read_moment(self) -> MetricsMoment:
        return MetricsMoment(self._metrics, self._take(), list(self._past))

    def _take(self) -> _Snapshot:
        return _Snapshot(self._monotonic(), self._metrics.read_processes(), self._metrics.totals.add_up())


class MetricsMoment:
    """The metrics at one moment and the snapshots before it, from which managed objects read their attributes."""

    def __init__(self, metrics: Metrics, present: _Snapshot, past: Sequence[_Snapshot]) -> None:
        self.totals, self._metrics = metrics.totals, metrics
        self._present, self._past = present, past

    @cached_property
    def metrics(self) -> list[Metric]:
        """The metrics that Prometheus scrapes, except the figures of the operating system."""
        return [*self.totals.collect(), *self._metrics.collect_views()]

    def list_series(self, family: str, **wanted: str) -> list[Labels]:
        """List the label values of a family's series. `status="5"` keeps only the series whose status begins with 5."""
        names = list(self.totals.families[family].labels)
        return [
            labels
            for labels in self.totals.series[family]
            if all(labels[names.index(name)].startswith(value) for name, value in wanted.items())
        ]

    def read_process(self, sample: str) -> float:
        """Read one of the operating system's figures for the node, such as `process_cpu_seconds_total`, or 0."""
        return self._present.processes.get(sample, 0.0)

    def growth(self, family: str, labels: Labels, window_s: float) -> list[float]:
        """Compute how much each of a series' numbers grew in the last `window_s` seconds.

        If the first snapshot was taken after the start of the window, the window begins at that snapshot.
        """
        begins_s = self._present.at_s - window_s
        found = bisect_right(self._past, begins_s, key=lambda snapshot: snapshot.at_s)
        before = self._past[max(0, found - 1)] if self._past else self._present
        now, then = (self._numbers(each, family, labels) for each in (self._present, before))
        return [max(0.0, late - early) for late, early in zip(now, then, strict=True)]

    def _numbers(self, snapshot: _Snapshot, family: str, labels: Labels) -> Sequence[float]:
        """Look up a series' numbers, ordered as in `telemetry.metrics.numbers`, or zeros if the series is missing."""
        place, count = self.totals.series[family].get(labels), self.totals.families[family].numbers_count
        found = () if place is None else snapshot.totals[place : place + count]
        return found or [0.0] * count  # a snapshot lacks a series that appeared after it

    def list_totals(self, family: str, **wanted: str) -> list[tuple[float, float]]:
        """List for each snapshot, oldest first, its age in seconds and the sum of a counter's series."""
        series = self.list_series(family, **wanted)
        return self._list(lambda snapshot: sum(self._numbers(snapshot, family, labels)[0] for labels in series))

    def list_process_numbers(self, sample: str) -> list[tuple[float, float]]:
        """List for each snapshot, oldest first, its age in seconds and what `read_process` returned then."""
        return self._list(lambda snapshot: snapshot.processes.get(sample, 0.0))

    def _list(self, read: Callable[[_Snapshot], float]) -> list[tuple[float, float]]:
        return [(self._present.at_s - each.at_s, read(each)) for each in (*self._past, self._present)]

    def percentiles(self, family: str, labels: Labels) -> dict[str, float | None]:
        """Compute a histogram's percentiles in the last PERCENTILE_WINDOW_S seconds, each None if it is empty."""
        _, *counts = self.growth(family, labels, PERCENTILE_WINDOW_S)
        bounds = self.totals.families[family].bounds
        return {name: quantile(bounds, counts, share) for name, share in PERCENTILES.items()}


def quantile(bounds: Sequence[float], counts: Sequence[float], share: float) -> float | None:
    """Estimate the quantile `share` (0 to 1) of a histogram; return None if it has no observations.

    `counts` has the number of observations in each bucket; the last bucket has no upper bound. Inside a bucket, the
    quantile is interpolated linearly. A quantile above the last finite bound is returned as this bound.

    Source: Prometheus' `histogram_quantile`.
    """
    below = list(accumulate(counts))
    if not below or below[-1] <= 0:
        return None
    wanted = share * below[-1]
    if wanted <= below[0]:
        return max(0.0, bounds[0]) * (wanted / below[0] if below[0] else 0.0)
    for (low, low_count), (high, high_count) in pairwise(zip((*bounds, inf), below, strict=True)):
        if wanted <= high_count:
            if high == inf:
                return low
            return low + (high - low) * (wanted - low_count) / (high_count - low_count)
    return bounds[-1]
