"""Compare what walks and scans read from a column with counts by brute force. A wrong count makes a wrong curve."""

import random
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from config.settings import JobSettings
from predictor import LIMB_BITS, Curve, Tally
from predictor.fit import fit_curve
from storage.curves.sampling import TallyBuilder, scan_column
from storage.log.cells import Padding
from storage.records import Best, Board, Ties
from tests.predictor import quality
from tests.storage.deployment import NOW_US, Deployment, Session
from tests.storage.valued import MAX, MIN, ROWS, Values, create_filled_board


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


def read_tally(tally: Tally) -> dict[int, int]:
    if tally.total == 0:
        return {}
    *limbs, better_counts = (array("q", column.tobytes()) for column in (*tally.limbs, tally.better_counts))
    counts = [after - before for before, after in zip(better_counts, [*better_counts[1:], tally.total], strict=True)]
    offsets = [sum(part << LIMB_BITS * at for at, part in enumerate(parts)) for parts in zip(*limbs, strict=True)]
    keys = [tally.first_key + offset for offset in offsets]
    assert keys == sorted(set(keys))
    return dict(zip(keys, counts, strict=True))


async def check_scan(deployment: Deployment, board: Board, keys: list[int]) -> None:
    """Check that a scan reads every value with its ties, and the certificate of a curve fitted to them."""
    entries = deployment.open_rows(board)
    limits = JobSettings().model_copy(update={"scan_page_values": 3})
    tally = await deployment.store.read(lambda: scan_column(entries, 1, limits), heavy=True)
    counts = Counter(keys)
    assert read_tally(tally) == counts
    curve = fit_curve(tally, knots_max=3, gap_rows_max=10_000, as_of_us=NOW_US)
    measured = quality.measure_quality(curve, sorted(counts.items()))
    assert (measured.broken_brackets, measured.worst_error) == (0, curve.certificate)


def test_a_walk_and_a_scan_of_a_column_count_what_brute_force_counts(session: Session) -> None:
    numbers = iter(range(10_000))

    @settings(max_examples=30, deadline=None)
    @given(st.lists(ROWS, max_size=40), st.sampled_from(Best), st.sampled_from(Ties), st.integers(2, 12))
    @example([], Best.HIGH, Ties.EARLIEST, 2)
    @example([(None, 0)], Best.HIGH, Ties.SHARED, 2)
    @example([(5, 0)], Best.LOW, Ties.SHARED, 2)
    @example([(5, 0), (5, 1)], Best.LOW, Ties.SHARED, 2)
    @example([(5, 0), (5, 1), (-5, 1)], Best.HIGH, Ties.EARLIEST, 2)
    @example([(5, 0), (-7, 1)], Best.HIGH, Ties.EARLIEST, 2)
    @example([(5, 1)] * 40, Best.HIGH, Ties.SHARED, 5)
    @example([(5, 1)] * 40, Best.HIGH, Ties.EARLIEST, 5)
    @example([(value, 0) for value in range(9)], Best.LOW, Ties.SHARED, 2)
    @example([(MIN, 0), (MIN + 1, 0), (-1, 0), (0, 0), (1, 1), (MAX, 0)], Best.HIGH, Ties.EARLIEST, 2)
    def check_case(values: Values, best: Best, ties: Ties, samples: int) -> None:
        async def case() -> None:
            deployment, name = session.deployment, f"b{next(numbers)}"
            board = await create_filled_board(deployment, name, values, best, ties, samples=samples)
            keys = keys_of(board, values)
            check((await deployment.fit(board, 1))[0], keys, samples)
            await check_scan(deployment, board, keys)

        session.run(case())

    check_case()


async def test_steps_that_land_within_runs_of_ties_count_the_whole_runs(deployment: Deployment) -> None:
    runs = [1, 400, 1, 1, 900, 2, 700, 30, 1]
    values: Values = [(value, 0) for value, ties in enumerate(runs) for _ in range(ties)]
    values += [(1_000 + index // 3, 0) for index in range(600)]
    random.Random(1).shuffle(values)
    for best in Best:
        board = await create_filled_board(deployment, best.value, values, best, Ties.SHARED, samples=40)
        curve, _ = await deployment.fit(board, 1)
        check(curve, keys_of(board, values), 40)
        assert max(knot.ties for knot in curve.knots) == 900


def test_keys_of_any_size_are_tallied() -> None:
    keys = [*range(-50, 50), 2**62 - 51, 2**62 - 50, 2**70, 2**123]
    tallying = TallyBuilder()
    for first in range(0, len(keys), 9):
        page: Sequence[int] = keys[first : first + 9]
        tallying.add_values(page, [1 + key % 3 for key in page])
    tally = tallying.tally()
    assert read_tally(tally) == {key: 1 + key % 3 for key in keys}
    assert fit_curve(tally, knots_max=10, gap_rows_max=50, as_of_us=0).total == tally.total
