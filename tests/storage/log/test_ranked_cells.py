"""Test the texts of values in the change log. Both SQL and Python read these texts, for live counts and exact ranks."""

import sqlite3

from querybuilder import SQLITE, lit, select
from storage.log.cells import RankedCells
from storage.records import Best, Board, ColumnSpec, Ties
from tests.storage.deployment import counter, ranked, spec

XP, BEST_LAP = ranked("xp", max_scaled=999, min_scaled=0), ranked("lap", best=Best.LOW, max_scaled=99_999, min_scaled=0)


def board_of(*columns: ColumnSpec, ties: Ties = Ties.SHARED) -> Board:
    return Board(key=1, id="b", spec=spec(*columns, ties=ties), created_at_us=0, epoch=1)


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


def test_the_sql_terms_cut_out_the_same_characters() -> None:
    connection = sqlite3.connect(":memory:")
    cells = RankedCells(spec(XP, BEST_LAP))
    place, texts = cells.find_span(1), ("005     ", "00700123")
    found = (
        select(*place.cells_before_and_after(lit("".join(texts))))
        .where(place.holds_column(lit("".join(texts))))
        .bind()
        .build(SQLITE)
    )
    assert connection.execute(found.sql, found.arguments).fetchall() == [("     ", "00123")]
    narrow = select(lit(1)).where(place.holds_column(lit("005007"))).bind().build(SQLITE)
    assert connection.execute(narrow.sql, narrow.arguments).fetchall() == []
