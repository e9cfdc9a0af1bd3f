"""Compare every merge rule with a plain model, because a wrong sum cannot be recognized later."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import ValueOutOfRangeError
from storage.log.cells import Cell, Padding
from storage.log.merging import Merger
from storage.records import Best, BoardSpec, ColumnChange, ColumnSpec, Merge, Ties, format_decimal
from tests.storage.deployment import counter, keep_times, label, quotient, ranked, spec
from tests.storage.plain import OutOfRangeError, Reached, merge_row, rank_rows

SMALL = st.integers(-12, 12)
TIMES = st.lists(st.integers(1, 9), min_size=8, max_size=8)  # of the posts, in the order of their arrival
ALONE = [merge for merge in Merge if merge not in (Merge.WITH, Merge.QUOTIENT)]
Case = tuple[tuple[ColumnSpec, ...], list[list[ColumnChange]]]  # the columns, and the changes of each post


def merger_of(*columns: ColumnSpec, ties: Ties = Ties.SHARED) -> Merger:
    return Merger(spec(*columns, ties=ties))


@st.composite
def posts(draw: st.DrawFn) -> Case:
    """Draw columns of every kind with narrow ranges, and posts of one owner. Some posts leave a column's range."""
    merges = draw(st.lists(st.sampled_from(ALONE), min_size=1, max_size=4))
    columns: list[ColumnSpec] = [
        ranked(f"r{i}", merge=merge, min_scaled=-10, max_scaled=10) for i, merge in enumerate(merges)
    ]
    columns += [counter("shots", merge=draw(st.sampled_from(ALONE))), label("clan")]
    numbers = st.builds(ColumnChange, st.integers(0, len(columns) - 2), SMALL, st.booleans())
    texts = st.builds(ColumnChange, st.just(len(columns) - 1), st.sampled_from(("", "red", "blue")), st.booleans())
    return tuple(columns), draw(st.lists(st.lists(st.one_of(numbers, texts), max_size=4), max_size=8))


def merge_in_both(
    board: BoardSpec, row: list[Reached | None], cells: list[Cell], changes: list[ColumnChange], at_us: int
) -> tuple[list[Reached | None], list[Cell]]:
    """Merge a post into a row of the plain model and into the cells of the same row. Return both, as they are then."""
    merger, stored = Merger(board), None if cells == [None] * len(cells) else cells
    try:
        expected = merge_row(board, row, changes, at_us)
    except OutOfRangeError:
        with pytest.raises(ValueOutOfRangeError):
            merger.merge_changes(stored, changes, at_us)
        return row, cells
    before = list(cells)
    changed = merger.merge_changes(stored, changes, at_us)
    assert cells == before, "merging only says what would change"
    assert all(cells[index] != cell for index, cell in changed.items()), "only what changes is written"
    after = [changed.get(index, cell) for index, cell in enumerate(cells)]
    assert merger.decode_stats(after) == [held[0] if held is not None else None for held in expected]
    return expected, after


@given(posts(), st.sampled_from(Ties), TIMES)
def test_posts_merge_as_in_the_plain_model(case: Case, ties: Ties, times: list[int]) -> None:
    columns, sequence = case
    board = spec(*columns, ties=ties)
    cells: list[Cell] = [None] * len(columns)
    row: list[Reached | None] = [None] * len(columns)
    for changes, at_us in zip(sequence, times, strict=False):
        before_row, before = row, cells
        row, cells = merge_in_both(board, row, cells, changes, at_us)
        for index in range(len(columns)):
            assert (cells[index] != before[index]) == (row[index] != before_row[index])
        if ties is Ties.EARLIEST:
            for index, cell in enumerate(cells):
                if columns[index].sorted and isinstance(cell, str):
                    held = row[index]
                    assert held is not None
                    assert Padding(board, columns[index]).reached_us(cell) == held[1]


NUMBERS = ("score", "lap", "time", "level")  # the columns of `runs` with numbers that are posted
QUOTIENTS = ("share", "pace")  # the computed columns of `runs`


@st.composite
def runs(draw: st.DrawFn) -> BoardSpec:
    """Draw a board with two ranked columns, columns that may follow the first of them, and tie columns."""
    best = st.sampled_from(Best)
    columns = [
        ranked(name, merge=draw(st.sampled_from(ALONE)), best=draw(best), min_scaled=-3, max_scaled=9)
        for name in ("score", "lap")
    ]
    for name in ("time", "level"):
        of = draw(st.sampled_from((None, "score")))
        columns.append(counter(name, merge=draw(st.sampled_from(ALONE)), best=draw(best), of=of))
    columns.append(label("replay", of=draw(st.sampled_from((None, "score", "lap")))))
    ties = draw(st.sampled_from(Ties))
    for name in QUOTIENTS:
        of, per = draw(st.permutations(NUMBERS))[:2]
        least, scale, is_ranked = draw(st.integers(1, 3)), draw(st.integers(0, 2)), draw(st.booleans())
        ends = draw(st.sampled_from(((-(10**6), 10**6), (-150, 250))))
        limits = {"min_scaled": ends[0], "max_scaled": ends[1]}
        columns.append(quotient(name, of, per, least=least, sorted_=is_ranked, best=draw(best), scale=scale, **limits))
    names = draw(st.lists(st.sampled_from((*NUMBERS, *QUOTIENTS)), unique=True, max_size=3))
    return keep_times(spec(*columns, ties=ties, tie_columns=tuple(names)))


# Every change of a column of `runs`: drawing one of a list costs less than drawing three numbers.
CHANGES = [
    ColumnChange(index, value, overwrite)
    for overwrite in (False, True)
    for index in range(len(NUMBERS) + 1)
    for value in (*(range(-3, 5) if index < len(NUMBERS) else "abcdefgh"), *([None] if overwrite else []))
]
ONE_CHANGE = st.sampled_from(CHANGES)
HISTORIES = st.lists(st.lists(ONE_CHANGE, unique_by=lambda change: change.index, max_size=4), max_size=6)


@settings(max_examples=100)
@given(runs(), st.lists(HISTORIES, min_size=2, max_size=10), TIMES)
def test_rows_with_ties_and_followers_are_ordered_as_in_the_plain_model(
    board: BoardSpec, histories: list[list[list[ColumnChange]]], times: list[int]
) -> None:
    merger = Merger(board)
    rows: dict[str, list[Reached | None]] = {}
    stored: dict[str, list[Cell]] = {}
    for owner, history in zip("abcdefghij", histories, strict=False):
        row: list[Reached | None] = [None] * len(board.columns)
        cells: list[Cell] = [None] * len(board.columns)
        for changes, at_us in zip(history, times, strict=False):
            row, cells = merge_in_both(board, row, cells, changes, at_us)
        rows[owner], stored[owner] = row, cells
    for index in [index for index, column in enumerate(board.columns) if column.sorted]:
        padding = Padding(board, board.columns[index])
        keys = {owner: padding.key_of_cell(str(cells[index])) for owner, cells in stored.items() if cells[index]}
        order = rank_rows(board, index, rows)
        assert sorted(keys, key=lambda owner: (keys[owner], owner)) == [place.owner for place in order]
        for one, other in pairwise(order):
            assert (keys[one.owner] == keys[other.owner]) == (one.key == other.key), "equal places share a rank"
        for owner, key in keys.items():
            held = rows[owner][index]
            if board.ties is Ties.EARLIEST:
                assert held is not None
                assert padding.reached_us(padding.cell_of_key(key)) == held[1]
            ties = padding.ties_of(padding.cell_of_key(key))
            assert ties == [merger.decode_stats(stored[owner])[tie.number] for tie in padding.tie_columns]


def test_a_sum_may_not_leave_the_range_but_a_step_may_be_larger_than_it() -> None:
    merger = merger_of(ranked("xp", min_scaled=-10, max_scaled=10))
    cells = [merger.merge_changes(None, [ColumnChange(0, -10, False)], 1)[0]]
    assert merger.decode_stats([merger.merge_changes(cells, [ColumnChange(0, 20, False)], 2)[0]]) == [10]
    with pytest.raises(ValueOutOfRangeError) as refused:
        merger.merge_changes(cells, [ColumnChange(0, -1, False)], 2)
    assert refused.value.pointer == "/stats/xp"


def test_the_error_of_an_overwritten_value_points_at_the_clients_field() -> None:
    merger = merger_of(ranked("lap", scale=3, min_scaled=0, max_scaled=86_400_000))
    with pytest.raises(ValueOutOfRangeError, match=r"-0\.001, outside 0\.000 to 86400\.000") as refused:
        merger.merge_changes(None, [ColumnChange(0, -1, True)], 1)
    assert refused.value.pointer == "/set/lap"


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 9))
def test_a_scaled_value_reads_as_the_decimal_that_it_stands_for(scaled: int, scale: int) -> None:
    text = format_decimal(scaled, scale)
    whole, _, digits = text.partition(".")
    assert len(digits) == scale
    assert int(whole + digits) == scaled
