"""Measure how far estimated ranks are from the true ranks, for tests and benchmarks.

Within a gap, the largest errors occur at values and at the first lattice point past each value. So the ranks of these
points are compared. Judge a curve by its worst error, because the mean hides large errors: the mean was 0.7 % where the
worst error was 25 %.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Protocol

from predictor import Bracket, Curve, Knot


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


def rank_of(sorted_keys: Sequence[int], key: int) -> int:
    """Return the true rank of a key."""
    return 1 + bisect_left(sorted_keys, key)


def make_curve(sorted_keys: Iterable[int], every: int) -> Curve:
    """Make a curve with a knot at every `every`-th distinct key and at the last key."""
    knots, better_count = [], 0
    distinct = list(count_by_key(sorted_keys))
    for index, (key, ties) in enumerate(distinct):
        if index % every == 0 or index == len(distinct) - 1:
            knots.append(Knot(key, better_count, ties))
        better_count += ties
    return Curve(knots, total=better_count, as_of_us=0)


def check_order(before: Bracket, bracket: Bracket) -> None:
    """Check that a bracket contains its rank, and does not lie before the bracket of a better key."""
    assert bracket.low <= bracket.rank <= bracket.high
    assert before.rank <= bracket.rank
    assert before.low <= bracket.low
    assert before.high <= bracket.high


def list_gap_rows(knots: Iterable[Knot]) -> list[int]:
    """Return the number of entries between every two neighbouring knots."""
    return [after.better_count - before.better_count - before.ties for before, after in pairwise(knots)]


def find_widest_bracket(knots: Sequence[Knot]) -> float:
    """Return the largest width of a gap's bracket, relative to the best rank in the gap."""
    ranks = (knot.better_count + knot.ties + 1 for knot in knots)
    return max(rows / rank for rows, rank in zip(list_gap_rows(knots), ranks, strict=False))


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
