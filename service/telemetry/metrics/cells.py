"""Numbers for metrics, which only the event loop changes. Every process of a node can read those of the others.

At each change, the values of prometheus_client take a lock, ask for the process id and pack bytes. That takes several
times as long as a change of these cells. The files of the cells have the library's format, so that one reader can read
both kinds of files.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from prometheus_client.mmap_dict import MmapedDict, mmap_key

CellKind = Literal["counter", "histogram", "gauge", "word"]
# All routes with their statuses and buckets need far less. The file is sparse, so unused parts take no memory.
FILE_BYTES = 4 * 1024 * 1024
_HEAD_BYTES = 8
_SUFFIX = "-loop"  # distinguishes these files from the files that prometheus_client writes
_FILE_PREFIXES: Mapping[CellKind, str] = {
    "counter": "counter",
    "histogram": "histogram",
    "gauge": "gauge_livesum",
    "word": "gauge_livemostrecent",
}


class NumberArray(Protocol):
    def __getitem__(self, index: int, /) -> float: ...

    def __setitem__(self, index: int, value: float, /) -> None: ...


class Cells(Protocol):
    """The numbers of metrics, by index. An instrument asks only once for the index of a sample.

    In `values`, the time at which a number was set follows the number. Only the `CellKind` "word" uses this time.
    """

    @property
    def values(self) -> NumberArray:
        """The numbers and their times, by index."""

    def index_of(self, family: str, sample: str, labels: Mapping[str, str], documentation: str) -> int:
        """Return the index of a sample's number. If the sample is new, add a number for it."""


class LocalCells:
    """Numbers in the memory of this process, which no other process reads."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def index_of(self, family: str, sample: str, labels: Mapping[str, str], documentation: str) -> int:
        """Return the index of a new number. An instrument must call this method only once for each sample."""
        self.values += (0.0, 0.0)
        return len(self.values) - 2


class SharedCells:
    """Numbers in a file of the node's folder. A process that replaces a killed one continues with its numbers."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, FILE_BYTES)
            self._bytes = mmap.mmap(descriptor, FILE_BYTES)
        finally:
            os.close(descriptor)
        self.values = memoryview(self._bytes).cast("d")
        self._used: int = struct.unpack_from("i", self._bytes)[0]
        self._positions: dict[str, int] = {}
        if self._used:
            known = MmapedDict.read_all_values_from_file(str(path))  # type: ignore[no-untyped-call]
            self._positions = {key: position for key, _, _, position in known}
        else:
            self._use(_HEAD_BYTES)

    def index_of(self, family: str, sample: str, labels: Mapping[str, str], documentation: str) -> int:
        """See `Cells`.

        Raises:
            ValueError: the file is full. That happens only if callers can choose labels.
        """
        key = mmap_key(family, sample, list(labels), list(labels.values()), documentation)
        position = self._positions.get(key)
        if position is None:
            encoded = key.encode()
            padded = encoded + b" " * (8 - (len(encoded) + 4) % 8)
            entry = struct.pack(f"i{len(padded)}sdd", len(encoded), padded, 0.0, 0.0)
            if self._used + len(entry) > FILE_BYTES:
                raise ValueError(f"more samples than a node's file holds: {sample} {dict(labels)}")
            self._bytes[self._used : self._used + len(entry)] = entry
            self._use(self._used + len(entry))
            position = self._positions[key] = self._used - 16  # the entry ends with a value and a time, 8 bytes each
        return position // 8

    def _use(self, used: int) -> None:
        self._used = used
        self._bytes[:4] = struct.pack("i", used)


class CellSet:
    """The cells of one process, by kind, either in the memory of the process or in files of the node's folder."""

    def __init__(self, folder: Path | None = None, name: str = "") -> None:
        self._folder, self._name = folder, name
        self.counters = self._cells("counter")
        self.histograms = self._cells("histogram")
        self.gauges = self._cells("gauge")
        self.latest_gauges = self._cells("word")

    def _cells(self, kind: CellKind) -> Cells:
        return LocalCells() if self._folder is None else SharedCells(self._folder / _file_name(kind, self._name))


def _file_name(kind: CellKind, name: str) -> str:
    return f"{_FILE_PREFIXES[kind]}_{name}{_SUFFIX}.db"


def remove_gauges(folder: Path, name: str) -> None:
    """Remove the files with the gauges of an ended process. Its counters and histograms stay."""
    for kind in ("gauge", "word"):
        (folder / _file_name(kind, name)).unlink(missing_ok=True)
