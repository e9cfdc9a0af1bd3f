"""Test quotients against exact decimals."""

from decimal import ROUND_HALF_EVEN, Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import ValueOutOfRangeError
from storage.log.cells import Cell
from storage.log.merging import Merger
from storage.log.quotients import list_quotients
from storage.records import ColumnChange, Ties
from tests.storage.deployment import counter, quotient, ranked, spec

EXACT = Context(prec=80, rounding=ROUND_HALF_EVEN)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-30, 30)
SCALES = st.integers(0, 9)


@given(NUMBERS, NUMBERS, SCALES, SCALES, SCALES, st.integers(1, 20))
def test_a_quotient_is_what_exact_decimals_give(
    of: int, per: int, of_scale: int, per_scale: int, scale: int, least: int
) -> None:
    board = spec(
        ranked("a", scale=of_scale), ranked("b", scale=per_scale), quotient("q", "a", "b", least=least, scale=scale)
    )
    [divided] = list_quotients(board)
    divisor = Decimal(per).scaleb(-per_scale, EXACT)
    found = divided.divide(of, per)
    if divisor < least:
        assert found is None
    else:
        # A remainder that 80 digits do not show is far from half of the last digit.
        exact = EXACT.divide(Decimal(of).scaleb(-of_scale, EXACT), divisor).scaleb(scale, EXACT)
        assert found == int(exact.to_integral_value(ROUND_HALF_EVEN))


@pytest.mark.parametrize(("of", "per"), [(None, 5), (5, None), (5, 1), (5, 0), (5, -3)])
def test_there_is_no_quotient_without_both_values_or_below_its_least_divisor(of: int | None, per: int | None) -> None:
    [divided] = list_quotients(spec(counter("a"), counter("b"), quotient("q", "a", "b", least=2)))
    assert divided.divide(of, per) is None


def test_a_quotient_follows_its_columns_and_ends_with_them() -> None:
    merger = Merger(spec(counter("hits"), counter("shots"), quotient("accuracy", "hits", "shots", least=10)))
    cells: list[Cell] = [None] * 3

    def merge(*changes: ColumnChange) -> object:
        changed = merger.merge_changes(cells, changes, 1)
        cells[:] = [changed.get(index, cell) for index, cell in enumerate(cells)]
        return merger.decode_stats(cells)[2]

    assert merge(ColumnChange(0, 4, False)) is None
    assert merge(ColumnChange(1, 8, False)) is None
    assert merge(ColumnChange(1, 8, False)) == 25
    assert merge(ColumnChange(0, 12, True)) == 75
    assert merge(ColumnChange(1, 9, True)) is None
    assert merge(ColumnChange(1, 1, False), ColumnChange(0, -1, True)) == -10
    assert merge(ColumnChange(0, None, True)) is None


def test_a_quotient_outside_its_range_refuses_the_post() -> None:
    accuracy = quotient("accuracy", "hits", "shots", min_scaled=0, max_scaled=100)
    merger = Merger(spec(counter("hits"), counter("shots"), accuracy))
    with pytest.raises(ValueOutOfRangeError, match=r"accuracy would be 1\.01, outside 0\.00 to 1\.00") as refused:
        merger.merge_changes(None, [ColumnChange(0, 101, False), ColumnChange(1, 100, False)], 1)
    assert refused.value.pointer is None


def test_a_later_quotient_of_columns_without_times_is_reached_with_the_posts_that_change_them() -> None:
    board = spec(counter("hits"), counter("shots"), ranked("xp"), quotient("q", "hits", "shots"), ties=Ties.EARLIEST)
    merger = Merger(board)
    cells: list[Cell] = [3, 6, None, None]
    times = []
    for index, value, at_us in ((2, 1, 50), (2, 1, 60), (0, 1, 40), (0, 1, 70)):
        changed = merger.merge_changes(cells, [ColumnChange(index, value, False)], at_us)
        cells = [changed.get(each, cell) for each, cell in enumerate(cells)]
        times.append(10**16 - 1 - int(str(cells[3])[-16:]))
    assert times == [50, 50, 50, 70], "the first post after the column was added brings the value"
