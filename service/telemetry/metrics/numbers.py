"""The numbers of one process, which every process of a node can read.

The values of prometheus_client take locks and ask for the process id at each change, which takes several times as long.
The files of a node have the library's format.
"""

import json
import mmap
import struct
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import inf, nan
from pathlib import Path

from prometheus_client.utils import floatToGoString

from storage.meter import Meter

from .families import Family, FamilyKind

# All routes with their statuses and buckets need far less. The file is sparse, so unused parts take no memory.
FILE_BYTES = 4 * 1024 * 1024
HEAD_BYTES = 8  # how many bytes are used, as an int, and padding
_FILE_PREFIXES: Mapping[FamilyKind, str] = {
    "counter": "counter",
    "gauge": "gauge_livesum",
    "latest": "gauge_livemostrecent",
    "histogram": "histogram",
    "summary": "summary",
}
_SUFFIXES: Mapping[FamilyKind, str] = {"counter": "_total", "histogram": "_sum", "summary": "_sum"}
# The values of some samples, the index of a number (of a histogram or summary: of the sum), and for a histogram or
# summary also the upper bounds of its buckets and the indexes of their counts.
_Sample = tuple["memoryview[float]", int, Sequence[float], Sequence[int]]


def read_keys(content: mmap.mmap, start: int = HEAD_BYTES) -> Iterator[tuple[str, int, int]]:
    """Yield each key from `start` on, the index of its value in 8-byte steps, and the offset behind the entry.

    A key, padded with blanks, comes between its length and two floats: the value, and the time at which it was set.
    """
    used: int = struct.unpack_from("i", content)[0]
    while start < used:
        length: int = struct.unpack_from("i", content, start)[0]
        value_at = start + 4 + length + 8 - (length + 4) % 8
        yield content[start + 4 : start + 4 + length].decode(), value_at // 8, value_at + 16
        start = value_at + 16


class Cells:
    """Numbers with keys, in a file of the node's folder or in memory that no other process reads (`path` is None).

    A process that replaces a killed one continues with the numbers in its file.
    """

    def __init__(self, path: Path | None = None) -> None:
        if path is None:
            self.content = mmap.mmap(-1, FILE_BYTES)
        else:
            with path.open("a+b") as file:
                file.truncate(FILE_BYTES)
                self.content = mmap.mmap(file.fileno(), FILE_BYTES)
        self.values = memoryview(self.content).cast("d")
        self._used: int = struct.unpack_from("i", self.content)[0] or HEAD_BYTES
        self._indexes = {key: index for key, index, _ in read_keys(self.content)}

    def index_of(self, family: Family, sample: str, labels: Mapping[str, str]) -> int:
        """Return the index at which the value of a metric's sample is stored. Add a place for a new sample.

        Raises:
            ValueError: no place is left in the file of values. That happens only if callers can choose labels.
        """
        key = json.dumps((family.name, sample, labels, family.documentation))
        if key not in self._indexes:
            encoded = key.encode()
            padded = encoded + b" " * (8 - (len(encoded) + 4) % 8)
            entry = struct.pack(f"i{len(padded)}sdd", len(encoded), padded, 0.0, 0.0)
            end = self._used + len(entry)
            if end > FILE_BYTES:
                raise ValueError(f"more samples than a node's file holds: {sample} {dict(labels)}")
            self.content[self._used : end] = entry
            self._used = end
            self.content[:4] = struct.pack("i", end)
            self._indexes[key] = end // 8 - 2
        return self._indexes[key]


class Numbers(Meter):
    """The numbers of one process by family and label values. Values of labels are given in the family's order.

    With a folder, the numbers are in files that have the name of the process.
    """

    def __init__(self, families: Sequence[Family], folder: Path | None = None, process: str = "") -> None:
        self._families = {family.name: family for family in families}
        self.cells = {  # by how the names of their files begin
            prefix: Cells(None if folder is None else folder / f"{prefix}_{process}.db")
            for prefix in dict.fromkeys(_FILE_PREFIXES[family.kind] for family in families)
        }
        self._samples: dict[str, dict[tuple[str, ...], _Sample]] = {name: {} for name in self._families}
        self._lock = threading.Lock()
        for family in self._families.values():
            if family.kind != "latest":
                for labels in product(*family.labels.values()):
                    self._make_sample(family.name, labels)

    def add(self, name: str, amount: float = 1, *labels: str) -> None:
        values, index, _, _ = self._samples[name].get(labels) or self._make_sample(name, labels)
        values[index] += amount

    def add_from_any_thread(self, name: str, amount: float = 1, *labels: str) -> None:
        with self._lock:
            values, index, _, _ = self._samples[name][labels]
            values[index] += amount

    def set(self, name: str, value: float, *labels: str) -> None:
        values, index, _, _ = self._samples[name].get(labels) or self._make_sample(name, labels)
        values[index] = value
        values[index + 1] = time.time()  # of a "latest" gauge, a node shows the value that was set last

    def clear(self, name: str) -> None:
        for values, index, _, _ in self._samples[name].values():
            values[index] = nan

    def observe(self, name: str, value: float, *labels: str) -> None:
        values, sum_index, bounds, counts = self._samples[name].get(labels) or self._make_sample(name, labels)
        values[sum_index] += value
        values[counts[bisect_left(bounds, value)]] += 1

    def _make_sample(self, name: str, labels: tuple[str, ...]) -> _Sample:
        family = self._families[name]
        cells, named = self.cells[_FILE_PREFIXES[family.kind]], dict(zip(family.labels, labels, strict=True))
        counts = []
        if family.kind == "histogram":
            texts = [floatToGoString(bound) for bound in (*family.bounds, inf)]  # type: ignore[no-untyped-call]
            counts = [cells.index_of(family, f"{name}_bucket", {**named, "le": text}) for text in texts]
        elif family.kind == "summary":
            counts = [cells.index_of(family, f"{name}_count", named)]
        sample = name + _SUFFIXES.get(family.kind, "")
        found = cells.values, cells.index_of(family, sample, named), family.bounds, counts
        self._samples[name][labels] = found
        return found
