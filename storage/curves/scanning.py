"""Scans a ranked column: reads every distinct value and its number of entries, page by page, in one snapshot.

Pages must stay small, because decoding a page holds the interpreter lock, which delays everything else in the process.

A scan keeps a few numbers of 8 bytes in memory for each distinct value: two, or more if a key has more than 62 bits.
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
        self._limbs, self._better_counts = [array("q")], array("q")
        self._first_key = 0
        self.total = 0  # number of entries

    def add_values(self, keys: Sequence[int], counts: Sequence[int]) -> None:
        """Add distinct keys, best first and worse than all earlier keys, and the number of entries with each key."""
        if not keys:
            return
        if not self._limbs[0]:
            self._first_key = keys[0]
        offsets = [key - self._first_key for key in keys]
        while offsets[-1] >> LIMB_BITS * len(self._limbs):
            self._limbs.append(array("q", bytes(8 * len(self._limbs[0]))))
        *lower, highest = self._limbs
        for limb in lower:
            limb.extend([offset & _LIMB_MASK for offset in offsets])
            offsets = [offset >> LIMB_BITS for offset in offsets]
        highest.extend(offsets)
        better_counts = array("q", accumulate(counts, initial=self.total))
        self.total = better_counts.pop()
        self._better_counts.extend(better_counts)

    def tally(self) -> Tally:
        return Tally(
            first_key=self._first_key,
            limbs=[memoryview(limb) for limb in self._limbs],
            better_counts=memoryview(self._better_counts),
            total=self.total,
        )
