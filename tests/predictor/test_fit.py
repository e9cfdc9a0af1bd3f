"""Measure fits and cubics again by brute force: a certificate is only as good as the measurement behind it."""

import random
import subprocess
import sys
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from predictor import LIMB_BITS, Curve, Tally, decode_curve, encode_curve
from predictor.cubic import add_cubics, fit_cubics
from predictor.fit import fit_curve
from tests.predictor.quality import count_by_key, list_gap_rows, make_curve, measure_quality, rank_of


def tally_of(sorted_keys: Sequence[int], *, wide: bool | None = None) -> Tally:
    """Make the tally of sorted keys. With `wide`, keys have at least two limbs; by default only as many as needed."""
    better_counts, total = array("q"), 0
    first, last = (sorted_keys[0], sorted_keys[-1]) if sorted_keys else (0, 0)
    limbs = [array("q") for _ in range(max(1 + bool(wide), -(-(last - first).bit_length() // LIMB_BITS)))]
    for key, entries in count_by_key(sorted_keys):
        for number, limb in enumerate(limbs):
            limb.append((key - first) >> LIMB_BITS * number & ((1 << LIMB_BITS) - 1))
        better_counts.append(total)
        total += entries
    return Tally(first, [memoryview(limb) for limb in limbs], memoryview(better_counts), total)


SMALL = st.lists(st.integers(-60, 60), max_size=120)
STEPS = st.sampled_from([1, 3, 10**6, 10**16 + 7, 10**30, 10**90 + 1])
JITTERED = st.lists(st.integers(0, 2**120) | st.integers(0, 2**300), max_size=60)


def fit_keys(keys: Sequence[int], samples: int, *, gap_rows_max: int = 10_000, wide: bool | None = None) -> Curve:
    return fit_curve(tally_of(keys, wide=wide), knots_max=samples, gap_rows_max=gap_rows_max, as_of_us=7)


def check(curve: Curve, keys: Sequence[int], samples: int, gap_rows_max: int = 10_000) -> None:
    """Check all promises of a certified curve, at every value and knot and at their two neighbours."""
    assert (curve.total, curve.as_of_us, curve.method) == (len(keys), 7, "scan")
    assert len(curve.knots) <= samples + len(keys) // gap_rows_max
    assert decode_curve(encode_curve(curve)) == curve
    found = measure_quality(curve, count_by_key(keys))
    assert found.broken_brackets == 0
    assert found.worst_error == curve.certificate
    knot_keys = [knot.key for knot in curve.knots]
    last = 0
    for key in sorted({key + by for key in keys for by in (-1, 0, 1, -curve.step, curve.step)}):
        bracket, rank = curve.locate(key), rank_of(keys, key)
        assert bracket.low <= rank <= bracket.high
        assert 1 <= last <= bracket.rank <= len(keys) + 1 if last else bracket.rank >= 1
        last = bracket.rank
        j = bisect_left(knot_keys, key)
        if 0 < j < len(knot_keys):
            assert curve.errors is not None
            assert abs(bracket.rank - rank) <= curve.errors[j - 1]
    if len(set(keys)) <= samples:
        assert knot_keys == sorted(set(keys))
        assert curve.certificate == 0


@settings(max_examples=300, deadline=None)
@given(SMALL, STEPS, st.integers(2, 40), st.sampled_from([3, 20, 10_000]), st.booleans())
@example([], 1, 2, 10_000, False)
@example([5], 1, 2, 10_000, False)
@example([5, 5], 1, 2, 10_000, True)
@example([5, 9], 1, 2, 10_000, False)
@example([5] * 30 + [6, 7, 8, 9] + [40] * 30, 10**30, 2, 10_000, False)
@example([0, 1, 2, 3], 1, 2, 3, False)
@example([-2, 27, -31], 10**90 + 1, 2, 20, False)
def test_a_fit_keeps_its_promises(values: list[int], step: int, samples: int, gap_rows_max: int, wide: bool) -> None:
    keys = sorted(value * step for value in values)
    curve = fit_keys(keys, samples, gap_rows_max=gap_rows_max, wide=wide or None)
    check(curve, keys, samples, gap_rows_max)


@settings(max_examples=100, deadline=None)
@given(JITTERED, st.integers(2, 10))
@example([0, 2**62, 2**62 + 1, 2**63, 2**63 + 2**61, 2**119], 3)
def test_keys_of_forty_digits_are_fitted_just_as_exactly(values: list[int], samples: int) -> None:
    check(fit_keys(sorted(values), samples), sorted(values), samples)


@pytest.mark.parametrize("shape", ["line", "steep", "tied", "timed"])
def test_a_larger_board_is_certified_and_no_gap_holds_more_rows_than_allowed(shape: str) -> None:
    rng = random.Random(3)
    values = {
        "line": [rng.randrange(10_000) * 5 for _ in range(8_000)],
        "steep": [round(rng.lognormvariate(10, 1.5)) for _ in range(8_000)],
        "tied": [round(rng.gauss(0, 3)) for _ in range(8_000)],
        "timed": [-(round(rng.lognormvariate(8, 1)) * 10**16 + rng.randrange(10**15)) for _ in range(8_000)],
    }
    keys = sorted(values[shape])
    curve = fit_keys(keys, 60, gap_rows_max=400)
    check(curve, keys, 60, 400)
    assert max(list_gap_rows(curve.knots)) <= 400
    assert curve.step == (5 if shape == "line" else 1)


def test_the_tolerance_found_is_the_least_that_the_knots_allow() -> None:
    rng = random.Random(5)
    keys = sorted(round(rng.lognormvariate(10, 1.5)) for _ in range(10_000))
    certificates = [fit_keys(keys, samples).certificate or 0 for samples in (30, 60, 120, 240, 480)]
    assert certificates == sorted(certificates, reverse=True)
    # The error is about inversely proportional to the square of the number of knots.
    assert certificates[-1] < certificates[0] / 20


def test_the_service_starts_without_numpy_and_scipy() -> None:
    script = "import sys, service.serve, service.cli, jobs.wiring; print(sorted({'numpy', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
    assert measure_quality(cubics, count_by_key(keys)).broken_brackets == 0
    ranks = [cubics.locate(key).rank for key in range(max(keys[0], -2000), min(keys[-1], 2000), 7)]
    assert ranks == sorted(ranks)


def test_a_sampled_curve_gets_cubics_where_they_are_clearly_closer() -> None:
    keys = make_smooth_keys(20_000)
    lines = make_curve(keys, 700)
    cubics = add_cubics(lines)
    assert cubics.shapes is not None
    errors = [measure_quality(curve, count_by_key(keys)).mean_error for curve in (cubics, lines)]
    assert errors[0] < 0.5 * errors[1]


def test_a_sampled_curve_over_steps_keeps_its_lines() -> None:
    rng = random.Random(2)
    keys = sorted(rng.choice((1, 1000)) * rng.randrange(50) for _ in range(3_000))
    assert add_cubics(make_curve(keys, 5)).shapes is None
