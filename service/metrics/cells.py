"""Numbers that are counted on the event loop alone, where the processes of one node can read each other's.

The library's own values lock, ask for the process id and pack bytes at each step: 3.1 us a request for two counters and
a histogram, against 0.5 us here. The rule: the files are the library's format, so that there is one reader for both.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from prometheus_client.mmap_dict import MmapedDict, mmap_key

Kind = Literal["counter", "histogram", "gauge", "word"]
# Far more than routes x (statuses + buckets) need; the file is sparse, so what is not used takes no memory.
FILE_BYTES = 4 * 1024 * 1024
_HEAD_BYTES = 8
_SUFFIX = "-loop"  # apart from the files that the library's values write
_FILE_PREFIXES: Mapping[Kind, str] = {
    "counter": "counter",
    "histogram": "histogram",
    "gauge": "gauge_livesum",
    "word": "gauge_livemostrecent",
}


class Values(Protocol):
    """What a list and a view of memory have in common."""

    def __getitem__(self, index: int, /) -> float: ...

    def __setitem__(self, index: int, value: float, /) -> None: ...


class Cells(Protocol):
    """Numbers by index; whoever counts keeps the index. After each comes when it was said, which words alone say."""

    @property
    def values(self) -> Values:
        """The numbers."""

    def index_of(self, family: str, sample: str, labels: Mapping[str, str], documentation: str) -> int:
        """The place of one sample's number, a new one where it is not known."""


class LocalCells:
    """Numbers that nobody else reads."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def index_of(self, family: str, sample: str, labels: Mapping[str, str], documentation: str) -> int:
        """See `Cells`; a counter asks once a sample."""
        self.values += (0.0, 0.0)
        return len(self.values) - 2


class SharedCells:
    """Numbers in a file of the node's folder; opened again, it goes on where its last process was killed."""

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
            ValueError: the file is full, which names that callers could choose would make it.
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
            position = self._positions[key] = self._used - 16  # a value and a time stamp
        return position // 8

    def _use(self, used: int) -> None:
        self._used = used
        self._bytes[:4] = struct.pack("i", used)


class CellSet:
    """The cells of one process by kind: of its own, or in the folder of its node under its name there."""

    def __init__(self, folder: Path | None = None, name: str = "") -> None:
        self._folder, self._name = folder, name
        self.counters = self._cells("counter")
        self.histograms = self._cells("histogram")
        self.gauges = self._cells("gauge")
        self.words = self._cells("word")

    def _cells(self, kind: Kind) -> Cells:
        return LocalCells() if self._folder is None else SharedCells(self._folder / _file_name(kind, self._name))


def _file_name(kind: Kind, name: str) -> str:
    return f"{_FILE_PREFIXES[kind]}_{name}{_SUFFIX}.db"


def forget_gauges(folder: Path, name: str) -> None:
    """Remove what a process that has ended said of its present; what it counted stays."""
    for kind in ("gauge", "word"):
        (folder / _file_name(kind, name)).unlink(missing_ok=True)
