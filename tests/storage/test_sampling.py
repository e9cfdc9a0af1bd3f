"""Why here: a curve is only as true as its knots, so what a walk reads is counted again by brute force."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from hypothesis import example, given, settings
from hypothesis import strategies as st

from predictor import Curve
from storage.padding import Padding
from storage.records import Best, Ties
from storage.sampling import sample_curve
from tests.storage.deployment import NOW_US, Deployment, Session
from tests.storage.valued import MAX, MIN, ROWS, Values, filled

GAP_ROWS_MAX = 10_000


async def sampled(deployment: Deployment, number: int, values: Values, best: Best, ties: Ties, samples: int) -> Curve:
    """The curve of a new board that holds these values, checked against all of its keys."""
    board = await filled(deployment, f"b{number}", values, best, ties, samples=samples)
    entries = deployment.entries(board)
    curve = await deployment.store.read(
        lambda: sample_curve(deployment.dialect, entries, 1, gap_rows_max=GAP_ROWS_MAX, now_us=NOW_US), heavy=True
    )
    padding = Padding.of(board.spec, board.spec.columns[1])
    keys = sorted(padding.key(padding.pad(value, NOW_US + reached)) for value, reached in values if value is not None)
    check(curve, keys, samples)
    return curve


def check(curve: Curve, keys: list[int], samples: int) -> None:
    """Every knot counts what is there, and no bracket leaves out the true rank."""
    assert (curve.total, curve.as_of_us) == (len(keys), NOW_US)
    assert len(curve.knots) <= samples
    for knot in curve.knots:
        assert knot.better_count == bisect_left(keys, knot.key)
        assert knot.ties == bisect_right(keys, knot.key) - knot.better_count > 0
    if len(set(keys)) <= samples:
        assert [knot.key for knot in curve.knots] == sorted(set(keys))
    for key in {*keys, *(key + 1 for key in keys)}:
        bracket = curve.locate(key)
        assert bracket.low <= 1 + bisect_left(keys, key) <= bracket.high


def test_every_knot_read_through_the_store_counts_what_brute_force_counts(session: Session) -> None:
    numbers = iter(range(10_000))

    @settings(max_examples=60, deadline=None)
    @given(st.lists(ROWS, max_size=40), st.sampled_from(Best), st.sampled_from(Ties), st.integers(2, 12))
    @example([], Best.HIGH, Ties.EARLIEST, 2)
    @example([(None, 0)], Best.HIGH, Ties.SHARED, 2)
    @example([(5, 0)], Best.LOW, Ties.SHARED, 2)
    @example([(5, 0), (5, 1)], Best.LOW, Ties.SHARED, 2)
    @example([(5, 0), (5, 1)], Best.LOW, Ties.EARLIEST, 2)
    @example([(5, 0), (-7, 1)], Best.HIGH, Ties.EARLIEST, 2)
    @example([(5, 1)] * 40, Best.HIGH, Ties.SHARED, 5)
    @example([(5, 1)] * 40, Best.HIGH, Ties.EARLIEST, 5)
    @example([(MAX, 0), (MIN, 0)], Best.HIGH, Ties.EARLIEST, 2)
    def check_case(values: Values, best: Best, ties: Ties, samples: int) -> None:
        session.run(sampled(session.deployment, next(numbers), values, best, ties, samples))

    check_case()


async def test_a_larger_board_is_sampled_within_its_knots_and_its_brackets_hold(deployment: Deployment) -> None:
    values: Values = [((index * 7919) % 1_000 // (1 + index % 3), index % 5) for index in range(3_000)]
    for number, (best, ties) in enumerate((best, ties) for best in Best for ties in Ties):
        curve = await sampled(deployment, number, values, best, ties, 50)
        assert 40 <= len(curve.knots) <= 50
