"""Ranks among the entries of several boards together, from what each board alone says.

The rule: counts of better entries of disjoint sets add up, and so do their bounds; nothing else does. So a rank is one
plus the sum of the counts, exact where every part is, whatever each part's count came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Bounded(NamedTuple):
    """A rank, 1-based, with the ends that the true one lies between, both included."""

    rank: int
    low: int
    high: int


def added_up(parts: Iterable[Bounded]) -> Bounded:
    """The rank among all entries of disjoint sets, of a key whose rank among each of them is given; 1 for no part."""
    rank = low = high = 1
    for part in parts:
        rank += part.rank - 1
        low += part.low - 1
        high += part.high - 1
    return Bounded(rank, low, high)
