"""Compare every merge rule with a plain model, because a wrong sum cannot be recognized later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import ValueOutOfRangeError
from storage.log.cells import Cell, Padding
from storage.log.merging import Merger
from storage.records import ColumnChange, ColumnSpec, Merge, Ties, format_decimal
from tests.storage.deployment import counter, label, ranked, spec
from tests.storage.plain import OutOfRangeError, Reached, merge_row

SMALL = st.integers(-12, 12)
Case = tuple[tuple[ColumnSpec, ...], list[list[ColumnChange]]]  # the columns, and the changes of each post


def merger_of(*columns: ColumnSpec, ties: Ties = Ties.SHARED) -> Merger:
    return Merger(spec(*columns, ties=ties))


@st.composite
def posts(draw: st.DrawFn) -> Case:
    """Draw columns of every kind with narrow ranges, and posts of one owner. Some posts leave a column's range."""
    merges = draw(st.lists(st.sampled_from(Merge), min_size=1, max_size=4))
    columns: list[ColumnSpec] = [
        ranked(f"r{i}", merge=merge, min_scaled=-10, max_scaled=10) for i, merge in enumerate(merges)
    ]
    columns += [counter("shots", merge=draw(st.sampled_from(Merge))), label("clan")]
    numbers = st.builds(ColumnChange, st.integers(0, len(columns) - 2), SMALL, st.booleans())
    texts = st.builds(ColumnChange, st.just(len(columns) - 1), st.sampled_from(("", "red", "blue")), st.booleans())
    return tuple(columns), draw(st.lists(st.lists(st.one_of(numbers, texts), max_size=4), max_size=8))


@given(posts(), st.sampled_from(Ties))
def test_posts_merge_as_in_the_plain_model(case: Case, ties: Ties) -> None:
    columns, sequence = case
    merger = merger_of(*columns, ties=ties)
    cells: list[Cell] = [None] * len(columns)
    row: list[Reached | None] = [None] * len(columns)
    for at_us, changes in enumerate(sequence, start=1):
        try:
            expected = merge_row(columns, row, changes, at_us)
        except OutOfRangeError:
            with pytest.raises(ValueOutOfRangeError):
                merger.merge_changes(cells, changes, at_us)
            continue
        before = list(cells)
        changed = merger.merge_changes(None if cells == [None] * len(cells) else cells, changes, at_us)
        assert cells == before, "merging only says what would change"
        assert set(changed) == {index for index in range(len(columns)) if expected[index] != row[index]}
        for index, cell in changed.items():
            cells[index] = cell
        row = expected
        assert merger.decode_stats(cells) == [held[0] if held is not None else None for held in row]
        if ties is Ties.EARLIEST:
            board = spec(*columns, ties=ties)
            for index, cell in enumerate(cells):
                if columns[index].sorted and isinstance(cell, str):
                    held = row[index]
                    assert held is not None
                    assert Padding(board, columns[index]).reached_us(cell) == held[1]


def test_a_sum_may_not_leave_the_range_but_a_step_may_be_larger_than_it() -> None:
    merger = merger_of(ranked("xp", min_scaled=-10, max_scaled=10))
    cells = [merger.merge_changes(None, [ColumnChange(0, -10, False)], 1)[0]]
    assert merger.decode_stats([merger.merge_changes(cells, [ColumnChange(0, 20, False)], 2)[0]]) == [10]
    with pytest.raises(ValueOutOfRangeError) as refused:
        merger.merge_changes(cells, [ColumnChange(0, -1, False)], 2)
    assert refused.value.pointer == "/stats/xp"


def test_the_error_of_an_overwritten_value_points_at_the_clients_field() -> None:
    merger = merger_of(ranked("lap", scale=3, min_scaled=0, max_scaled=86_400_000))
    with pytest.raises(ValueOutOfRangeError, match=r"-0\.001 is not between 0\.000 and 86400\.000") as refused:
        merger.merge_changes(None, [ColumnChange(0, -1, True)], 1)
    assert refused.value.pointer == "/set/lap"


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 9))
def test_a_scaled_value_reads_as_the_decimal_that_it_stands_for(scaled: int, scale: int) -> None:
    text = format_decimal(scaled, scale)
    whole, _, digits = text.partition(".")
    assert len(digits) == scale
    assert int(whole + digits) == scaled
