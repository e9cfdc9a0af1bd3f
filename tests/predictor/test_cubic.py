"""Test that a cubic is used only where it is closer to the true ranks than a line, and that it never leaves its gap."""

import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from predictor import Curve, Knot
from predictor.cubic import add_cubics, fit_cubics
from predictor.fit import fit_curve
from tests.predictor import quality
from tests.predictor.tallies import tally_of


def make_curve(keys: Sequence[int], every: int) -> Curve:
    """Make a curve with a knot at every `every`-th distinct key and at the last key."""
    distinct = sorted(set(keys))
    chosen = sorted({*distinct[::every], distinct[-1]})
    knots = [Knot(key, bisect_left(keys, key), bisect_right(keys, key) - bisect_left(keys, key)) for key in chosen]
    return Curve(knots, total=len(keys), as_of_us=0)


def make_smooth_keys(entries: int) -> list[int]:
    """Make keys whose ranks lie on a parabola. A cubic can follow a parabola, and a line cannot."""
    return [round((index * 10**6) ** 0.5 * 1000) for index in range(entries)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-1000, 1000) | st.integers(-(2**80), 2**80), min_size=1, max_size=80), st.integers(1, 5))
def test_cubics_stay_monotone_within_the_brackets(values: list[int], every: int) -> None:
    keys = sorted(values)
    curve = make_curve(keys, every)
    shapes = fit_cubics(curve)
    if shapes is None:
        return
    cubics = replace(curve, shapes=shapes)
    assert quality.measure_quality(cubics, quality.count_by_key(keys)).broken_brackets == 0
    ranks = [cubics.locate(key).rank for key in range(max(keys[0], -2000), min(keys[-1], 2000), 7)]
    assert ranks == sorted(ranks)


def test_a_sampled_curve_gets_cubics_where_they_are_clearly_closer() -> None:
    keys = make_smooth_keys(20_000)
    lines = make_curve(keys, 700)
    cubics = add_cubics(lines)
    assert cubics.shapes is not None
    errors = [quality.measure_quality(curve, quality.count_by_key(keys)).mean_error for curve in (cubics, lines)]
    assert errors[0] < 0.5 * errors[1]


def test_a_sampled_curve_over_steps_keeps_its_lines() -> None:
    rng = random.Random(2)
    keys = sorted(rng.choice((1, 1000)) * rng.randrange(50) for _ in range(3_000))
    assert add_cubics(make_curve(keys, 5)).shapes is None


def test_a_scan_takes_the_cubics_where_they_are_measured_closer() -> None:
    keys = make_smooth_keys(20_000)
    curve = fit_curve(tally_of(keys), knots_max=24, gap_rows_max=10**9, as_of_us=0)
    lines = replace(curve, shapes=None, errors=None, certificate=None)
    found, of_lines = (quality.measure_quality(one, quality.count_by_key(keys)) for one in (curve, lines))
    assert curve.shapes is not None
    assert found.worst_error == curve.certificate
    assert found.worst_error <= of_lines.worst_error
    assert found.mean_error < 0.1 * of_lines.mean_error
