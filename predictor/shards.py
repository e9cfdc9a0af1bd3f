"""Computes the rank of a key among the entries of several boards, from the ranks of the key on each board.

Ranks cannot be added up. But if the sets of entries are disjoint, their numbers of better entries can, and so can the
bounds of these numbers. The common rank is exact if the rank on every board is exact.
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
