"""Adds up the numbers of a node's processes. The collector of prometheus_client gets the same sums, but is much slower.

At every scrape, that collector parses every key of every file, and requests must wait until it has finished. This
module parses each series once, when it first appears. At every later scrape, it only reads numbers.
"""

import mmap
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from math import inf
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from .families import Family
from .numbers import HEAD_BYTES, read_series


class Source:
    """The numbers of one process. Its gauges are included only while the process is `alive`."""

    def __init__(self, content: mmap.mmap) -> None:
        self.alive = True
        self.content = content
        self.values = memoryview(content).cast("d")
        self.read_bytes = HEAD_BYTES  # where in `content` the first series begins that is not yet in the pairs below
        # Each pair is for one number to add up: its index in `values`, and its index in the totals. A gauge has two
        # numbers, its value and then its time. The pair of a gauge has the indexes of the value.
        self.sums: list[tuple[int, int]] = []
        self.gauges: list[tuple[int, int]] = []
        self.latest: list[tuple[int, int]] = []


class NodeFiles:
    """The files with numbers in a node's folder, one for each process that runs or has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, Source] = {}

    def list_sources(self) -> Sequence[Source]:
        for path in sorted(self._folder.glob("*.db")):
            if path not in self._known:
                with suppress(OSError, ValueError), path.open("rb") as file:  # the file is new and empty, or gone
                    self._known[path] = Source(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        for path, source in self._known.items():
            source.alive = path.with_suffix(".pid").exists()
        return list(self._known.values())


class Totals:
    """Adds up the numbers of all sources. The index of a series in the totals never changes."""

    def __init__(self, families: Sequence[Family], list_sources: Callable[[], Sequence[Source]]) -> None:
        self.families: Mapping[str, Family] = {family.name: family for family in families}
        # Metric -> label values -> index in the totals of the first number of the series with these label values.
        self.series: dict[str, dict[tuple[str, ...], int]] = {name: {} for name in self.families}
        self._samples: dict[int, list[tuple[str, dict[str, str]]]] = {}
        self._list_sources = list_sources
        self._size = 0

    def add_up(self) -> "array[float]":
        """Return the totals of all series in one array. A gauge that no living process reports has value and time 0."""
        sources = self._list_sources()
        for source in sources:
            for (name, *labels), index, end in read_series(source.content, source.read_bytes):
                self._note_series(source, self.families[name], tuple(labels), index)
                source.read_bytes = end
        totals = array("d", bytes(8 * self._size))
        for source in sources:
            values = source.values
            for index, place in source.sums:
                totals[place] += values[index]
            if source.alive:
                for index, place in source.gauges:
                    totals[place] += values[index]
                    totals[place + 1] = max(totals[place + 1], values[index + 1])
                for index, place in source.latest:
                    if values[index + 1] > totals[place + 1]:
                        totals[place], totals[place + 1] = values[index], values[index + 1]
        return totals

    def _note_series(self, source: Source, family: Family, labels: tuple[str, ...], index: int) -> None:
        place = self.series[family.name].setdefault(labels, self._size)
        if place == self._size:
            self._size += family.numbers_count
            self._samples[place] = _name_samples(family, labels)
        if family.is_gauge:
            (source.latest if family.kind == "latest" else source.gauges).append((index, place))
        else:
            source.sums += [(index + step, place + step) for step in range(family.numbers_count)]

    def collect(self) -> Iterator[Metric]:
        totals = self.add_up()
        for family in self.families.values():
            metric = Metric(family.name, family.documentation, "gauge" if family.is_gauge else family.kind)
            for place in self.series[family.name].values():
                shown = zip(self._samples[place], _values(family, totals[place : place + family.numbers_count]))  # noqa: B905
                metric.samples += [Sample(name, labels, value) for (name, labels), value in shown]
            if metric.samples or family.kind != "latest":
                yield metric


def _name_samples(family: Family, values: tuple[str, ...]) -> list[tuple[str, dict[str, str]]]:
    """Return the name and the labels of each sample of a series."""
    labels = dict(zip(family.labels, values, strict=True))
    if family.kind == "counter" or family.is_gauge:
        return [(family.name + ("" if family.is_gauge else "_total"), labels)]
    bounds = [floatToGoString(bound) for bound in (*family.bounds, inf)] if family.kind == "histogram" else []  # type: ignore[no-untyped-call]
    buckets = [(f"{family.name}_bucket", {**labels, "le": bound}) for bound in bounds]
    return [*buckets, (f"{family.name}_count", labels), (f"{family.name}_sum", labels)]


def _values(family: Family, numbers: Sequence[float]) -> Sequence[float]:
    """Return the value of each sample of a series, or no values for a gauge that no living process reports.

    For a histogram, the value for each bound is the number of all observations up to the bound.
    """
    if family.kind == "counter":
        return numbers
    if family.is_gauge:
        return numbers[:1] if numbers[1] else ()
    below = list(accumulate(numbers[1:]))
    return [*(below if family.kind == "histogram" else ()), below[-1], numbers[0]]
