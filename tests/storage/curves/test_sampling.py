"""Compare the knots of a walk with counts by brute force. A curve is only as correct as its knots."""

import random
from bisect import bisect_left, bisect_right

from hypothesis import example, given, settings
from hypothesis import strategies as st

from predictor import Curve
from storage.curves.sampling import sample_curve
from storage.log.cells import Padding
from storage.records import Best, Board, Ties
from tests.storage.deployment import NOW_US, Deployment, Session
from tests.storage.valued import MAX, MIN, ROWS, Values, create_filled_board

GAP_ROWS_MAX = 10_000


async def sample_board(
    deployment: Deployment, number: int, values: Values, best: Best, ties: Ties, samples: int
) -> Curve:
    """Create a board with these values. Check a sampled curve of it against all keys, and return the curve."""
    board = await create_filled_board(deployment, f"b{number}", values, best, ties, samples=samples)
    entries = deployment.entries(board)
    curve = await deployment.store.read(
        lambda: sample_curve(deployment.dialect, entries, 1, gap_rows_max=GAP_ROWS_MAX, now_us=NOW_US), heavy=True
    )
    check(curve, keys_of(board, values), samples)
    return curve


def keys_of(board: Board, values: Values) -> list[int]:
    """Return the keys of these values, best first."""
    padding = Padding(board.spec, board.spec.columns[1])
    return sorted(
        padding.key_of_cell(padding.pad(value, NOW_US + reached)) for value, reached in values if value is not None
    )


def check(curve: Curve, keys: list[int], samples: int) -> None:
    """Check that the counts of every knot are right, and that every bracket contains the true rank."""
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
        session.run(sample_board(session.deployment, next(numbers), values, best, ties, samples))

    check_case()


async def test_steps_that_land_within_runs_of_ties_count_the_whole_runs(deployment: Deployment) -> None:
    runs = [1, 400, 1, 1, 900, 2, 700, 30, 1]
    values: Values = [(value, 0) for value, ties in enumerate(runs) for _ in range(ties)]
    values += [(1_000 + index // 3, 0) for index in range(600)]
    random.Random(1).shuffle(values)
    for number, best in enumerate(Best):
        curve = await sample_board(deployment, number, values, best, Ties.SHARED, 40)
        assert max(knot.ties for knot in curve.knots) == 900
