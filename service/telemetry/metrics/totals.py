"""Adds up the numbers of processes. The collector of prometheus_client gets the same sums, but is much slower.

That collector parses every key of every file at every scrape, on the event loop that requests wait for. This module
parses each key once; after that, a scrape only reads numbers.
"""

import json
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isnan, nan
from operator import itemgetter
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from .families import Family
from .numbers import HEAD_BYTES, read_keys

Labels = tuple[tuple[str, str], ...]


class Source:
    """The numbers of one process for one kind of metric. `file_name` begins with the kind."""

    def __init__(self, file_name: str, content: mmap.mmap, inode: int = 0) -> None:
        self.kind, _, mode = file_name.partition("_")
        self.newest = mode.startswith("livemostrecent")  # a total is the most recent value, not a sum
        self.inode = inode
        self._content, self._read = content, HEAD_BYTES
        self.values = memoryview(content).cast("d")
        self.places: list[tuple[int, int]] = []  # (index of the value here, index of its total)

    def new_keys(self) -> Iterator[tuple[str, int]]:
        """Yield each key that was added since the last call, with the index of its value."""
        for key, index, end in read_keys(self._content, self._read):
            self._read = end
            yield key, index


class NodeFiles:
    """The files of a node's folder. Each process of the node has one for each kind of metric."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Source] = {}

    def list_sources(self) -> Sequence[Source]:
        present: dict[str, Source] = {}
        for path in sorted(self._folder.glob("*.db")):
            try:
                inode = path.stat().st_ino
                source = self._known.get(path.name)
                if source is None or source.inode != inode:
                    with path.open("rb") as file:
                        source = Source(path.name, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), inode)
            except (OSError, ValueError):  # the file has just been removed, or is new and still empty
                continue
            present[path.name] = source
        self._known = present
        return list(present.values())


@dataclass(slots=True)
class _FamilyTotals:
    """A metric. `places` has, for each sample, the index of the sample's total over all processes."""

    name: str
    kind: str
    documentation: str
    shown_empty: bool = False
    places: dict[tuple[str, Labels], int] = field(default_factory=dict)  # (sample's name, labels) -> index of the total
    # `arrange` derives these rows from `places`. Every scrape reads them, but they change seldom.
    rows: list[tuple[str, dict[str, str], int]] = field(default_factory=list)

    def arrange(self, present: set[int]) -> None:
        """Order the samples whose totals are `present`: a histogram's buckets by their bounds, and then its sum."""
        children: dict[Labels, int] = {}
        found = []
        for (sample, labels), place in self.places.items():
            if place in present:
                named = dict(labels)
                child = tuple(label for label in labels if label[0] != "le")
                order = children.setdefault(child, len(children)), float(named.get("le", inf)), sample.endswith("_sum")
                found.append((order, (sample, named, place)))
        self.rows = [row for _, row in sorted(found, key=itemgetter(0))]

    def metric(self, totals: Sequence[float]) -> Metric:
        """Return the family as a metric of the library.

        For each bucket of a histogram, the sources have the count of values between its bound and the one before. The
        metric has the count of all values up to the bound.
        """
        metric = Metric(self.name, self.documentation, self.kind)
        below = 0.0
        for name, labels, place in self.rows:
            if "le" in labels:
                below += totals[place]
                metric.samples.append(Sample(name, labels, below))
                if labels["le"] == "+Inf":
                    others = {label: value for label, value in labels.items() if label != "le"}
                    metric.samples.append(Sample(f"{self.name}_count", others, below))
                    below = 0.0
            elif not isnan(totals[place]):
                metric.samples.append(Sample(name, labels, totals[place]))
        return metric


class Totals:
    """Reads sources and adds up their numbers. The `declared` families are shown even without a sample."""

    def __init__(self, list_sources: Callable[[], Sequence[Source]], declared: Iterable[Family] = ()) -> None:
        self._list_sources = list_sources
        self._sources: Sequence[Source] = ()
        self._families: dict[str, _FamilyTotals] = {}
        for name, kind, documentation, *_ in declared:
            shown_kind, shown_empty = ("gauge", False) if kind == "latest" else (kind, True)
            self._families[name] = _FamilyTotals(name, shown_kind, documentation, shown_empty)
        self._newest: list[bool] = []  # for each total: True if it is the most recent value, False if it is a sum

    def collect(self) -> Iterator[Metric]:
        if self._update_sources():
            present = {place for source in self._sources for _, place in source.places}
            for family in self._families.values():
                family.arrange(present)
        totals = self._add_up()
        for family in self._families.values():
            metric = family.metric(totals)
            if metric.samples or family.shown_empty:
                yield metric

    def _update_sources(self) -> bool:
        """List the sources again and read their new keys. Return whether anything has changed."""
        before, self._sources = self._sources, self._list_sources()
        changed = before != self._sources
        for source in self._sources:
            for key, index in source.new_keys():
                source.places.append((index, self._place(key, source)))
                changed = True
        return changed

    def _place(self, key: str, source: Source) -> int:
        name, sample, labels, documentation = json.loads(key)
        family = self._families.setdefault(name, _FamilyTotals(name, source.kind, documentation))
        place = family.places.setdefault((sample, tuple(labels.items())), len(self._newest))
        if place == len(self._newest):
            self._newest.append(source.newest)
        return place

    def _add_up(self) -> list[float]:
        # A total that is not a sum starts as NaN. It stays NaN if no process has a value for it.
        totals = [nan if newest else 0.0 for newest in self._newest]
        set_at_s: dict[int, float] = {}
        for source in self._sources:
            values = source.values
            for index, place in source.places:
                if not source.newest:
                    totals[place] += values[index]
                elif values[index + 1] > set_at_s.get(place, 0.0) and not isnan(values[index]):
                    totals[place], set_at_s[place] = values[index], values[index + 1]
        return totals
