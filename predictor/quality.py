"""How far ranks are from the truth, measured over every entry: for tests and benchmarks, not for requests.

The one rule: the worst case is quoted, over every value and the first lattice point past every value, because that is
where a line over a gap is furthest off; the mean flatters (0.7 % where the worst is 25 %).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from .locate import Bracket


class Locating(Protocol):
    """What answers ranks: a curve, or what a service said that was asked for every key."""

    @property
    def step(self) -> int:
        """The distance from a key to the first lattice point past it."""
        ...

    def locate(self, key: int) -> Bracket:
        """The rank of a key and its bracket."""
        ...


@dataclass(frozen=True, slots=True)
class Quality:
    """Errors are relative to the true rank, 0.01 is 1 %; over entries and the points past them where not said."""

    worst_error: float
    worst_key: int | None  # where; None: no error anywhere
    worst_entry_error: float  # over entries alone
    mean_error: float  # over entries alone
    widest_bracket: float  # (high - low) / low
    broken_brackets: int  # points whose true rank lies outside its bracket: 0, or the curve is not of these entries


def counted(sorted_keys: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(key, how many entries hold it) for each distinct key of an ascending sequence."""
    return ((key, sum(1 for _ in run)) for key, run in groupby(sorted_keys))


def measure(curve: Locating, keys_with_counts: Iterable[tuple[int, int]], *, from_rank: int = 1) -> Quality:
    """Every entry's estimate against its true rank. The pairs (key, entries with it) ascend by key.

    Errors are those of ranks from `from_rank` on; brackets are looked at everywhere.
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
