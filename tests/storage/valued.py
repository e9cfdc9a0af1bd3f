"""Make boards with values that a test chooses or draws, for tests of code that reads a whole column."""

from dataclasses import replace

from hypothesis import strategies as st

from predictor import Curve, Knot
from storage.records import INT64_MAX, Best, Board, Ties
from tests.storage.deployment import NOW_US, PREDICTOR, Deployment, counter, part, ranked

Values = list[tuple[int | None, int]]  # (value, time at which it was reached)
MIN, MAX = -INT64_MAX - 1, INT64_MAX
ROWS = st.tuples(st.none() | st.integers(-30, 30) | st.integers(MIN, MAX), st.integers(0, 3))


def curve(total: int) -> Curve:
    """Return a small curve of a column with `total` values."""
    return Curve((Knot(-5, 0, 1), Knot(-4, 1, total - 1)), total=total, as_of_us=1_000 + total)


async def create_filled_board(
    deployment: Deployment, board_id: str, values: Values, best: Best, ties: Ties, *, samples: int = PREDICTOR.samples
) -> Board:
    """Create a board with these values. If a value is None, the entry has no value."""
    columns = counter("shots"), ranked("xp", best=best, scale=2, min_scaled=MIN, max_scaled=MAX)
    board = await deployment.create(board_id, *columns, ties=ties, predictor=replace(PREDICTOR, samples=samples))
    posts = [
        deployment.post(
            f"o{index:05}", part(board, {"shots": 1} if value is None else {"xp": value}), at_us=NOW_US + reached
        )
        for index, (value, reached) in enumerate(values)
    ]
    if posts:
        await deployment.apply(*posts)
    return board
