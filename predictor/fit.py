"""A curve from every value of a column, with the certificate of how wrong it can be at most.

The one rule: numpy and scipy are loaded from here only, and this module only where a curve is fitted: no process pays
for them that does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

import numpy as np

from .cubic import shaped, shapes_of
from .curve import Curve, Knot
from .greedy import Distinct, knots_of
from .measured import measure
from .tally import Tally

__all__ = ["fit", "shaped"]

# Worst relative error of lines up to which cubics are not tried: to load scipy takes 52 MiB and a third of a second.
CUBICS_FROM = 0.005
STEP_VALUES = 1 << 16  # whose differences are looked at in one piece


def fit(tally: Tally, *, knots_max: int, gap_rows_max: int, as_of_us: int) -> Curve:
    """The certified curve of a column: the least worst error that `knots_max` (at least 2) knots give.

    Knots past that only split gaps of more than `gap_rows_max` entries. Takes a second a million distinct values.
    """
    if tally.total == 0:
        return Curve((), total=0, as_of_us=as_of_us, method="scan", certificate=0.0, errors=())
    distinct = Distinct(
        low=np.frombuffer(tally.low, dtype=np.int64),
        high=None if tally.high is None else np.frombuffer(tally.high, dtype=np.int64),
        better_counts=np.frombuffer(tally.better_counts, dtype=np.int64),
        total=tally.total,
        relax=tally.relax,
    )
    step = _step(distinct)
    knots = knots_of(distinct, step, knots_max=knots_max, gap_rows_max=gap_rows_max)
    lines = Curve(
        _knots(tally.first_key, distinct, knots), total=tally.total, as_of_us=as_of_us, method="scan", step=step
    )
    return _measured(distinct, lines, knots)


def _knots(first_key: int, distinct: Distinct, indexes: Sequence[int]) -> list[Knot]:
    knots = []
    for index in indexes:
        better_count = int(distinct.better_counts[index])
        knots.append(Knot(first_key + distinct.offset(index), better_count, distinct.counted(index) - better_count))
    return knots


def _measured(distinct: Distinct, lines: Curve, knots: Sequence[int]) -> Curve:
    """Lines, or cubics where they are closer, with what was measured of them."""
    best, found = lines, measure(distinct, lines, knots)
    if found.worst > CUBICS_FROM:
        shapes = shapes_of(lines)
        if shapes is not None:
            cubics = replace(lines, shapes=shapes)
            of_cubics = measure(distinct, cubics, knots)
            if of_cubics.badness < found.badness:
                best, found = cubics, of_cubics
    return replace(best, errors=found.errors, certificate=found.worst)


def _step(distinct: Distinct) -> int:
    """The lattice step: the greatest common divisor of the keys' differences, 1 where there is one key only."""
    step, last = 0, len(distinct) - 1
    for first in range(0, last, STEP_VALUES):
        end = min(first + STEP_VALUES, last)
        if distinct.high is None:
            step = int(np.gcd.reduce(np.diff(distinct.low[first : end + 1]), initial=step))
        else:
            step = _wide_step(distinct, first, end, step)
        distinct.relax()
        if step == 1:
            break
    return step or 1


def _wide_step(distinct: Distinct, first: int, end: int, step: int) -> int:
    """`_step` of keys too wide for one number, whose differences may be as wide."""
    offset = distinct.offset(first)
    for index in range(first + 1, end + 1):
        next_offset = distinct.offset(index)
        step = gcd(step, next_offset - offset)
        if step == 1:
            break
        offset = next_offset
    return step
