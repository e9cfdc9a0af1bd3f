"""Add up the ranks of a key on several boards to its rank among all their entries.

The counts of better entries in disjoint sets add up, and so do their bounds. Nothing else does. So a rank is one plus
the sum of the counts, wherever each count came from. It is exact if every part is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class BoundedRank(NamedTuple):
    """A rank, 1-based. The true rank lies between `low` and `high`, both included."""

    rank: int
    low: int
    high: int


def add_up_ranks(parts: Iterable[BoundedRank]) -> BoundedRank:
    """Return the rank of a key among all entries of disjoint sets, given its rank in each set; 1 if there is no set."""
    rank = low = high = 1
    for part in parts:
        rank += part.rank - 1
        low += part.low - 1
        high += part.high - 1
    return BoundedRank(rank, low, high)
