"""Measure how far estimated ranks are from the true ranks, for tests and benchmarks.

Within a gap, the largest errors occur at values and at the first lattice point past each value. So the ranks of these
points are compared. Judge a curve by its worst error, because the mean hides large errors: the mean was 0.7 % where the
worst error was 25 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from predictor import Bracket


class RankSource(Protocol):
    """A source of estimated ranks: a curve, or the recorded answers of a service about every key."""

    @property
    def step(self) -> int:
        """Return the distance between two neighbouring lattice points."""
        ...

    def locate(self, key: int) -> Bracket: ...


@dataclass(frozen=True, slots=True)
class Quality:
    """Errors relative to the true rank: 0.01 means 1 %.

    The fields cover all entries and the first lattice point past each entry. A comment beside a field names exceptions.
    """

    worst_error: float
    worst_key: int | None  # the key with the worst error, or None if no rank is wrong
    worst_entry_error: float  # the worst error at an entry
    mean_error: float  # the mean error over all entries
    widest_bracket: float  # (high - low) / low
    broken_brackets: int  # points whose bracket does not contain the true rank; 0 for a curve fitted to these entries


def count_by_key(sorted_keys: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield each distinct key of an ascending sequence, with the number of its occurrences."""
    return ((key, sum(1 for _ in run)) for key, run in groupby(sorted_keys))


def measure_quality(curve: RankSource, keys_with_counts: Iterable[tuple[int, int]], *, from_rank: int = 1) -> Quality:
    """Compare the estimate for every entry with its true rank.

    `keys_with_counts` holds pairs (key, number of entries with this key), in ascending order of the keys. Errors and
    widths of brackets count from rank `from_rank` on. Broken brackets count at all ranks.
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
