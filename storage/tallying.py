"""What a scan has read of a column so far: its distinct keys and how many entries are better than each.

The rule: memory stays bounded however many values there are. Two or three numbers a distinct value are kept; past
`scan_memory_values_max` of them they go to a temporary file, which is read as a mapped one. Where the folder for
temporary files lies in memory, TMPDIR should name another.
"""

from __future__ import annotations

import mmap
import tempfile
from array import array
from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import BinaryIO

from predictor import LIMB_BITS, Tally

_LIMB_MASK = (1 << LIMB_BITS) - 1
_ZEROS_AT_ONCE = 1 << 16


class _Column:
    """Numbers, appended; in memory up to a bound, then in a file."""

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
            self._file = tempfile.TemporaryFile(prefix="rankcurve-scan-")  # noqa: SIM115  # gone when nobody has it
        self._file.write(self._tail)
        self._tail = array("q")

    def view(self) -> memoryview:
        """All of them; nothing may be added afterwards."""
        if self._file is None:
            return memoryview(self._tail)
        self._spill()
        self._file.flush()
        self._mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._file.close()
        return memoryview(self._mapped)

    def relax(self) -> None:
        """Let go of pages that were read: they stay in the system's cache, where there is room."""
        if self._mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)


class Tallying:
    """Add what was read, best first; then take the tally."""

    def __init__(self, *, memory_values_max: int) -> None:
        self._memory_max = memory_values_max
        self._low, self._better_counts = _Column(memory_values_max), _Column(memory_values_max)
        self._high: _Column | None = None  # from the first key on that is too far from the best one
        self._first_key = 0
        self.values = 0
        self.total = 0  # entries

    def add(self, keys: Sequence[int], counts: Sequence[int]) -> None:
        """Distinct keys, each worse than all before, and how many entries have each."""
        if not keys:
            return
        if not self.values:
            self._first_key = keys[0]
        first_key = self._first_key
        if self._high is None and (keys[-1] - first_key) >> LIMB_BITS:
            self._high = _Column(self._memory_max)
            for start in range(0, self.values, _ZEROS_AT_ONCE):
                self._high.extend(array("q", repeat(0, min(_ZEROS_AT_ONCE, self.values - start))))
        if self._high is None:
            self._low.extend(array("q", [key - first_key for key in keys]))
        else:
            offsets = [key - first_key for key in keys]
            self._low.extend(array("q", [offset & _LIMB_MASK for offset in offsets]))
            self._high.extend(array("q", [offset >> LIMB_BITS for offset in offsets]))
        better_counts = array("q", accumulate(counts, initial=self.total))
        self.total = better_counts.pop()
        self._better_counts.extend(better_counts)
        self.values += len(keys)

    def tally(self) -> Tally:
        """What was added."""
        columns = [column for column in (self._low, self._high, self._better_counts) if column is not None]

        def relax() -> None:
            for column in columns:
                column.relax()

        return Tally(
            first_key=self._first_key,
            low=self._low.view(),
            high=None if self._high is None else self._high.view(),
            better_counts=self._better_counts.view(),
            total=self.total,
            relax=relax,
        )
