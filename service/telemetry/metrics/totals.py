"""Adds up the numbers of processes. The collector of prometheus_client gets the same sums, but is much slower.

That collector parses every key of every file at every scrape, on the event loop that requests wait for. This module
parses each series once; after that, a scrape only reads numbers.
"""

import mmap
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import accumulate
from math import inf
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from .families import Family
from .numbers import HEAD_BYTES, read_series

bound_text = cache(floatToGoString)


class Source:
    """The numbers of one process. Gauges count only while it is `alive`."""

    def __init__(self, content: mmap.mmap) -> None:
        self.alive = True
        self.content = content
        self.values = memoryview(content).cast("d")
        self.read_bytes = HEAD_BYTES
        # The index of a number here, and its place in the totals; of a gauge, those of its value.
        self.sums: list[tuple[int, int]] = []
        self.gauges: list[tuple[int, int]] = []
        self.latest: list[tuple[int, int]] = []


class NodeFiles:
    """The files of a node's folder, one for each process that the node has or had."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, Source] = {}

    def list_sources(self) -> Sequence[Source]:
        for path in sorted(self._folder.glob("*.db")):
            if path not in self._known:
                with suppress(OSError, ValueError), path.open("rb") as file:  # it is new and empty, or just removed
                    self._known[path] = Source(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        for path, source in self._known.items():
            source.alive = path.with_suffix(".pid").exists()
        return list(self._known.values())


class Totals:
    """Reads sources and adds up their numbers. A total stays at its place for good."""

    def __init__(self, families: Sequence[Family], list_sources: Callable[[], Sequence[Source]]) -> None:
        self.families: Mapping[str, Family] = {family.name: family for family in families}
        # By family and label values, the place of the first number.
        self.series: dict[str, dict[tuple[str, ...], int]] = {name: {} for name in self.families}
        self._list_sources = list_sources
        self._size = 0

    def add_up(self) -> "array[float]":
        """Return the totals of all series. A gauge that no living process reports has two zeros."""
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
        if family.is_gauge:
            (source.latest if family.kind == "latest" else source.gauges).append((index, place))
        else:
            source.sums += [(index + step, place + step) for step in range(family.numbers_count)]

    def collect(self) -> Iterator[Metric]:
        totals = self.add_up()
        for family in self.families.values():
            metric = Metric(family.name, family.documentation, "gauge" if family.is_gauge else family.kind)
            for labels, place in self.series[family.name].items():
                metric.samples += _samples(family, labels, totals[place : place + family.numbers_count])
            if metric.samples or family.kind != "latest":
                yield metric


def _samples(family: Family, values: tuple[str, ...], numbers: Sequence[float]) -> Iterator[Sample]:
    """Yield the samples of a series. The counts of a histogram become those of all values up to each bound."""
    labels = dict(zip(family.labels, values, strict=True))
    if family.kind == "counter":
        yield Sample(f"{family.name}_total", labels, numbers[0])
    elif family.is_gauge:
        if numbers[1]:
            yield Sample(family.name, labels, numbers[0])
    else:
        below = list(accumulate(numbers[1:]))
        if family.kind == "histogram":
            for bound, count in zip((*family.bounds, inf), below, strict=True):
                yield Sample(f"{family.name}_bucket", {**labels, "le": bound_text(bound)}, count)
        yield Sample(f"{family.name}_count", labels, below[-1])
        yield Sample(f"{family.name}_sum", labels, numbers[0])
