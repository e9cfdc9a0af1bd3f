"""The curve value -> rank: a line over each gap between two knots, and the bracket that the true rank can't leave.

The one rule: an answer is called exact only where the knots prove it, so all arithmetic is on integers. Rounding is
floor(x + 1/2) of the exact quotient, not of a float near it, which keeps the curve monotone for keys of any width (40
digits where a key holds the value and the time it was reached).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from math import isfinite
from operator import add, le, lt
from typing import Literal, NamedTuple

from .errors import KnotsInvalid

Method = Literal["skip", "scan"]


class Knot(NamedTuple):
    """A value that some entry holds, counted exactly at the snapshot. A tuple: a decoded curve makes a thousand."""

    key: int  # smaller is better
    better_count: int  # entries with a strictly smaller key; the rank of `key` is one more
    ties: int  # entries with exactly this key, at least 1


class Bracket(NamedTuple):
    """A rank, 1-based, with the ends that the true rank at the snapshot lies between, both included."""

    rank: int
    low: int
    high: int
    method: Literal["knot", "curve"]  # "knot": read off the knots, always exact; "curve": estimated over a gap

    @property
    def exact(self) -> bool:
        """Whether the rank is known, not estimated."""
        return self.low == self.high


class KeyBracket(NamedTuple):
    """A key for a rank, and the better (`low`) and worse (`high`) end that the true key lies between, both included."""

    key: int
    low: int
    high: int

    @property
    def exact(self) -> bool:
        """Whether the key is known, not estimated."""
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class Curve:
    """Ranks of one column at one snapshot. No knots: an empty column.

    Knots ascend by key; the first is the best value, the last the worst, so that ranks outside the knots are exact too.
    Raises `KnotsInvalid` where the numbers contradict each other.
    """

    knots: Sequence[Knot]  # kept as a tuple
    _: KW_ONLY
    total: int  # entries at the snapshot
    as_of_us: int  # the snapshot's time, microseconds since 1970
    method: Method = "skip"
    step: int = 1  # every key of the snapshot is knots[0].key plus a multiple of it; 1 unless a scan has seen every key
    certificate: float | None = None  # worst relative rank error measured at the fit; None: not measured
    _keys: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _ranks: tuple[int, ...] = field(init=False, repr=False, compare=False)  # of each knot
    _next_ranks: tuple[int, ...] = field(init=False, repr=False, compare=False)  # of the first key past each knot

    def __post_init__(self) -> None:
        if self.step < 1:
            raise KnotsInvalid("the lattice step is at least 1")
        if self.certificate is not None and not (isfinite(self.certificate) and self.certificate >= 0):
            raise KnotsInvalid("the certificate is a finite ratio of at least 0")
        knots = tuple(self.knots)
        keys, better_counts, ties = zip(*knots, strict=True) if knots else ((), (), ())
        counted = tuple(map(add, better_counts, ties))
        _check(self, keys, better_counts, counted)
        object.__setattr__(self, "knots", knots)
        object.__setattr__(self, "_keys", keys)
        object.__setattr__(self, "_ranks", tuple([1 + count for count in better_counts]))
        object.__setattr__(self, "_next_ranks", tuple([1 + count for count in counted]))

    def locate(self, key: int) -> Bracket:
        """The rank of an entry with this key, or of a new arrival with it: 1 + how many are strictly better.

        Monotone in the key, an integer in [1, total + 1]. Between knots a line from the first lattice point past the
        better knot, one rank past its ties, to the worse knot, rounded to the nearest integer, halves up.
        """
        keys = self._keys
        step = self.step
        if step != 1 and keys:
            key += (keys[0] - key) % step  # nobody stands between two lattice points: the next one has the same rank
        j = bisect_left(keys, key)
        if j == len(keys):
            rank = self.total + 1
            return Bracket(rank, rank, rank, "knot")
        high = self._ranks[j]
        if j == 0 or keys[j] == key:
            return Bracket(high, high, high, "knot")
        low = self._next_ranks[j - 1]
        if low == high:
            return Bracket(high, high, high, "knot")
        start = keys[j - 1] + step
        run = keys[j] - start
        rank = low + (2 * (high - low) * (key - start) + run) // (2 * run)
        return Bracket(rank, low, high, "curve")

    def ties_at(self, key: int) -> int:
        """How many entries have this key, where it is a knot's; 0 where it is not."""
        i = bisect_left(self._keys, key)
        return self.knots[i].ties if i < len(self._keys) and self._keys[i] == key else 0

    def key_at(self, rank: int) -> KeyBracket | None:
        """The worst key that still has this rank (1-based) or better; past the end the worst key; None if empty.

        Between knots the inverse of `locate`: the worst key that it gives this rank or better. Raises ValueError below
        rank 1.
        """
        if rank < 1:
            raise ValueError("ranks start at 1")
        if not self._keys:
            return None
        i = bisect_right(self._ranks, rank) - 1
        key = self._keys[i]
        low_rank = self._next_ranks[i]
        if rank < low_rank or i + 1 == len(self._keys):
            return KeyBracket(key, key, key)
        step = self.step
        low = key + step
        next_key = self._keys[i + 1]
        run = next_key - low
        # floor(y + 1/2) <= rank, solved for the key; y is the line from low_rank at `low` to the next knot.
        reach = (run * (2 * (rank - low_rank) + 1) - 1) // (2 * (self._ranks[i + 1] - low_rank))
        high = next_key - step
        return KeyBracket(min(low + reach // step * step, high), low, high)


def _check(curve: Curve, keys: Sequence[int], better_counts: Sequence[int], counted: Sequence[int]) -> None:
    """Raises `KnotsInvalid` unless these can be the knots of its entries; `counted`: entries up to and with each knot.

    Column by column, not knot by knot: it runs on every decode.
    """
    if (better_counts[0] if keys else 0) != 0 or (counted[-1] if keys else 0) != curve.total:
        raise KnotsInvalid("the first knot is the best value and the last the worst, or the column is empty")
    if not all(map(lt, better_counts, counted)):
        raise KnotsInvalid("a knot is a value that some entry holds")
    if not all(map(lt, keys, keys[1:])) or not all(map(le, counted, better_counts[1:])):
        raise KnotsInvalid("a knot contradicts the one before it")
    step = curve.step
    if step > 1 and any((key - keys[0]) % step for key in keys):
        raise KnotsInvalid("a knot is off the lattice")
    for key, next_key, upto, better_count in zip(keys, keys[1:], counted, better_counts[1:], strict=False):
        if next_key - key <= step and better_count > upto:
            raise KnotsInvalid(f"no key is left for the entries before rank {better_count + 1}")
