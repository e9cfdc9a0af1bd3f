"""Compare padded cells with integers, and test the texts of values in the change log. Cells order as values do."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage.log.cells import TIME_LIMIT_US, Padding, RankedCells
from storage.records import INT64_MAX, Best, ColumnSpec, Leaf, Place, Ties
from tests.storage.deployment import counter, ranked, spec

INT64_MIN = -INT64_MAX - 1
INT64 = st.integers(INT64_MIN, INT64_MAX)
TIMES = st.integers(0, TIME_LIMIT_US)
FULL = (INT64_MIN, INT64_MAX)
Case = tuple[tuple[int, int], int, int]  # the range of a column, and two values in this range


def padding(low: int, high: int, *, best: Best = Best.HIGH, ties: Ties = Ties.SHARED) -> Padding:
    column = ranked("xp", best=best, min_scaled=low, max_scaled=high)
    return Padding(spec(column, ties=ties), column)


@st.composite
def ranges_and_values(draw: st.DrawFn) -> Case:
    """Draw a column's range and two values in this range, often close to each other or to an end."""
    low, high = sorted((draw(INT64), draw(INT64)))
    first = draw(st.integers(low, high))
    near = st.integers(max(low, first - 11), min(high, first + 11))
    return (low, high), first, draw(st.one_of(near, st.integers(low, high), st.sampled_from((low, high))))


@given(ranges_and_values())
@example((FULL, INT64_MIN, INT64_MAX))
@example((FULL, -1, 0))
@example(((0, 0), 0, 0))
@example(((INT64_MIN, INT64_MIN), INT64_MIN, INT64_MIN))
@example(((-9, 9), -1, 1))
def test_the_order_of_the_texts_is_the_order_of_the_values(case: Case) -> None:
    (low, high), first, second = case
    padded = padding(low, high)
    assert (padded.pad(first) < padded.pad(second)) == (first < second)
    assert (padded.pad(first) == padded.pad(second)) == (first == second)
    assert len(padded.pad(first)) == len(padded.pad(second)) == padded.width
    assert padded.pad(first).isascii()
    assert padded.pad(first).isdigit()


@given(ranges_and_values(), TIMES, TIMES, st.sampled_from(Best))
def test_a_timed_cell_orders_by_value_then_by_time(case: Case, first_us: int, second_us: int, best: Best) -> None:
    (low, high), first, second = case
    padded = padding(low, high, best=best, ties=Ties.EARLIEST)
    sign = -1 if best is Best.HIGH else 1
    first_is_better = (sign * first, first_us) < (sign * second, second_us)
    cells = padded.pad(first, first_us), padded.pad(second, second_us)
    assert (cells[0] > cells[1] if best is Best.HIGH else cells[0] < cells[1]) == first_is_better
    assert (padded.key_of_cell(cells[0]) < padded.key_of_cell(cells[1])) == first_is_better


@given(ranges_and_values(), TIMES, st.sampled_from(Best), st.sampled_from(Ties))
def test_a_cell_decodes_to_its_value_its_time_and_its_key(case: Case, reached_us: int, best: Best, ties: Ties) -> None:
    (low, high), value, _ = case
    padded = padding(low, high, best=best, ties=ties)
    cell = padded.pad(value, reached_us)
    assert padded.decode_value(cell) == value
    assert padded.cell_of_key(padded.key_of_cell(cell)) == cell
    if ties is Ties.EARLIEST:
        assert padded.reached_us(cell) == reached_us


@given(ranges_and_values(), TIMES, st.sampled_from(Best))
def test_an_arrival_stands_behind_its_value_and_before_the_next_worse(case: Case, reached_us: int, best: Best) -> None:
    (low, high), value, other = case
    padded = padding(low, high, best=best, ties=Ties.EARLIEST)
    arrival = padded.key_of_cell(padded.pad_arrival(value))
    assert padded.key_of_cell(padded.pad(value, reached_us)) <= arrival
    if other != value:
        worse = other < value if best is Best.HIGH else other > value
        assert (padded.key_of_cell(padded.pad(other, reached_us)) > arrival) == worse


@settings(max_examples=30)
@given(st.integers(-(2**70), 2**70))
def test_a_time_that_sixteen_digits_cannot_hold_counts_as_the_nearest_that_they_can(reached_us: int) -> None:
    padded = padding(0, 9, ties=Ties.EARLIEST)
    assert padded.reached_us(padded.pad(5, reached_us)) == min(max(reached_us, 0), TIME_LIMIT_US)
    assert len(padded.pad(5, reached_us)) == len(padded.pad(5))


def test_a_value_reads_naturally_in_its_cell() -> None:
    assert padding(0, 10**10 - 1).pad(600) == "0000000600"


XP, BEST_LAP = ranked("xp", max_scaled=999, min_scaled=0), ranked("lap", best=Best.LOW, max_scaled=99_999, min_scaled=0)


def board_of(*columns: ColumnSpec, ties: Ties = Ties.SHARED) -> Leaf:
    return Leaf(1, "b", spec(*columns, ties=ties), Place(0))


def test_each_ranked_cell_stands_at_its_place_and_comes_back() -> None:
    cells = RankedCells(spec(XP, counter("shots"), BEST_LAP))
    text = cells.join_cells(["007", 5, "00123"])
    assert text == "00700123"
    assert (cells.extract_cell(text, 0), cells.extract_cell(text, 2)) == ("007", "00123")


def test_an_absent_cell_is_worse_than_every_cell_of_its_column() -> None:
    cells = RankedCells(spec(XP, BEST_LAP))
    assert cells.none == cells.join_cells([None, None])
    assert (cells.extract_cell(cells.none, 0), cells.extract_cell(cells.none, 1)) == (None, None)
    assert cells.none[:3] < "000"
    assert cells.none[3:] > "99999"


def test_a_column_that_was_added_later_is_absent_in_earlier_texts() -> None:
    narrow, wide = RankedCells(spec(XP)), RankedCells(spec(XP, BEST_LAP))
    old = narrow.join_cells(["500"])
    assert (wide.extract_cell(old, 0), wide.extract_cell(old, 1)) == ("500", None)


def test_a_span_cuts_the_cells_of_a_column_out_of_changes_that_are_not_older_than_it() -> None:
    place = RankedCells(spec(XP, BEST_LAP)).find_span(1)
    assert list(place.split_changes(["005     00700123", "005007", ""])) == [("     ", "00123")]
