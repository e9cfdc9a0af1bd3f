"""Fits monotone cubics that pass through a curve's knots, to replace the lines between neighbouring knots.

Cubics replace the lines only if their measured errors are smaller. Often they are not, because a board's values rise in
irregular steps, which a smooth curve misses.

The method is PCHIP, from Fritsch & Butland, SIAM J. Sci. Stat. Comput. 5 (1984).
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from .curve import Curve
from .locate import SHAPE_UNIT

KNOTS_MIN = 4
# A sampled curve uses cubics only if their mean error at held-out knots is at most this fraction of the lines' error.
GAIN = 0.8


def fit_cubics(curve: Curve) -> list[tuple[int, int]] | None:
    """Fit the two inner Bézier values of each gap's cubic, or return None if the knots are too few or too close."""
    from scipy.interpolate import PchipInterpolator  # imported here because loading it takes half a second

    knots, step = curve.knots, curve.step
    if len(knots) < KNOTS_MIN:
        return None
    starts = np.array([float(knot.key - knots[0].key) for knot in knots])
    if not (np.diff(starts) > 0).all():
        return None
    better_counts, ties = np.array([knot[1:] for knot in knots], dtype=float).T
    lows = 1 + better_counts + ties
    slopes = PchipInterpolator(starts, lows)(starts, 1)
    rises = 1 + better_counts[1:] - lows[:-1]
    runs = np.array([float(after.key - before.key - step) for before, after in pairwise(knots)])
    thirds = runs * SHAPE_UNIT / (3 * np.maximum(rises, 1))
    first = np.clip(np.rint(slopes[:-1] * thirds), 0, SHAPE_UNIT)
    second = np.clip(np.rint(SHAPE_UNIT - slopes[1:] * thirds), 0, SHAPE_UNIT)
    middle = np.rint((first + second) / 2)
    crossed = first > second  # there the cubic might fall between its knots; `middle` as both inner values prevents it
    return list(
        zip(
            np.where(crossed, middle, first).astype(int).tolist(),
            np.where(crossed, middle, second).astype(int).tolist(),
            strict=True,
        )
    )


def add_cubics(curve: Curve) -> Curve:
    """Return a sampled curve with cubics if they are clearly more accurate than lines, otherwise return `curve`.

    Between the knots of a sampled curve, no true ranks are known. To compare the two, every second knot is held out,
    and lines and cubics through the other knots estimate the known ranks of those held out.
    """
    shapes = fit_cubics(curve)
    if shapes is None:
        return curve
    kept = curve.knots[::2] if len(curve.knots) % 2 else (*curve.knots[::2], curve.knots[-1])
    lines = replace(curve, knots=kept)
    shapes_of_kept = fit_cubics(lines)
    if shapes_of_kept is None:
        return curve
    worst, mean = _held_out(lines, curve)
    worst_cubic, mean_cubic = _held_out(replace(lines, shapes=shapes_of_kept), curve)
    clearly = worst_cubic <= worst and mean_cubic <= mean * GAIN and mean > 0
    return replace(curve, shapes=shapes) if clearly else curve


def _held_out(tried: Curve, curve: Curve) -> tuple[float, float]:
    errors = []
    for knot in curve.knots[1::2]:
        rank = 1 + knot.better_count
        errors.append(abs(tried.locate(knot.key).rank - rank) / rank)
    return max(errors), sum(errors) / len(errors)
