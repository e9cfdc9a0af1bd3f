"""Instruments that only the event loop changes. They therefore need none of the locks of prometheus_client.

An instrument keeps the indexes of its cells. It asks for a new cell only when a label value appears for the first time.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from math import isnan, nan

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from .cells import Cells, CellSet

_REQUEST_BUCKETS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.5)  # few bounds, because each adds a series for every route
_BOUNDS = (*(str(float(bound)) for bound in _REQUEST_BUCKETS_S), "+Inf")


class LoopCounter(Collector):
    """A counter. Its samples have the name `name` followed by `_total`."""

    def __init__(self, cells: Cells, name: str, documentation: str, labels: tuple[str, ...]) -> None:
        self._cells, self._name, self._documentation, self._labels = cells, name, documentation, labels
        self._values = cells.values
        self._indexes: dict[tuple[str, ...], int] = {}

    def add_count(self, labels: tuple[str, ...], count: float = 1) -> None:
        """Add `count` to the sample with these label values. A count of 0 makes the sample appear."""
        index = self._indexes.get(labels)
        if index is None:
            named = dict(zip(self._labels, labels, strict=True))
            index = self._cells.index_of(self._name, f"{self._name}_total", named, self._documentation)
            self._indexes[labels] = index
        self._values[index] += count

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for labels, index in self._indexes.items():
            family.add_metric(labels, self._values[index])
        yield family


class LoopGauge(Collector):
    """A number that rises and falls. A node shows the sum over its living processes."""

    def __init__(self, cells: Cells, name: str, documentation: str) -> None:
        self._name, self._documentation = name, documentation
        self._values, self._index = cells.values, cells.index_of(name, name, {}, documentation)

    def set_value(self, value: float) -> None:
        self._values[self._index] = value

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(self._name, self._documentation, value=self._values[self._index])


class LoopGauges(Collector):
    """Numbers that rise and fall, one for each set of labels. A node shows the sums over its living processes."""

    def __init__(self, cells: Cells, name: str, documentation: str, labels: tuple[str, ...]) -> None:
        self._cells, self._name, self._documentation, self._labels = cells, name, documentation, labels
        self._values = cells.values
        self._indexes: dict[tuple[str, ...], int] = {}

    def set_value(self, labels: tuple[str, ...], value: float) -> None:
        index = self._indexes.get(labels)
        if index is None:
            named = dict(zip(self._labels, labels, strict=True))
            index = self._indexes[labels] = self._cells.index_of(self._name, self._name, named, self._documentation)
        self._values[index] = value

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self._name, self._documentation, labels=self._labels)
        for labels, index in self._indexes.items():
            family.add_metric(labels, self._values[index])
        yield family


class LatestGauge(Collector):
    """Numbers that only one process of a node knows at a time. The node shows the most recent number, not a sum.

    An example is the length of a queue, which only the process with the lease of the queue measures. When another
    process begins to measure the number, the earlier process calls `clear_values`.
    """

    def __init__(
        self,
        cells: Cells,
        name: str,
        documentation: str,
        labels: tuple[str, ...] = (),
        *,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._cells, self._name, self._documentation, self._labels = cells, name, documentation, labels
        self._values, self._now_s = cells.values, now_s
        self._indexes: dict[tuple[str, ...], int] = {}

    def set_value(self, value: float, labels: tuple[str, ...] = ()) -> None:
        """Set the number with these label values, and the time at which it was set."""
        index = self._indexes.get(labels)
        if index is None:
            named = dict(zip(self._labels, labels, strict=True))
            index = self._indexes[labels] = self._cells.index_of(self._name, self._name, named, self._documentation)
        self._values[index] = value
        self._values[index + 1] = self._now_s()

    def clear_values(self) -> None:
        """Remove the numbers of this process. The node then shows those of another process, if there are any."""
        for index in self._indexes.values():
            self._values[index] = nan

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self._name, self._documentation, labels=self._labels)
        for labels, index in self._indexes.items():
            if not isnan(self._values[index]):
                family.add_metric(labels, self._values[index])
        if family.samples:
            yield family


class WatchedGauge(Collector):
    """A number that is read at every scrape, in the process that answers the scrape."""

    def __init__(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        self._name, self._documentation, self._read = name, documentation, read

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(self._name, self._documentation, value=self._read())


class RequestMetrics(Collector):
    """Counts of answered requests by route and class of status (2xx, 4xx, …), and a histogram of durations by route."""

    _COUNTS = ("rankcurve_requests", "Requests answered")
    _TIMES = ("rankcurve_request_seconds", "Time to answer a request")

    def __init__(self, cells: CellSet) -> None:
        self._times = cells.histograms
        self._counts = LoopCounter(cells.counters, *self._COUNTS, ("route", "status"))
        self._routes: dict[str, tuple[list[int], int]] = {}  # route -> (indexes of the buckets, index of the sum)

    def make_timer(self, route: str) -> Callable[[int, float], None]:
        """Return a function `(status, seconds)` that counts one answered request of `route`."""
        values, count = self._times.values, self._counts.add_count
        labels: dict[int, tuple[str, str]] = {}
        buckets: list[int] | None = None
        sum_index = 0

        def count_answer(status: int, seconds: float) -> None:
            nonlocal buckets, sum_index
            if buckets is None:  # a route without requests has no series
                buckets, sum_index = self._route(route)
            values[buckets[bisect_left(_REQUEST_BUCKETS_S, seconds)]] += 1
            values[sum_index] += seconds
            found = labels.get(status)
            if found is None:
                found = labels[status] = (route, f"{status // 100}xx")
            count(found)

        return count_answer

    def _route(self, route: str) -> tuple[list[int], int]:
        if route in self._routes:
            return self._routes[route]
        name, documentation = self._TIMES
        new = self._times.index_of
        buckets = [new(name, f"{name}_bucket", {"route": route, "le": bound}, documentation) for bound in _BOUNDS]
        self._routes[route] = buckets, new(name, f"{name}_sum", {"route": route}, documentation)
        return self._routes[route]

    def collect(self) -> Iterator[Metric]:
        yield from self._counts.collect()
        times = HistogramMetricFamily(*self._TIMES, labels=["route"])
        for route, (buckets, sum_index) in self._routes.items():
            values = self._times.values
            sums = accumulate(values[index] for index in buckets)
            times.add_metric([route], list(zip(_BOUNDS, sums, strict=True)), sum_value=values[sum_index])
        yield times
