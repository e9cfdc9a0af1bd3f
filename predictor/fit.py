"""Fits a curve to every value in a column, with a certificate: the curve's worst relative error.

Import this module only where a curve is fitted, so that other processes do not load numpy.

The error at a key is the difference between the curve's rank and the true rank. The keys are on a lattice: each is the
first key plus a multiple of a step. From the lattice point just past a value to the next value, the true rank is
constant and the estimate never falls. The error is therefore largest at one of these two points, and both are measured.

Most ranks are computed with floats, which is fast. If a float is so close to a rounding boundary that its own error
could change the rounded rank, `locate` computes the rank instead. The measured errors are therefore exactly those of
`locate`.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import gcd

import numpy as np

from .curve import Curve, Knot, limit_gap_rows
from .greedy import DistinctKeys, Floats, Integers, choose_knots
from .tally import Tally

STEP_VALUES = 1 << 16  # number of values whose differences are computed at a time
VALUES = 1 << 16  # number of values at which errors are measured at a time
EXACT = 2.0**53  # below this, floats represent every whole number exactly
# If a float is closer than this to a point where the rounded rank changes, `locate` computes the rank. The unit is
# ranks. The errors of the floats are far smaller.
EDGE = 1e-5


def fit_curve(tally: Tally, *, knots_max: int, gap_rows_max: int, as_of_us: int) -> Curve:
    """Fit a curve with a certificate. Its worst error is about the smallest that `knots_max` knots can give.

    `knots_max` is at least 2. The curve has more knots only where gaps of more than `gap_rows_max` entries have to be
    split. A fit takes about a second for each million distinct values.
    """
    if tally.total == 0:
        return Curve((), total=0, as_of_us=as_of_us, method="scan", certificate=0.0, errors=())
    distinct = DistinctKeys(tally)
    step = _step(distinct)
    gap_rows_max = limit_gap_rows(tally.total, gap_rows_max)
    indexes = choose_knots(distinct, step, knots_max=knots_max, gap_rows_max=gap_rows_max)
    knots = []
    for index in indexes:
        better_count = int(distinct.better_counts[index])
        ties = distinct.counted(index) - better_count
        knots.append(Knot(tally.first_key + distinct.offset(index), better_count, ties))
    lines = Curve(knots, total=tally.total, as_of_us=as_of_us, method="scan", step=step)
    errors, worst = _Measuring(distinct, lines, indexes).measure_curve()
    return replace(lines, errors=errors, certificate=worst)


def _step(distinct: DistinctKeys) -> int:
    step, last = 0, len(distinct) - 1
    for first in range(0, last, STEP_VALUES):
        end = min(first + STEP_VALUES, last)
        if len(distinct.limbs) == 1:
            step = int(np.gcd.reduce(np.diff(distinct.limbs[0][first : end + 1]), initial=step))
        else:
            step = _wide_step(distinct, first, end, step)
        if step == 1:
            break
    return step or 1


def _wide_step(distinct: DistinctKeys, first: int, end: int, step: int) -> int:
    """Find the greatest common divisor of `step` and all differences between the keys from `first` to `end`."""
    offset = distinct.offset(first)
    for index in range(first + 1, end + 1):
        next_offset = distinct.offset(index)
        step = gcd(step, next_offset - offset)
        if step == 1:
            break
        offset = next_offset
    return step


class _Measuring:
    """Measures a curve's errors at all values of a scan. `knots` holds the indexes of the values that are knots."""

    def __init__(self, distinct: DistinctKeys, curve: Curve, knots: Sequence[int]) -> None:
        self._distinct, self._curve = distinct, curve
        self._knots: Integers = np.array(knots, dtype=np.int64)
        better_counts, ties = np.array([knot[1:] for knot in curve.knots], dtype=np.int64).T
        self._lows = (better_counts + ties)[:-1] + 1
        self._highs = better_counts[1:] + 1
        self._runs = np.array([float(after.key - before.key - curve.step) for before, after in pairwise(curve.knots)])

    def measure_curve(self) -> tuple[list[int], float]:
        """Measure the largest |estimate - rank| of each gap, and the largest |estimate - rank| / rank of the curve."""
        distinct = self._distinct
        errors = np.zeros(len(self._lows), dtype=np.int64)
        worst = 0.0
        for first in range(0, len(distinct) - 1, VALUES):
            end = min(first + VALUES, len(distinct) - 1)  # without the last value, which is a knot with an exact rank
            counts = distinct.better_counts[first : end + 1]
            ranks, next_ranks = counts[:-1] + 1, counts[1:] + 1
            gaps = np.searchsorted(self._knots, np.arange(first, end), side="right") - 1
            origins = self._knots[gaps]
            at = distinct.distances(origins, first, end)
            here = np.abs(self._estimates(gaps, at - self._curve.step, first, past=0) - ranks)
            here[origins == np.arange(first, end)] = 0
            past = np.abs(self._estimates(gaps, at, first, past=self._curve.step) - next_ranks)
            starts = np.flatnonzero(np.diff(gaps, prepend=-1))
            np.maximum.at(errors, gaps[starts], np.maximum.reduceat(np.maximum(here, past), starts))
            worst = max(worst, float((here / ranks).max()), float((past / next_ranks).max()))
        return errors.tolist(), worst

    def _estimates(self, gaps: Integers, at: Floats, first: int, *, past: int) -> Integers:
        """Estimate the ranks of the values from the index `first` onwards, each value increased by `past`.

        `past` is 0 or the lattice step. `gaps` has each key's gap index, `at` its distance from the start of the line.
        """
        lows, rises, runs = self._lows[gaps], (self._highs - self._lows)[gaps], self._runs[gaps]
        closed = rises == 0
        np.copyto(runs, 1, where=closed)
        at = np.clip(at, 0, runs)
        over = 2.0 * rises * at + runs
        quotients = over / (2.0 * runs)
        whole = np.floor(quotients)
        edge = (np.abs(quotients - np.rint(quotients)) < EDGE) & (over >= EXACT) & ~closed & (at > 0) & (at < runs)
        ranks: Integers = lows + whole.astype(np.int64)
        base = self._curve.knots[0].key + past
        for index in np.flatnonzero(edge):
            ranks[index] = self._curve.locate(base + self._distinct.offset(first + int(index))).rank
        return ranks
