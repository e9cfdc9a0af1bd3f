"""Measure how far ranks are from the truth, over every entry. It serves tests and benchmarks, not requests.

The most important rule: quote the worst case, over every value and the first lattice point past every value, because a
line over a gap is furthest off there. The mean flatters: it was 0.7 % where the worst was 25 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from .locate import Bracket


class RankSource(Protocol):
    """Anything that returns ranks: a curve, or the recorded answers of a service that was asked for every key."""

    @property
    def step(self) -> int:
        """Return the distance from a key to the first lattice point past it."""
        ...

    def locate(self, key: int) -> Bracket:
        """Return the rank of a key and its bracket."""
        ...


@dataclass(frozen=True, slots=True)
class Quality:
    """Errors relative to the true rank: 0.01 is 1 %. They cover entries and the points past them unless stated."""

    worst_error: float
    worst_key: int | None  # the key with the worst error; None: no error anywhere
    worst_entry_error: float  # over entries alone
    mean_error: float  # over entries alone
    widest_bracket: float  # (high - low) / low
    broken_brackets: int  # points whose true rank lies outside its bracket: 0, or the curve is not of these entries


def count_by_key(sorted_keys: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Return (key, how many entries hold it) for each distinct key of an ascending sequence."""
    return ((key, sum(1 for _ in run)) for key, run in groupby(sorted_keys))


def measure_quality(curve: RankSource, keys_with_counts: Iterable[tuple[int, int]], *, from_rank: int = 1) -> Quality:
    """Compare every entry's estimate with its true rank. The pairs (key, entries with it) ascend by key.

    Errors and bracket widths are those of ranks from `from_rank` on; broken brackets are counted everywhere.
    """
    worst_error, worst_key, worst_entry_error, error_sum, widest = 0.0, None, 0.0, 0.0, 0.0
    broken = better_count = measured = 0
    for key, entries in keys_with_counts:
        past = (key + curve.step, better_count + entries + 1, 0)
        for at_key, rank, weight in ((key, better_count + 1, entries), past):
            bracket = curve.locate(at_key)
            broken += not bracket.low <= rank <= bracket.high
            if rank < from_rank:
                continue
            error = abs(bracket.rank - rank) / rank
            error_sum += error * weight
            measured += weight
            if weight:
                worst_entry_error = max(worst_entry_error, error)
            if error > worst_error:
                worst_error, worst_key = error, at_key
            widest = max(widest, (bracket.high - bracket.low) / bracket.low)
        better_count += entries
    return Quality(
        worst_error=worst_error,
        worst_key=worst_key,
        worst_entry_error=worst_entry_error,
        mean_error=error_sum / measured if measured else 0.0,
        widest_bracket=widest,
        broken_brackets=broken,
    )
