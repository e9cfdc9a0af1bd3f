"""Scans a ranked column: reads every distinct value and its number of entries, page by page, in one snapshot.

Pages must stay small, because decoding a page holds the interpreter lock, which delays everything else in the process.

A scan keeps two or three numbers of 8 bytes in memory for each distinct value.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter

from config.settings import JobSettings
from predictor import LIMB_BITS, Tally
from storage.leaves.entries import Entries
from storage.store import Program

_LIMB_MASK = (1 << LIMB_BITS) - 1


def scan_column(entries: Entries, column_index: int, limits: JobSettings) -> Program[Tally]:
    """Return the tally of a column: all distinct values, and how many entries have each value."""
    ranking = entries.rankings[column_index]
    tallying = TallyBuilder()
    below: str | None = None
    while True:
        rows = yield from ranking.tally_cells(limits.scan_page_values, below)
        tallying.add_values(ranking.padding.keys_of_cells(map(itemgetter(0), rows)), [*map(itemgetter(1), rows)])
        if len(rows) < limits.scan_page_values:
            return tallying.tally()
        below = rows[-1][0]


class TallyBuilder:
    """Collects the values of a scan, best first, and then builds their tally."""

    def __init__(self) -> None:
        self._low, self._better_counts = array("q"), array("q")
        self._high: array[int] | None = None  # upper parts of the keys; None while no key needs an upper part
        self._first_key = 0
        self.total = 0  # number of entries

    def add_values(self, keys: Sequence[int], counts: Sequence[int]) -> None:
        """Add distinct keys, best first and worse than all earlier keys, and the number of entries with each key."""
        if not keys:
            return
        if not self._low:
            self._first_key = keys[0]
        offsets = [key - self._first_key for key in keys]
        if self._high is None and offsets[-1] >> LIMB_BITS:
            self._high = array("q", bytes(8 * len(self._low)))
        if self._high is not None:
            self._high.extend([offset >> LIMB_BITS for offset in offsets])
            offsets = [offset & _LIMB_MASK for offset in offsets]
        self._low.extend(offsets)
        better_counts = array("q", accumulate(counts, initial=self.total))
        self.total = better_counts.pop()
        self._better_counts.extend(better_counts)

    def tally(self) -> Tally:
        return Tally(
            first_key=self._first_key,
            low=memoryview(self._low),
            high=None if self._high is None else memoryview(self._high),
            better_counts=memoryview(self._better_counts),
            total=self.total,
        )
