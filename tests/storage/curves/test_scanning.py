"""Test that a scan reads all values in one snapshot, because a certificate covers all values."""

from array import array
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from config.settings import JobSettings
from predictor import LIMB_BITS, Tally
from predictor.fit import fit_curve
from storage.curves.scanning import TallyBuilder, scan_column
from storage.log.cells import Padding
from storage.records import Best, Board, Ties
from tests.predictor import quality
from tests.storage.deployment import NOW_US, Deployment, Session
from tests.storage.valued import MAX, MIN, ROWS, Values, create_filled_board


def read_tally(tally: Tally) -> dict[int, int]:
    if tally.total == 0:
        return {}
    low, high, better_counts = (
        array("q", b"" if column is None else column.tobytes())
        for column in (tally.low, tally.high, tally.better_counts)
    )
    counts = [after - before for before, after in zip(better_counts, [*better_counts[1:], tally.total], strict=True)]
    keys = [tally.first_key + offset for offset in low]
    if tally.high is not None:
        keys = [key + (part << LIMB_BITS) for key, part in zip(keys, high, strict=True)]
    assert keys == sorted(set(keys))
    return dict(zip(keys, counts, strict=True))


async def scanned(deployment: Deployment, board: Board, *, page: int = 3, memory: int = 4) -> Tally:
    entries = deployment.entries(board)
    limits = JobSettings().model_copy(update={"scan_memory_values_max": memory, "scan_page_values": page})
    return await deployment.store.read(lambda: scan_column(entries, 1, limits), heavy=True)


def expected(board: Board, values: Values) -> dict[int, int]:
    padding = Padding(board.spec, board.spec.columns[1])
    cells = [padding.pad(value, NOW_US + reached) for value, reached in values if value is not None]
    return dict(Counter(padding.key_of_cell(cell) for cell in cells))


def test_a_scan_reads_every_value_with_its_ties(session: Session) -> None:
    numbers = iter(range(10_000))

    @settings(max_examples=60, deadline=None)
    @given(st.lists(ROWS, max_size=40), st.sampled_from(Best), st.sampled_from(Ties))
    @example([], Best.HIGH, Ties.EARLIEST)
    @example([(None, 0)], Best.HIGH, Ties.SHARED)
    @example([(5, 0)] * 3, Best.LOW, Ties.SHARED)
    @example([(5, 0), (5, 1), (-5, 1)], Best.HIGH, Ties.EARLIEST)
    @example([(value, 0) for value in range(9)], Best.LOW, Ties.SHARED)
    @example([(MIN, 0), (MIN + 1, 0), (-1, 0), (0, 0), (1, 1), (MAX, 0)], Best.HIGH, Ties.EARLIEST)
    def check_case(values: Values, best: Best, ties: Ties) -> None:
        async def case() -> None:
            board = await create_filled_board(session.deployment, f"b{next(numbers)}", values, best, ties)
            tally = await scanned(session.deployment, board)
            found = expected(board, values)
            assert read_tally(tally) == found
            curve = fit_curve(tally, knots_max=3, gap_rows_max=10_000, as_of_us=NOW_US)
            measured = quality.measure_quality(curve, sorted(found.items()))
            assert (measured.broken_brackets, measured.worst_error) == (0, curve.certificate)

        session.run(case())

    check_case()


@pytest.mark.parametrize("memory", [0, 7, 1_000])
def test_a_tally_is_the_same_from_memory_and_from_files(memory: int) -> None:
    keys = [*range(-50, 50), 2**62 - 51, 2**62 - 50, 2**70, 2**123]
    tallying = TallyBuilder(memory_values_max=memory)
    for first in range(0, len(keys), 9):
        page: Sequence[int] = keys[first : first + 9]
        tallying.add_values(page, [1 + key % 3 for key in page])
    tally = tallying.tally()
    tally.release_pages()
    assert read_tally(tally) == {key: 1 + key % 3 for key in keys}
    assert fit_curve(tally, knots_max=10, gap_rows_max=50, as_of_us=0).total == tally.total
    tally.release_pages()


async def test_progress_adds_up_to_the_entries(deployment: Deployment) -> None:
    values: Values = [(value // 3, 0) for value in range(40)]
    board = await create_filled_board(deployment, "b", values, Best.LOW, Ties.SHARED)
    entries, told = deployment.entries(board), list[int]()
    limits = JobSettings().model_copy(update={"scan_memory_values_max": 100, "scan_page_values": 4})
    await deployment.store.read(lambda: scan_column(entries, 1, limits, progress=told.append), heavy=True)
    assert sum(told) == 40
    assert max(told) <= 12
