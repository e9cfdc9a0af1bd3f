"""Chooses which distinct values become knots, so that lines between them estimate ranks as well as possible.

For a given tolerance (the largest allowed error), a pass chooses as few knots as possible. A search then finds the
smallest tolerance for which the allowed number of knots is enough.

The choice is greedy: after each knot, the next knot is the last value that a line can reach while the estimate of every
rank in between stays within the tolerance. Differences of keys are computed as integers and only then converted to
floats, because neighbouring keys that contain a time may share thirty digits. The slopes still allowed form a cone.
"""

from bisect import bisect_right
from dataclasses import dataclass
from math import inf, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .tally import LIMB_BITS, Tally

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

GUARD = 0.05  # gap guard: largest width of a bracket, relative to its better end; raised if the knots are too few
# While a board changes, the estimates in a gap of n entries become wrong by about the square root of n. This error
# should stay below CALM * rank, so from rank CALM_FROM on, a gap holds at most (CALM * rank)^2 entries. Ranks better
# than CALM_FROM are counted, not estimated. If the gap guard was raised because the knots are too few, this limit does
# not apply.
CALM, CALM_FROM = 0.0036, 900
SHARE_OF_TOTAL = 0.0005  # largest allowed error in ranks, as a fraction of all entries; matters at deep ranks
SHARE_TOTAL_MIN = 20_000  # on boards with fewer entries, the limit SHARE_OF_TOTAL does not apply
SHARE_COST = 1.1  # SHARE_OF_TOTAL is dropped if keeping it makes the worst relative error over this many times as large
HALF = 0.5 - 1e-6  # for a whole n: if an error is at most n + HALF before rounding, it is at most n after rounding
EPSILON_MIN = 1e-6  # a search tries a smaller epsilon at most once, first; epsilon: allowed error / rank
GUESS = 1000.0  # the search first tries epsilon = GUESS / knots^2; the factor was measured on lognormal boards
STEPS_MAX = 18  # largest number of tolerances that a search tries
CLOSE = 0.008  # the search keeps an upper and a lower bound, and ends if upper <= (1 + CLOSE) * lower
SPARED = 0.003  # the search also ends if a tolerance fits and leaves at most this fraction of the knots unused
STRIDE = 16.0  # while a search has no lower or no upper bound yet, it changes epsilon at most by this factor
WINDOW_MIN, WINDOW_MAX = 16, 1 << 16  # least and largest number of values processed at a time


class DistinctKeys:
    """The distinct keys of a scan in ascending order, with the number of better entries for each key.

    A key minus the first key is split into limbs of LIMB_BITS bits. Most columns need one. Keys with a time need two,
    and those with tie columns up to six.
    """

    def __init__(self, tally: Tally) -> None:
        self.limbs: list[Integers] = [np.frombuffer(limb, dtype=np.int64) for limb in tally.limbs]
        self.better_counts: Integers = np.frombuffer(tally.better_counts, dtype=np.int64)
        self.total = tally.total

    def __len__(self) -> int:
        return len(self.limbs[0])

    def distances(self, index: int | Integers, first: int, end: int) -> Floats:
        """Compute the distances from the key at `index` to each key i with first <= i < end.

        `index` is a single index, or one index for each key i. Distances between near keys are computed as integers and
        then rounded to floats.
        """
        *lower, highest = self.limbs
        exact: Integers = highest[first:end] - highest[index]
        found = exact.astype(np.float64)
        for limb in reversed(lower):
            low = limb[first:end] - limb[index]
            near = np.abs(exact) <= 1
            joined = (np.where(near, exact, 0) << LIMB_BITS) + low
            found = np.where(near, joined.astype(np.float64), found * 2.0**LIMB_BITS + low)
            exact = np.where(near, joined, exact)
        return found

    def offset(self, index: int) -> int:
        return sum(int(limb[index]) << LIMB_BITS * number for number, limb in enumerate(self.limbs))

    def counted(self, index: int) -> int:
        """Return how many entries have this key or a better one."""
        return int(self.better_counts[index + 1]) if index + 1 < len(self) else self.total


class Tolerance(NamedTuple):
    """The largest allowed error of an estimate: `epsilon` times the rank, but at most `ranks_max` ranks."""

    epsilon: float
    ranks_max: float


def choose_knots(distinct: DistinctKeys, step: int, *, knots_max: int, gap_rows_max: int) -> list[int]:
    """Choose the indexes of the values that become knots, with the smallest tolerance that `knots_max` knots can meet.

    The limit on a gap's rows may require up to total / gap_rows_max further knots.
    """
    if len(distinct) <= knots_max:
        return list(range(len(distinct)))
    with np.errstate(divide="ignore", invalid="ignore"):  # the first distance from the start of a line may be 0
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
    fits: bool  # whether the last value is a knot and `spent` is within the allowed number
    spent: int  # number of knots, except those that only the row limit required; a pass ends early if it is too high


class _Pass:
    def __init__(self, distinct: DistinctKeys, step: int, guard: float, gap_rows_max: int, knots_max: int) -> None:
        self._distinct, self._step = distinct, step
        self.total = distinct.total
        self._guard, self._gap_rows_max, self.knots_max = guard, gap_rows_max, knots_max

    def run_pass(self, tolerance: Tolerance) -> _Found:
        """Choose the knots for a tolerance. Stop early if there are more than twice as many knots as allowed."""
        distinct = self._distinct
        last = len(distinct) - 1
        knots, spent, at, window = [0], 1, 0, WINDOW_MIN
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
        return _Found(knots, at == last and spent <= self.knots_max, spent)

    def _reach(self, at: int, limit: int, tolerance: Tolerance, window: int) -> int:
        """Find the last index, at most `limit`, to which a line from the knot `at` stays within the tolerance."""
        distinct, step = self._distinct, float(self._step)
        start = distinct.counted(at)
        reached, first = at + 1, at + 1
        floor, ceiling = 0.0, inf  # the cone: the least and the greatest slope that are still allowed
        while first <= limit:
            end = min(first + window, limit + 1)
            distances = distinct.distances(at, first - 1, end)
            # Two keys are at least a step apart, but floats of more than 53 bits may say that they are nearer.
            before, here = distances[:-1], np.maximum(distances[1:] - step, 0.0)
            rise = (distinct.better_counts[first:end] - start).astype(np.float64)
            # The errors that estimates may have before rounding, so that rounded estimates are within the tolerance.
            allowed = np.floor(np.minimum((rise + (start + 1)) * tolerance.epsilon, tolerance.ranks_max)) + HALF
            # Between two values the true rank is constant, but the line rises. A line that is too low is most wrong
            # just past the better value, a line that is too high at the worse value. Only these points are checked.
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
    # For a single number, numpy takes three times as long as `bisect_right`.
    return bisect_right(distinct.better_counts.data, better_count) - 1


def _last_within(distinct: DistinctKeys, at: int, guard: float) -> int:
    """Find the largest index of a value at which a gap may end, if the gap begins at the knot `at`.

    The gap guard `guard` limits the width of the gap's bracket, relative to the first rank past the knot.
    """
    rank = distinct.counted(at) + 1
    width = rank * guard
    if guard == GUARD and rank >= CALM_FROM:
        width = min(width, (CALM * rank) ** 2)
    return max(at + 1, _index_of(distinct, int(rank + width) - 1))


def _guard(distinct: DistinctKeys, knots_max: int) -> float:
    """Choose the gap guard: GUARD, or if `knots_max` knots cannot keep brackets so narrow, the least that they can."""
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
    """Return whether `knots_max` knots reach the last value if each bracket is as wide as the limit `guard` allows."""
    at, last = 0, len(distinct) - 1
    for _ in range(knots_max - 1):
        if at == last:
            return True
        at = _last_within(distinct, at, guard)
    return at == last


def _find_least_tolerance(
    pass_over: _Pass, epsilon: float, ranks_max: float, known: tuple[float, _Found] | None = None
) -> tuple[float, _Found]:
    """Find the least epsilon (see `Tolerance`) that needs no more knots than allowed, and the result of its pass.

    `epsilon` is the first epsilon to try. `known` is a greater epsilon that surely fits, with the result of its pass.
    """
    least = max(EPSILON_MIN, 1 / pass_over.total)  # a smaller epsilon would not allow an error of even one rank
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
    if found is None:  # no tolerance fits: take the knots that the gap guard and the row limit require
        return inf, pass_over.run_pass(Tolerance(inf, inf))
    return high, found


def _stride(before: tuple[float, int] | None, now: tuple[float, int], knots_max: int) -> float:
    """Choose the factor from the epsilon tried last (an allowed error relative to the rank) to the next one to try.

    The number of knots should then be just on the other side of the allowed number. `before` and `now` are the last two
    passes, each as (epsilon, number of knots). Without `before`, the number of knots is assumed to be inversely
    proportional to the square root of epsilon.
    """
    (epsilon, spent), power = now, 0.5
    if before is not None and before[1] != spent:
        power = min(max(log(before[1] / spent) / log(epsilon / before[0]), 0.05), 1.0)
    wanted = knots_max * (1 - SPARED) if spent > knots_max else knots_max * (1 + SPARED)
    return min(max(float((spent / wanted) ** (1 / power)), 1 / STRIDE), STRIDE)
