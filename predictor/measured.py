"""Measures the errors of a fitted curve: how far its ranks are from the true ranks of the scan that it was fitted to.

A key may be any multiple of the lattice step. The errors are measured at every value and at the next worse key of the
lattice. From that key to the next value, the true rank stays the same and the estimate does not fall. So the measured
errors bound the error at every other key.

This module computes most ranks with floats, which is fast. If a float lies so close to a rounding boundary that its own
error could change the rounded rank, the module calls `locate` for that rank. So the errors are exactly those of
`locate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .curve import Curve
from .greedy import DistinctKeys, Floats, Integers
from .locate import SHAPE_UNIT

VALUES = 1 << 16  # values measured at a time
EXACT = 2.0**53  # below this, floats represent every whole number exactly
# If a float is closer than this to a point where the rounded rank changes, `locate` computes the rank. The unit is
# ranks. The errors of the floats are far smaller.
EDGE = 1e-5


@dataclass(frozen=True, slots=True)
class FitErrors:
    errors: list[int]  # for each gap, the largest |estimate - rank|
    worst: float  # the largest |estimate - rank| / rank
    mean: float  # the mean of |estimate - rank| / rank over all entries

    @property
    def badness(self) -> tuple[float, float]:
        """Return the errors in the order of their importance; the smaller tuple is better."""
        return self.worst, self.mean


def measure_errors(distinct: DistinctKeys, curve: Curve, knots: Sequence[int]) -> FitErrors:
    """Return the errors of a curve whose knots are the values at the indexes `knots`."""
    return _Measuring(distinct, replace(curve, errors=None, certificate=None), knots).measure_curve()


class _Measuring:
    def __init__(self, distinct: DistinctKeys, curve: Curve, knots: Sequence[int]) -> None:
        self._distinct, self._curve = distinct, curve
        self._knots: Integers = np.array(knots, dtype=np.int64)
        counted = np.array([knot.better_count + knot.ties for knot in curve.knots], dtype=np.int64)
        self._lows = counted[:-1] + 1
        self._highs = np.array([knot.better_count for knot in curve.knots[1:]], dtype=np.int64) + 1
        steps = (
            (after.key - before.key - curve.step) for before, after in zip(curve.knots, curve.knots[1:], strict=False)
        )
        self._runs = np.array([float(run) for run in steps])
        self._shapes = None if curve.shapes is None else np.array(curve.shapes, dtype=np.float64) / SHAPE_UNIT

    def measure_curve(self) -> FitErrors:
        distinct = self._distinct
        errors = np.zeros(len(self._lows), dtype=np.int64)
        worst = total = 0.0
        for first in range(0, len(distinct) - 1, VALUES):
            end = min(first + VALUES, len(distinct) - 1)  # leaves out the last value, a knot whose rank is exact
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
            relative = here / ranks
            worst = max(worst, float(relative.max()), float((past / next_ranks).max()))
            total += float(relative @ (next_ranks - ranks))
            distinct.release_pages()
        return FitErrors(errors.tolist(), worst, total / max(1, distinct.total))

    def _estimates(self, gaps: Integers, at: Floats, first: int, *, past: int) -> Integers:
        """Return the estimated ranks of keys. Each key is a value, from index `first` on, plus `past`.

        `gaps` holds the index of each key's gap, and `at` the distance of the key from the start of the gap's line.
        """
        lows, rises, runs = self._lows[gaps], (self._highs - self._lows)[gaps], self._runs[gaps]
        closed = rises == 0
        np.copyto(runs, 1, where=closed)
        at = np.clip(at, 0, runs)
        if self._shapes is None:
            over = 2.0 * rises * at + runs
            quotients = over / (2.0 * runs)
            sure = over < EXACT
        else:
            s1, s2 = self._shapes[gaps].T
            t = at / runs
            quotients = rises * (t * (3 * (1 - t) * ((1 - t) * s1 + t * s2) + t * t)) + 0.5
            sure = closed
        whole = np.floor(quotients)
        edge = (np.abs(quotients - np.rint(quotients)) < EDGE) & ~sure & ~closed & (at > 0) & (at < runs)
        ranks: Integers = lows + whole.astype(np.int64)
        base = self._curve.knots[0].key + past
        for index in np.flatnonzero(edge):
            ranks[index] = self._curve.locate(base + self._distinct.offset(first + int(index))).rank
        return ranks
