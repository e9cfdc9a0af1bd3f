"""Compare the sum of curves of disjoint parts with the true ranks among all entries."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from predictor import Curve, Knot, SummedCurve
from predictor.fit import fit_curve
from tests.predictor.test_fit import tally_of

KEYS = st.lists(st.integers(-40, 40), max_size=30)


def fit(keys: list[int], knots: int, *, scanned: bool) -> Curve:
    """Fit a curve of sorted keys: from all of them, or through every so many of them."""
    if scanned:
        return fit_curve(tally_of(keys), knots_max=knots, gap_rows_max=100, as_of_us=5)
    counted = [Knot(key, bisect_left(keys, key), keys.count(key)) for key in sorted(set(keys))]
    chosen = [knot for at, knot in enumerate(counted) if at % knots == 0 or at == len(counted) - 1]
    return Curve(tuple(chosen), total=len(keys), as_of_us=7, method="skip")


@st.composite
def parts(draw: st.DrawFn) -> tuple[list[list[int]], SummedCurve]:
    drawn = [sorted(keys) for keys in draw(st.lists(KEYS, min_size=2, max_size=4))]
    return drawn, SummedCurve([fit(keys, draw(st.integers(2, 6)), scanned=draw(st.booleans())) for keys in drawn])


@given(parts(), st.integers(-45, 45))
def test_the_bracket_of_the_sum_holds_the_true_rank(made: tuple[list[list[int]], SummedCurve], key: int) -> None:
    drawn, curve = made
    true_rank = 1 + sum(bisect_left(keys, key) for keys in drawn)
    found = curve.locate(key)
    assert found.low <= true_rank <= found.high
    assert found.low <= found.rank <= found.high
    gap = curve.find_gap(key)
    assert gap.better_count <= true_rank - 1 <= gap.better_count + gap.rows
    assert curve.total == sum(map(len, drawn))
    assert curve.as_of_us == min(part.as_of_us for part in curve.parts)


@given(parts(), st.integers(1, 130))
def test_the_key_of_a_rank_lies_in_its_bracket(made: tuple[list[list[int]], SummedCurve], rank: int) -> None:
    drawn, curve = made
    merged = sorted(key for keys in drawn for key in keys)
    found = curve.key_at(rank)
    if not merged:
        assert found is None
        return
    assert found is not None
    # The worst key that still has this rank or better:
    true_key = max(key for key in merged if 1 + bisect_left(merged, key) <= rank)
    assert found.low <= true_key <= found.high
    assert found.low <= found.key <= found.high


@given(parts())
def test_no_rank_is_further_off_than_the_certificate_of_the_sum(made: tuple[list[list[int]], SummedCurve]) -> None:
    drawn, curve = made
    drift = curve.estimate_drift(1)
    for key in range(-45, 46):
        true_rank = 1 + sum(bisect_left(keys, key) for keys in drawn)
        error = abs(curve.locate(key).rank - true_rank) / true_rank
        assert error <= drift.bound * (1 + 1e-9)
        assert curve.certificate is None or error <= curve.certificate * (1 + 1e-9)
    assert (curve.certificate is None) == any(part.certificate is None for part in curve.parts)
