"""Which distinct values become knots: the fewest whose lines stay within a tolerance, and the least such tolerance.

The one rule: nothing is held for every value but the columns that were given; all work goes over windows of them, so
that a column may be a mapped file. Greedy over slope cones: from each knot the next is the last value that a line can
reach while it passes every rank before within the tolerance. Differences of keys are taken as integers before they
become floats: neighbours of timed boards agree in thirty digits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from .tally import LIMB_BITS

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

GUARD = 0.05  # widest bracket, relative to its better end; wider where that many knots are not there
# Where a board changes, entries shift within a gap by about the root of how many stand there: from this rank on, gaps
# hold at most (CALM * rank)^2 of them, so that a live curve is no worse there than further down. Nearer the top ranks
# are counted, and where knots are few brackets come first.
CALM, CALM_FROM = 0.0036, 900
SHARE_OF_TOTAL = 0.0005  # most ranks that an estimate may be off, as a share of all entries: what deep ranks see …
SHARE_TOTAL_MIN = 20_000  # … of boards of at least so many entries
SHARE_COST = 1.1  # … unless it makes the worst relative error larger than so many times
HALF = 0.5 - 1e-6  # |estimate - rank| below a whole number and a half rounds to at most that number
EPSILON_MIN = 1e-6
GUESS = 1000.0  # of the tolerance, times the square of the knots: what lognormal boards take
STEPS_MAX = 18  # of the search for the tolerance
CLOSE = 0.008  # the search ends within so much of the least tolerance
SPARED = 0.003  # … or within so much of the knots
STRIDE = 16.0  # most that one step of the search changes the tolerance by, before it is known from both sides
WINDOW_MIN, WINDOW_MAX = 16, 1 << 16  # values looked at in one piece
RELAX_VALUES = 1 << 20  # values after which mapped pages are given back


@dataclass(frozen=True, slots=True)
class Distinct:
    """Distinct keys, ascending, as offsets from the first one, and how many entries are better than each.

    An offset is `high` * 2**LIMB_BITS + `low`, both at least 0; `high` is None where every offset is below that.
    """

    low: Integers
    high: Integers | None
    better_counts: Integers
    total: int  # entries in all
    relax: Callable[[], None]  # called now and then while the columns are gone over: mapped pages may be given back

    def __len__(self) -> int:
        return len(self.low)

    def distances(self, index: int | Integers, first: int, end: int) -> Floats:
        """From the key at `index` (one, or one each) to those from `first` up to `end`; exact where they are near."""
        low = self.low[first:end] - self.low[index]
        if self.high is None:
            return low.astype(np.float64)
        high = self.high[first:end] - self.high[index]
        near = np.abs(high) <= 1
        exact = (np.where(near, high, 0) << LIMB_BITS) + low
        return np.where(near, exact.astype(np.float64), high * 2.0**LIMB_BITS + low)

    def offset(self, index: int) -> int:
        """The offset of one key."""
        return int(self.low[index]) + (0 if self.high is None else int(self.high[index]) << LIMB_BITS)

    def counted(self, index: int) -> int:
        """Entries with this key or a better one."""
        return int(self.better_counts[index + 1]) if index + 1 < len(self) else self.total


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an estimate may be off: a share of the rank, at most so many ranks."""

    epsilon: float
    ranks_max: float

    def of(self, ranks: Floats) -> Floats:
        """The tolerance at each rank, half a rank short of where rounding would carry it further."""
        return np.floor(np.minimum(ranks * self.epsilon, self.ranks_max)) + HALF


def knots_of(distinct: Distinct, step: int, *, knots_max: int, gap_rows_max: int) -> list[int]:
    """Indexes of the knots with the least tolerance that takes at most `knots_max`, none where there is no entry.

    Knots that only the cap on a gap's rows asks for come on top: total / gap_rows_max of them at most.
    """
    if len(distinct) <= knots_max:
        return list(range(len(distinct)))
    with np.errstate(divide="ignore", invalid="ignore"):  # the first value past a knot may be at no distance from it
        pass_over = _Pass(distinct, step, _guard(distinct, knots_max // 2), gap_rows_max, knots_max)
        epsilon, found = _least(pass_over, GUESS / knots_max**2, inf)
        if distinct.total >= SHARE_TOTAL_MIN:
            ranks_max = distinct.total * SHARE_OF_TOTAL
            capped = pass_over.run(Tolerance(epsilon * SHARE_COST, ranks_max))
            if capped.fits:
                _, found = _least(pass_over, epsilon, ranks_max, known=(epsilon * SHARE_COST, capped))
    return found.knots


@dataclass(frozen=True, slots=True)
class _Found:
    knots: list[int]
    fits: bool  # all of them, and no more than allowed
    spent: int  # how many accuracy took; far too many are not counted to the end


class _Pass:
    """One greedy pass over the values, again and again with other tolerances."""

    def __init__(self, distinct: Distinct, step: int, guard: float, gap_rows_max: int, knots_max: int) -> None:
        self._distinct, self._step = distinct, step
        self.total = distinct.total
        self._guard, self._gap_rows_max, self.knots_max = guard, gap_rows_max, knots_max

    def run(self, tolerance: Tolerance) -> _Found:
        """The knots, or as many as it took to see that they are too many."""
        distinct = self._distinct
        last = len(distinct) - 1
        knots, spent, at, window, relaxed = [0], 1, 0, WINDOW_MIN, 0
        while at < last:
            limit = _last_within(distinct, at, self._guard)
            start = distinct.counted(at)
            by_rows = limit > at + 1 and distinct.better_counts[limit] - start > self._gap_rows_max
            if by_rows:
                limit = max(at + 1, _index_of(distinct, start + self._gap_rows_max))
            reached = self._reach(at, limit, tolerance, window)
            window = min(max(WINDOW_MIN, (reached - at) * 2), WINDOW_MAX)
            at = reached
            knots.append(at)
            spent += not (by_rows and reached == limit)
            if spent > 2 * self.knots_max:
                break
            if at - relaxed > RELAX_VALUES:
                distinct.relax()
                relaxed = at
        distinct.relax()
        return _Found(knots, at == last and spent <= self.knots_max, spent)

    def _reach(self, at: int, limit: int, tolerance: Tolerance, window: int) -> int:
        """The last value up to `limit` that a line from `at` may end at."""
        distinct, step = self._distinct, float(self._step)
        start = distinct.counted(at)
        reached, first = at + 1, at + 1
        floor, ceiling = 0.0, inf  # the cone
        while first <= limit:
            end = min(first + window, limit + 1)
            distances = distinct.distances(at, first - 1, end)
            before, here = distances[:-1], distances[1:] - step
            rise = (distinct.better_counts[first:end] - start).astype(np.float64)
            allowed = tolerance.of(rise + (start + 1))
            # Just past the value before, a line that rises too fast is highest above the ranks; at a value, one that
            # rises too slowly is furthest below: the other two of the four bounds never bind.
            floors = np.maximum.accumulate((rise - allowed) / before)
            ceilings = np.minimum.accumulate((rise + allowed) / here)
            np.maximum(floors, floor, out=floors)
            np.minimum(ceilings, ceiling, out=ceilings)
            slopes = rise / here
            on_line = np.flatnonzero((slopes >= floors) & (slopes <= ceilings))
            if len(on_line):
                reached = first + int(on_line[-1])
            floor, ceiling = float(floors[-1]), float(ceilings[-1])
            if floor > ceiling:
                break
            first = end
            window = min(window * 2, WINDOW_MAX)
        return reached


def _index_of(distinct: Distinct, better_count: int) -> int:
    """The last value with at most so many entries better than it."""
    return (
        bisect_right(distinct.better_counts.data, better_count) - 1
    )  # one number at a time: numpy takes thrice as long


def _last_within(distinct: Distinct, at: int, guard: float) -> int:
    """The last value whose rank is within the guard of the first rank past the knot `at`, at least the next value."""
    rank = distinct.counted(at) + 1
    width = rank * guard
    if guard == GUARD and rank >= CALM_FROM:
        width = min(width, (CALM * rank) ** 2)
    return max(at + 1, _index_of(distinct, int(rank + width) - 1))


def _guard(distinct: Distinct, knots_max: int) -> float:
    """The guard, raised as far as brackets alone need to take no more than so many knots."""
    low = high = GUARD
    while not _brackets_fit(distinct, high, knots_max) and high < distinct.total:
        low, high = high, high * 2
    for _ in range(STEPS_MAX if high > low else 0):
        middle = (low + high) / 2
        if _brackets_fit(distinct, middle, knots_max):
            high = middle
        else:
            low = middle
    return high


def _brackets_fit(distinct: Distinct, guard: float, knots_max: int) -> bool:
    """Whether knots as far apart as the guard allows are at most so many."""
    at, last = 0, len(distinct) - 1
    for _ in range(knots_max - 1):
        if at == last:
            return True
        at = _last_within(distinct, at, guard)
    return at == last


def _least(
    pass_over: _Pass, epsilon: float, ranks_max: float, known: tuple[float, _Found] | None = None
) -> tuple[float, _Found]:
    """The least epsilon that fits, and its knots. `known`: one that fits; `epsilon` then is the least to look at."""
    least = max(EPSILON_MIN, 1 / pass_over.total)  # below that no rank may be off at all
    low, low_spent = least / 2, inf
    high, found = known or (inf, None)
    enough = pass_over.knots_max * (1 - SPARED)
    before: tuple[float, int] | None = None
    for step in range(STEPS_MAX) if found is None else range(STEPS_MAX // 3):
        tried = pass_over.run(Tolerance(epsilon, ranks_max))
        if tried.fits:
            high, found = epsilon, tried
        else:
            low, low_spent = epsilon, tried.spent
        if high <= max(low * (1 + CLOSE), least) or (tried.fits and tried.spent >= enough):
            break
        if found is not None and low_spent < inf:
            share = log(low_spent / pass_over.knots_max) / log(low_spent / found.spent)
            tried_next = low * (high / low) ** (0.5 if step % 3 == 2 else min(max(share, 0.1), 0.9))
        else:
            tried_next = epsilon * _stride(before, (epsilon, tried.spent), pass_over.knots_max)
        before, epsilon = (epsilon, tried.spent), max(tried_next, least)
    if found is None:  # no tolerance at all: what the guard and the cap on rows ask for
        return inf, pass_over.run(Tolerance(inf, inf))
    return high, found


def _stride(before: tuple[float, int] | None, now: tuple[float, int], knots_max: int) -> float:
    """The factor of epsilon that should bring the knots to a little past the wanted number, from one side of it.

    Each of the two is (epsilon, its knots); without an earlier one knots are taken to fall as the root of epsilon.
    """
    (epsilon, spent), power = now, 0.5
    if before is not None and before[1] != spent:
        power = min(max(log(before[1] / spent) / log(epsilon / before[0]), 0.05), 1.0)
    wanted = knots_max * (1 - SPARED) if spent > knots_max else knots_max * (1 + SPARED)
    return min(max(float((spent / wanted) ** (1 / power)), 1 / STRIDE), STRIDE)
