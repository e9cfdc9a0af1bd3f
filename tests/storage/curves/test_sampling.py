"""Compare the knots of a walk with counts by brute force. A curve is only as correct as its knots."""

import asyncio
import random
from bisect import bisect_left, bisect_right

from hypothesis import example, given, settings
from hypothesis import strategies as st

from predictor import Curve
from storage.curves.sampling import sample_curve
from storage.log.cells import Padding
from storage.records import Best, Board, Entry, Ties
from storage.store import Program
from tests.storage.deployment import NOW_US, Deployment, Session, part
from tests.storage.valued import MAX, MIN, ROWS, Values, create_filled_board

GAP_ROWS_MAX = 10_000


def walked(deployment: Deployment, board: Board, index: int = 1) -> Program[Curve]:
    return sample_curve(deployment.dialect, deployment.entries(board), index, gap_rows_max=GAP_ROWS_MAX, now_us=NOW_US)


async def sample_board(
    deployment: Deployment, number: int, values: Values, best: Best, ties: Ties, samples: int
) -> Curve:
    """Create a board with these values. Check a sampled curve of it against all keys, and return the curve."""
    board = await create_filled_board(deployment, f"b{number}", values, best, ties, samples=samples)
    curve = await deployment.store.read(lambda: walked(deployment, board), heavy=True)
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


async def test_columns_and_boards_are_walked_one_after_the_other_in_one_transaction(deployment: Deployment) -> None:
    values: Values = [((index * 7919) % 700, index % 5) for index in range(1_500)]
    boards = [
        await create_filled_board(deployment, best.value, values, best, Ties.EARLIEST, samples=50) for best in Best
    ]

    def program() -> Program[list[Curve]]:
        curves = []
        for board in (*boards, *boards):
            curves.append((yield from walked(deployment, board)))
        return curves

    curves = await deployment.store.read(program, heavy=True)
    for board, curve in zip((*boards, *boards), curves, strict=True):
        check(curve, keys_of(board, values), 50)


async def test_a_walk_is_true_of_one_snapshot_while_others_write(deployment: Deployment) -> None:
    values: Values = [((index * 7919) % 700, 0) for index in range(1_500)]
    board = await create_filled_board(deployment, "b", values, Best.HIGH, Ties.SHARED, samples=50)
    ranking = deployment.entries(board).rankings[1]
    written = 0

    def program() -> Program[tuple[list[Entry], Curve]]:
        rows = yield from ranking.read_first_rows(10_000)
        return rows, (yield from walked(deployment, board))

    async def write() -> None:
        nonlocal written
        rng = random.Random(3)
        while True:
            chosen = rng.sample(range(2_000), 20)
            better = [
                deployment.post(f"o{index:05}", part(board, {"xp": rng.randint(-90, 90)})) for index in sorted(chosen)
            ]
            await deployment.apply(*better)
            await deployment.erase(board, f"o{rng.randrange(2_000):05}")
            written += 1

    writing = asyncio.create_task(write())
    meanwhile = 0
    try:
        for _ in range(15):
            before = written
            rows, curve = await deployment.store.read(program, heavy=True)
            check(curve, sorted(ranking.padding.key_of_cell(str(row.cells[1])) for row in rows), 50)
            meanwhile += written - before
    finally:
        writing.cancel()
        await asyncio.wait([writing])
    assert meanwhile, "the writes came between the statements of a walk"
