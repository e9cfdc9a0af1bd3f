"""Fits a curve to every value of a column, with a certificate: the worst relative error of the curve.

Import this module only where a curve is fitted, so that other processes do not load numpy and scipy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

import numpy as np

from .cubic import fit_cubics
from .curve import Curve, Knot
from .greedy import DistinctKeys, choose_knots
from .measured import measure_errors
from .tally import Tally

# Cubics are not tried if the worst relative error of the lines is at most this, because loading scipy takes 52 MiB and
# a third of a second.
CUBICS_FROM = 0.005
STEP_VALUES = 1 << 16  # values whose differences are computed at a time


def fit_curve(tally: Tally, *, knots_max: int, gap_rows_max: int, as_of_us: int) -> Curve:
    """Return a curve with a certificate. Its worst error is about the smallest that `knots_max` knots can give.

    `knots_max` is at least 2. The curve has more knots only where gaps of more than `gap_rows_max` entries have to be
    split. A fit takes about a second for each million distinct values.
    """
    if tally.total == 0:
        return Curve((), total=0, as_of_us=as_of_us, method="scan", certificate=0.0, errors=())
    distinct = DistinctKeys(tally)
    step = _step(distinct)
    indexes = choose_knots(distinct, step, knots_max=knots_max, gap_rows_max=gap_rows_max)
    knots = []
    for index in indexes:
        better_count = int(distinct.better_counts[index])
        ties = distinct.counted(index) - better_count
        knots.append(Knot(tally.first_key + distinct.offset(index), better_count, ties))
    lines = Curve(knots, total=tally.total, as_of_us=as_of_us, method="scan", step=step)
    return _measured(distinct, lines, indexes)


def _measured(distinct: DistinctKeys, lines: Curve, knots: Sequence[int]) -> Curve:
    """Return the curve with its measured errors, and with cubics if their errors are smaller."""
    best, found = lines, measure_errors(distinct, lines, knots)
    if found.worst > CUBICS_FROM:
        shapes = fit_cubics(lines)
        if shapes is not None:
            cubics = replace(lines, shapes=shapes)
            of_cubics = measure_errors(distinct, cubics, knots)
            if of_cubics.badness < found.badness:
                best, found = cubics, of_cubics
    return replace(best, errors=found.errors, certificate=found.worst)


def _step(distinct: DistinctKeys) -> int:
    """Return the lattice step: the greatest common divisor of all differences of keys; 1 if there is only one key."""
    step, last = 0, len(distinct) - 1
    for first in range(0, last, STEP_VALUES):
        end = min(first + STEP_VALUES, last)
        if distinct.high is None:
            step = int(np.gcd.reduce(np.diff(distinct.low[first : end + 1]), initial=step))
        else:
            step = _wide_step(distinct, first, end, step)
        distinct.release_pages()
        if step == 1:
            break
    return step or 1


def _wide_step(distinct: DistinctKeys, first: int, end: int, step: int) -> int:
    """Return the greatest common divisor of `step` and the differences between keys `first` to `end`, of any size."""
    offset = distinct.offset(first)
    for index in range(first + 1, end + 1):
        next_offset = distinct.offset(index)
        step = gcd(step, next_offset - offset)
        if step == 1:
            break
        offset = next_offset
    return step
