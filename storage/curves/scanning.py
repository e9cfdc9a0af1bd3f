"""Scanning: reads each distinct value of a ranked column and counts its ties, page by page, in one snapshot.

Pages must stay small: decoding a page holds the interpreter lock, which delays everything else in the process.

A scan keeps two or three numbers for each distinct value. If there are more than `scan_memory_values_max` distinct
values, the scan writes these numbers to a temporary file and maps that file for reading. If the folder for temporary
files is in memory, set TMPDIR to a folder on a disk.
"""

from __future__ import annotations

import mmap
import tempfile
from array import array
from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import BinaryIO

from config.settings import JobSettings
from predictor import LIMB_BITS, Tally
from storage.entries.entries import Entries
from storage.store import Program

_LIMB_MASK = (1 << LIMB_BITS) - 1
_ZEROS_AT_ONCE = 1 << 16


def scan_column(entries: Entries, column_index: int, limits: JobSettings) -> Program[Tally]:
    """Return the tally of a whole column."""
    ranking = entries.rankings[column_index]
    key_of = ranking.padding.key_of_cell
    tallying = TallyBuilder(memory_values_max=limits.scan_memory_values_max)
    below: str | None = None
    while True:
        rows = yield from ranking.tally_cells(limits.scan_page_values, below)
        tallying.add_values([key_of(row[0]) for row in rows], [row[1] for row in rows])
        if len(rows) < limits.scan_page_values:
            return tallying.tally()
        below = rows[-1][0]


class TallyBuilder:
    """Collects the values of a scan, best first, and then builds their tally."""

    def __init__(self, *, memory_values_max: int) -> None:
        self._memory_max = memory_values_max
        self._low, self._better_counts = _Column(memory_values_max), _Column(memory_values_max)
        self._high: _Column | None = None  # upper parts of the keys; None while no key needs an upper part
        self._first_key = 0
        self.values = 0
        self.total = 0  # number of entries

    def add_values(self, keys: Sequence[int], counts: Sequence[int]) -> None:
        """Add distinct keys, each worse than all keys before it, and the number of entries that have each key."""
        if not keys:
            return
        if not self.values:
            self._first_key = keys[0]
        offsets = [key - self._first_key for key in keys]
        if self._high is None and offsets[-1] >> LIMB_BITS:
            self._high = _Column(self._memory_max)
            for start in range(0, self.values, _ZEROS_AT_ONCE):
                self._high.extend(array("q", repeat(0, min(_ZEROS_AT_ONCE, self.values - start))))
        if self._high is not None:
            self._high.extend(array("q", [offset >> LIMB_BITS for offset in offsets]))
            offsets = [offset & _LIMB_MASK for offset in offsets]
        self._low.extend(array("q", offsets))
        better_counts = array("q", accumulate(counts, initial=self.total))
        self.total = better_counts.pop()
        self._better_counts.extend(better_counts)
        self.values += len(keys)

    def tally(self) -> Tally:
        columns = [column for column in (self._low, self._high, self._better_counts) if column is not None]

        def release_pages() -> None:
            for column in columns:
                column.release_pages()

        return Tally(
            first_key=self._first_key,
            low=self._low.view(),
            high=None if self._high is None else self._high.view(),
            better_counts=self._better_counts.view(),
            total=self.total,
            release_pages=release_pages,
        )


class _Column:
    """A growing sequence of 64-bit integers, in memory up to a bound and then in a file."""

    def __init__(self, memory_max: int) -> None:
        self._memory_max = memory_max
        self._tail = array("q")
        self._file: BinaryIO | None = None
        self._mapped: mmap.mmap | None = None

    def extend(self, numbers: array[int]) -> None:
        self._tail.extend(numbers)
        if len(self._tail) > self._memory_max:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="rankcurve-scan-")  # noqa: SIM115  # the system deletes it with its last handle
        self._file.write(self._tail)
        self._tail = array("q")

    def view(self) -> memoryview:
        """Return all numbers. After this call, no number may be added."""
        if self._file is None:
            return memoryview(self._tail)
        self._spill()
        self._file.flush()
        self._mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._file.close()
        return memoryview(self._mapped)

    def release_pages(self) -> None:
        """Release the mapped memory pages that were read. They stay in the system's page cache while there is room."""
        if self._mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)
