"""Adds up the numbers of a node's processes. The collector of prometheus_client gets the same sums, but is much slower.

That collector parses every key of every file at every scrape, on the event loop that requests wait for. This module
parses each key once; after that, a scrape only reads numbers.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isnan, nan
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

_HEAD_BYTES = 8
_VALUE_BYTES = 16  # a value and a time stamp


Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Family:
    """A metric. `places` has, for each sample, the index of the sample's total over all processes."""

    name: str
    kind: str
    documentation: str
    places: dict[tuple[str, Labels], int] = field(default_factory=dict)  # (sample's name, labels) -> index of the total
    # `arrange` derives `plain` and `buckets` from `places`. Every scrape reads both, but they change seldom.
    plain: list[tuple[str, dict[str, str], int]] = field(default_factory=list)
    buckets: list[tuple[dict[str, str], list[tuple[dict[str, str], int]]]] = field(default_factory=list)

    def arrange(self, present: set[int]) -> None:
        """Derive `plain` and `buckets` from the samples whose totals have the indexes in `present`."""
        self.plain, self.buckets = [], []
        bounded: dict[Labels, list[tuple[float, int]]] = {}
        for (name, labels), place in self.places.items():
            bound = dict(labels).get("le") if self.kind == "histogram" else None
            if place not in present:
                continue
            if bound is None:
                self.plain.append((name, dict(labels), place))
            else:
                others = tuple(label for label in labels if label[0] != "le")
                bounded.setdefault(others, []).append((float(bound), place))
        for others, found in bounded.items():
            named = [({**dict(others), "le": _text(bound)}, place) for bound, place in sorted(found)]
            self.buckets.append((dict(others), named))

    def metric(self, totals: list[float]) -> Metric:
        """Return the family as a metric of the library.

        For each bucket of a histogram, the files have the count of values between its bound and the one before. The
        metric has the count of all values up to the bound.
        """
        metric = Metric(self.name, self.documentation, self.kind)
        metric.samples = [
            Sample(name, labels, totals[place]) for name, labels, place in self.plain if not isnan(totals[place])
        ]
        for others, named in self.buckets:
            below = 0.0
            for labels, place in named:
                below += totals[place]
                metric.samples.append(Sample(f"{self.name}_bucket", labels, below))
            metric.samples.append(Sample(f"{self.name}_count", others, below))
        return metric


class _File:
    """A file with the numbers of one process for one kind of metric. `places` maps each number to its total."""

    def __init__(self, path: Path, inode: int) -> None:
        self.inode = inode
        with path.open("rb") as stream:
            self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        # The library may make the file longer. `NodeValues` then maps it again.
        self.size = len(self._bytes)
        self.doubles = memoryview(self._bytes).cast("d")
        self._read = _HEAD_BYTES
        self.places: list[tuple[int, int]] = []  # (index of the value in this file, index of its total)

    def new_keys(self) -> Iterator[tuple[str, int]]:
        """Yield each key that was added since the last call, with the index of its value."""
        used: int = struct.unpack_from("i", self._bytes)[0]
        while self._read < used:
            length: int = struct.unpack_from("i", self._bytes, self._read)[0]
            start = self._read + 4
            padded = length + 8 - (length + 4) % 8
            yield self._bytes[start : start + length].decode(), (start + padded) // 8
            self._read = start + padded + _VALUE_BYTES


class NodeValues:
    """Reads the files of a node's folder and adds up their numbers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, _File] = {}
        self._families: dict[str, _Family] = {}
        self._newest: list[bool] = []  # for each total: True if it is the most recent value, False if it is a sum

    def collect(self) -> Iterator[Metric]:
        if self._update_files():
            present = {place for file in self._files.values() for _, place in file.places}
            for family in self._families.values():
                family.arrange(present)
        totals = self._add_up()
        for family in self._families.values():
            if family.plain or family.buckets:
                yield family.metric(totals)

    def _update_files(self) -> bool:
        """Add new files and keys, and drop files that no longer exist. Return whether anything has changed."""
        present, changed = {}, False
        for path in sorted(self._folder.glob("*.db")):
            try:
                stat = path.stat()
                file = self._files.get(path.name)
                if file is None or (file.inode, file.size) != (stat.st_ino, stat.st_size):
                    file = _File(path, stat.st_ino)
            except (OSError, ValueError):  # the file has just been removed, or is new and still empty
                continue
            present[path.name] = file
            kind, mode = _kind(path.name)
            for key, index in file.new_keys():
                file.places.append((index, self._place(key, kind, newest=mode.endswith("mostrecent"))))
                changed = True
        changed |= present.keys() != self._files.keys()
        self._files = present
        return changed

    def _place(self, key: str, kind: str, *, newest: bool) -> int:
        name, sample, labels, documentation = json.loads(key)
        family = self._families.setdefault(name, _Family(name, kind, documentation))
        place = family.places.setdefault((sample, tuple(sorted(labels.items()))), len(self._newest))
        if place == len(self._newest):
            self._newest.append(newest)
        return place

    def _add_up(self) -> list[float]:
        # A total that is not a sum starts as NaN. It stays NaN if no process has a value for it.
        totals = [nan if newest else 0.0 for newest in self._newest]
        set_at_s: dict[int, float] = {}
        newest = self._newest
        for file in self._files.values():
            doubles = file.doubles
            for index, place in file.places:
                if not newest[place]:
                    totals[place] += doubles[index]
                elif doubles[index + 1] > set_at_s.get(place, 0.0) and not isnan(doubles[index]):
                    totals[place], set_at_s[place] = doubles[index], doubles[index + 1]
        return totals


def _kind(file_name: str) -> tuple[str, str]:
    """Return the type of the metrics in a file and, for gauges, how the values of several processes are combined."""
    kind, _, rest = file_name.partition("_")
    return kind, rest.partition("_")[0] if kind == "gauge" else ""


def _text(bound: float) -> str:
    """Return the bound of a bucket as text, in the same form as the library."""
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]
