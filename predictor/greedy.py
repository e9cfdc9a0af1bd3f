"""Choose which distinct values become knots: as few as keep lines within a tolerance, and the least such tolerance.

The most important rule: nothing is kept per value except the given columns, and all work goes over windows of them. So
a column may be a mapped file.

The choice is greedy and uses cones of slopes. From each knot, the next knot is the last value that a line can reach
while it passes every rank before within the tolerance. Differences of keys are computed as integers and only then
become floats, because neighbours on timed boards agree in thirty digits.
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

GUARD = 0.05  # widest bracket, relative to its better end; wider if the knots do not suffice
# On a board that changes, n entries in a gap shift by about the square root of n. So from rank CALM_FROM on a gap holds
# at most (CALM * rank)^2 entries, and a live curve is no worse there than further down. Nearer the top ranks are
# counted. If knots are few, narrow brackets come first.
CALM, CALM_FROM = 0.0036, 900
SHARE_OF_TOTAL = 0.0005  # most ranks that an estimate may be off, as a share of all entries; it binds at deep ranks
SHARE_TOTAL_MIN = 20_000  # boards with fewer entries have no such limit
SHARE_COST = 1.1  # the limit is dropped if it multiplies the worst relative error by more than this
HALF = 0.5 - 1e-6  # |estimate - rank| below a whole number and a half rounds to at most that number
EPSILON_MIN = 1e-6
GUESS = 1000.0  # first guess: tolerance * knots^2, as measured on lognormal boards
STEPS_MAX = 18  # tries in the search for the tolerance
CLOSE = 0.008  # the search ends this close to the least tolerance, relative to it
SPARED = 0.003  # … or if this share of the knots or less is left over
STRIDE = 16.0  # largest factor of one step of the search, until the tolerance is bounded from both sides
WINDOW_MIN, WINDOW_MAX = 16, 1 << 16  # values processed in one piece
RELAX_VALUES = 1 << 20  # values between two calls of `DistinctKeys.release_pages`


@dataclass(frozen=True, slots=True)
class DistinctKeys:
    """Distinct keys, ascending, as offsets from the first one, and how many entries are better than each.

    An offset is `high` * 2**LIMB_BITS + `low`, both at least 0; `high` is None where every offset is below that.
    """

    low: Integers
    high: Integers | None
    better_counts: Integers
    total: int  # entries in all
    release_pages: Callable[
        [], None
    ]  # called at intervals while the columns are read: their owner may give mapped pages back

    def __len__(self) -> int:
        return len(self.low)

    def distances(self, index: int | Integers, first: int, end: int) -> Floats:
        """Return the distances from the key at `index` to the keys at first <= i < end; exact for near keys.

        `index`: one index for all, or one for each of those keys.
        """
        low = self.low[first:end] - self.low[index]
        if self.high is None:
            return low.astype(np.float64)
        high = self.high[first:end] - self.high[index]
        near = np.abs(high) <= 1
        exact = (np.where(near, high, 0) << LIMB_BITS) + low
        return np.where(near, exact.astype(np.float64), high * 2.0**LIMB_BITS + low)

    def offset(self, index: int) -> int:
        """Return the offset of one key."""
        return int(self.low[index]) + (0 if self.high is None else int(self.high[index]) << LIMB_BITS)

    def counted(self, index: int) -> int:
        """Return how many entries have this key or a better one."""
        return int(self.better_counts[index + 1]) if index + 1 < len(self) else self.total


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an estimate may be off: the share `epsilon` of the rank, but at most `ranks_max` ranks."""

    epsilon: float
    ranks_max: float

    def at_ranks(self, ranks: Floats) -> Floats:
        """Return the tolerance at each rank: the largest error that rounding does not carry past the limit."""
        return np.floor(np.minimum(ranks * self.epsilon, self.ranks_max)) + HALF


def choose_knots(distinct: DistinctKeys, step: int, *, knots_max: int, gap_rows_max: int) -> list[int]:
    """Return the indexes of the knots with the least tolerance that needs at most `knots_max`; none without entries.

    Knots that only the cap on a gap's rows requires come on top, at most total / gap_rows_max of them.
    """
    if len(distinct) <= knots_max:
        return list(range(len(distinct)))
    with np.errstate(divide="ignore", invalid="ignore"):  # the first value past a knot may be at distance 0 from it
        pass_over = _Pass(distinct, step, _guard(distinct, knots_max // 2), gap_rows_max, knots_max)
        epsilon, found = _find_least_tolerance(pass_over, GUESS / knots_max**2, inf)
        if distinct.total >= SHARE_TOTAL_MIN:
            ranks_max = distinct.total * SHARE_OF_TOTAL
            capped = pass_over.run_pass(Tolerance(epsilon * SHARE_COST, ranks_max))
            if capped.fits:
                _, found = _find_least_tolerance(pass_over, epsilon, ranks_max, known=(epsilon * SHARE_COST, capped))
    return found.knots


@dataclass(frozen=True, slots=True)
class _Found:
    knots: list[int]
    fits: bool  # the knots reach the last value and are no more than allowed
    spent: int  # knots that accuracy required; a pass stops early if they are far too many


class _Pass:
    """A greedy pass over the values, which can be repeated with other tolerances."""

    def __init__(self, distinct: DistinctKeys, step: int, guard: float, gap_rows_max: int, knots_max: int) -> None:
        self._distinct, self._step = distinct, step
        self.total = distinct.total
        self._guard, self._gap_rows_max, self.knots_max = guard, gap_rows_max, knots_max

    def run_pass(self, tolerance: Tolerance) -> _Found:
        """Choose the knots, or stop once they are clearly too many."""
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
                distinct.release_pages()
                relaxed = at
        distinct.release_pages()
        return _Found(knots, at == last and spent <= self.knots_max, spent)

    def _reach(self, at: int, limit: int, tolerance: Tolerance, window: int) -> int:
        """Return the last value up to `limit` at which a line from `at` may end."""
        distinct, step = self._distinct, float(self._step)
        start = distinct.counted(at)
        reached, first = at + 1, at + 1
        floor, ceiling = 0.0, inf  # the cone of slopes
        while first <= limit:
            end = min(first + window, limit + 1)
            distances = distinct.distances(at, first - 1, end)
            before, here = distances[:-1], distances[1:] - step
            rise = (distinct.better_counts[first:end] - start).astype(np.float64)
            allowed = tolerance.at_ranks(rise + (start + 1))
            # A line that rises too fast is highest above the ranks just past the previous value. A line that rises too
            # slowly is furthest below them at a value. The other two of the four bounds never bind.
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


def _index_of(distinct: DistinctKeys, better_count: int) -> int:
    """Return the last value that at most `better_count` entries are better than."""
    # For one number at a time, numpy takes three times as long.
    return bisect_right(distinct.better_counts.data, better_count) - 1


def _last_within(distinct: DistinctKeys, at: int, guard: float) -> int:
    """Return the last value whose rank is within the guard of the first rank past knot `at`; at least the next one."""
    rank = distinct.counted(at) + 1
    width = rank * guard
    if guard == GUARD and rank >= CALM_FROM:
        width = min(width, (CALM * rank) ** 2)
    return max(at + 1, _index_of(distinct, int(rank + width) - 1))


def _guard(distinct: DistinctKeys, knots_max: int) -> float:
    """Return the guard, raised until brackets alone need at most `knots_max` knots."""
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


def _brackets_fit(distinct: DistinctKeys, guard: float, knots_max: int) -> bool:
    """Tell whether knots as far apart as the guard allows are at most `knots_max`."""
    at, last = 0, len(distinct) - 1
    for _ in range(knots_max - 1):
        if at == last:
            return True
        at = _last_within(distinct, at, guard)
    return at == last


def _find_least_tolerance(
    pass_over: _Pass, epsilon: float, ranks_max: float, known: tuple[float, _Found] | None = None
) -> tuple[float, _Found]:
    """Find the least epsilon that fits, and its knots.

    `known`: an epsilon that fits, with its knots; `epsilon` is then the smallest one to try.
    """
    least = max(EPSILON_MIN, 1 / pass_over.total)  # below that, no rank may be off at all
    low, low_spent = least / 2, inf
    high, found = known or (inf, None)
    enough = pass_over.knots_max * (1 - SPARED)
    before: tuple[float, int] | None = None
    for step in range(STEPS_MAX) if found is None else range(STEPS_MAX // 3):
        tried = pass_over.run_pass(Tolerance(epsilon, ranks_max))
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
    if found is None:  # no tolerance fits: take the knots that the guard and the cap on rows require
        return inf, pass_over.run_pass(Tolerance(inf, inf))
    return high, found


def _stride(before: tuple[float, int] | None, now: tuple[float, int], knots_max: int) -> float:
    """Return the factor of epsilon that should bring the number of knots just past the wanted one.

    `before` and `now` are (epsilon, its knots). Without `before`, knots are assumed to fall as the root of epsilon.
    """
    (epsilon, spent), power = now, 0.5
    if before is not None and before[1] != spent:
        power = min(max(log(before[1] / spent) / log(epsilon / before[0]), 0.05), 1.0)
    wanted = knots_max * (1 - SPARED) if spent > knots_max else knots_max * (1 + SPARED)
    return min(max(float((spent / wanted) ** (1 / power)), 1 / STRIDE), STRIDE)
