"""Cubics over the gaps of a curve, monotone and through the same knots.

The one rule: a cubic has to earn its place by being closer than the lines where both were measured; steps of a board's
values are noise that a smooth line runs past. PCHIP: Fritsch & Butland, SIAM J. Sci. Stat. Comput. 5 (1984).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from .curve import Curve
from .locate import SHAPE_UNIT

KNOTS_MIN = 4
GAIN = 0.8  # of the lines' mean held-out error: cubics of a sampled curve are at most so wrong, or not used


def shapes_of(curve: Curve) -> list[tuple[int, int]] | None:
    """The inner control values of each gap's cubic; None where there are too few knots or they are too close."""
    from scipy.interpolate import PchipInterpolator  # loaded where it is needed: it takes half a second

    knots, step = curve.knots, curve.step
    if len(knots) < KNOTS_MIN:
        return None
    starts = np.array([float(knot.key - knots[0].key) for knot in knots])
    if not (np.diff(starts) > 0).all():
        return None
    lows = np.array([float(1 + knot.better_count + knot.ties) for knot in knots])
    slopes = PchipInterpolator(starts, lows)(starts, 1)
    rises = np.array([float(knot.better_count + 1) for knot in knots[1:]]) - lows[:-1]
    runs = np.array([float(after.key - before.key - step) for before, after in pairwise(knots)])
    thirds = runs * SHAPE_UNIT / (3 * np.maximum(rises, 1))
    first = np.clip(np.rint(slopes[:-1] * thirds), 0, SHAPE_UNIT)
    second = np.clip(np.rint(SHAPE_UNIT - slopes[1:] * thirds), 0, SHAPE_UNIT)
    middle = np.rint((first + second) / 2)
    crossed = first > second  # too steep for both ends: they meet half-way, which stays monotone
    return list(
        zip(
            np.where(crossed, middle, first).astype(int).tolist(),
            np.where(crossed, middle, second).astype(int).tolist(),
            strict=True,
        )
    )


def shaped(curve: Curve) -> Curve:
    """A curve that was sampled, with cubics if they are clearly closer than its lines.

    Nothing was measured between its knots, so every second knot is held out, and counted against a curve of the others.
    """
    shapes = shapes_of(curve)
    if shapes is None:
        return curve
    kept = curve.knots[::2] if len(curve.knots) % 2 else (*curve.knots[::2], curve.knots[-1])
    lines = replace(curve, knots=kept)
    shapes_of_kept = shapes_of(lines)
    if shapes_of_kept is None:
        return curve
    worst, mean = _held_out(lines, curve)
    worst_cubic, mean_cubic = _held_out(replace(lines, shapes=shapes_of_kept), curve)
    clearly = worst_cubic <= worst and mean_cubic <= mean * GAIN and mean > 0
    return replace(curve, shapes=shapes) if clearly else curve


def _held_out(tried: Curve, curve: Curve) -> tuple[float, float]:
    """(worst, mean) relative error at the knots that were held out."""
    errors = []
    for knot in curve.knots[1::2]:
        rank = 1 + knot.better_count
        errors.append(abs(tried.locate(knot.key).rank - rank) / rank)
    return max(errors), sum(errors) / len(errors)
