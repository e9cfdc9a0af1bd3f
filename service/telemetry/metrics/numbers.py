"""Stores the metric numbers of one process, in memory or in a file that every process of the node can read.

Counting is several times as fast as in prometheus_client, which takes a lock and reads the process id at each change.

A series is a family together with values for its labels. It has a few numbers, side by side:

    counter          the value
    gauge, latest    the value, when it was set (Unix time; 0: the process does not report it)
    summary          the sum of the values, their count
    histogram        the sum of the values, the count of each bucket
"""

import json
import mmap
import struct
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from storage.meter import Meter

from .metric_families import Family

# All routes with their statuses and buckets need far less. The file is sparse, so unused parts take no memory.
FILE_BYTES = 4 * 1024 * 1024
HEAD_BYTES = 8  # the file begins with the number of used bytes
_ENTRY = struct.Struct("ii")  # for each series: how many bytes its name has, and how many numbers it has


def read_series(content: mmap.mmap, start: int = HEAD_BYTES) -> Iterator[tuple[list[str], int, int]]:
    """Yield each series: a list of its family and label values, the index of its first number, and where it ends.

    `start` (where the first series begins) and the yielded ends are offsets in bytes. The index is in units of 8 bytes.
    """
    [used] = struct.unpack_from("q", content)
    while start < used:
        name_bytes, count = _ENTRY.unpack_from(content, start)
        numbers_at = start + _ENTRY.size + name_bytes
        start = numbers_at + 8 * count
        yield json.loads(content[numbers_at - name_bytes : numbers_at]), numbers_at // 8, start


class Numbers(Meter):
    """Counts the metrics of one process. A series is named by its family and label values, as in `Family.labels`.

    The numbers are in the file `path` or, if `path` is None, in memory that no other process reads. A process that
    replaces another one opens the same file and continues the counts.
    """

    def __init__(self, families: Sequence[Family], path: Path | None = None) -> None:
        self._families = {family.name: family for family in families}
        if path is None:
            self.content = mmap.mmap(-1, FILE_BYTES)
        else:
            with path.open("a+b") as file:
                file.truncate(FILE_BYTES)
                self.content = mmap.mmap(file.fileno(), FILE_BYTES)
        self._values = memoryview(self.content).cast("d")
        # By family and label values: the index of the series' first number, and the bounds of the family's buckets.
        self._series: dict[str, dict[tuple[str, ...], tuple[int, Sequence[float]]]] = {
            name: {} for name in self._families
        }
        self._end = HEAD_BYTES
        for (name, *labels), index, end in read_series(self.content):
            self._series[name][tuple(labels)], self._end = (index, self._families[name].bounds), end
        self._lock = threading.Lock()
        for family in families:
            if family.is_gauge:
                self.clear(family.name)
            if family.kind != "latest":
                for each in product(*family.labels.values()):
                    (self.set if family.is_gauge else self.add)(family.name, 0, *each)

    def add(self, name: str, amount: float = 1, *labels: str) -> None:
        index, _ = self._series[name].get(labels) or self._add_series(name, labels)
        self._values[index] += amount

    def add_from_any_thread(self, name: str, amount: float = 1, *labels: str) -> None:
        with self._lock:
            self._values[self._series[name][labels][0]] += amount

    def set(self, name: str, value: float, *labels: str) -> None:
        index, _ = self._series[name].get(labels) or self._add_series(name, labels)
        self._values[index] = value
        self._values[index + 1] = time.time()

    def clear(self, name: str) -> None:
        for index, _ in self._series[name].values():
            self._values[index + 1] = 0

    def observe(self, name: str, value: float, *labels: str) -> None:
        index, bounds = self._series[name].get(labels) or self._add_series(name, labels)
        values = self._values
        values[index] += value
        values[index + 1 + bisect_left(bounds, value)] += 1

    def _add_series(self, name: str, labels: tuple[str, ...]) -> tuple[int, Sequence[float]]:
        """Add a series whose numbers are all 0. Return the index of its first number, and the bounds of its buckets.

        Raises:
            ValueError: the file is full, which happens only if callers can choose labels.
        """
        family = self._families[name]
        assert len(labels) == len(family.labels), name
        encoded = json.dumps([name, *labels]).encode()
        encoded += b" " * (-len(encoded) % 8)
        numbers_at = self._end + _ENTRY.size + len(encoded)
        end = numbers_at + 8 * family.numbers_count
        if end > FILE_BYTES:
            raise ValueError(f"more series than a node's file holds: {name} {labels}")
        self.content[self._end : numbers_at] = _ENTRY.pack(len(encoded), family.numbers_count) + encoded
        self._end = end
        self.content[:HEAD_BYTES] = struct.pack("q", end)
        found = self._series[name][labels] = numbers_at // 8, family.bounds
        return found
