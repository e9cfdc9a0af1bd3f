"""Test that a row of the journal is sent to the streams of exactly those owners whose ranks the change can move."""

import random

import pytest

from service.streams.rank_moves import MoveReader
from storage.log.cells import RankedCells
from storage.log.partition_journal import JournalRow
from storage.records import Best, Board, Leaf, Place
from tests.storage.deployment import ranked, spec

CELLS = [None, "1", "2", "3", "4", "5"]


def board_of(best: Best) -> Board:
    one = spec(ranked("xp", best=best, max_scaled=9, min_scaled=0))
    return Board(1, "b", one, 0, (Leaf(1, "b", one, Place(0)),))


def row(board: Board, owner: str | None, before: str | None, after: str | None) -> JournalRow:
    text = RankedCells(board.spec).join_cells
    return JournalRow(1, board.key, owner, 0, text([before]), text([after]), None, 0)


@pytest.mark.parametrize("best", list(Best))
def test_a_move_concerns_every_owner_that_it_passes_or_reaches(best: Best) -> None:
    board, rng = board_of(best), random.Random(1)
    column = MoveReader(board, 0, high=best is Best.HIGH)
    for _ in range(500):
        rows = [row(board, f"o{n}", rng.choice(CELLS), rng.choice(CELLS)) for n in range(rng.randrange(5))]
        moves, cell = column.read_moves(rows), rng.choice(CELLS)
        passed = cell is not None and any(
            column.is_better(move.before, cell) != column.is_better(move.after, cell) for move in moves.all
        )
        assert moves.concern_owner("someone", cell) == passed, (rows, cell)


def test_a_row_concerns_its_owner_and_an_erased_row_every_owner_it_may_have_passed() -> None:
    board = board_of(Best.HIGH)
    column = MoveReader(board, 0, high=True)
    assert column.read_moves([row(board, "ada", "1", "1")]).concern_owner("ada", "3")
    assert not column.read_moves([row(board, "ada", "1", "1")]).concern_owner("bob", "3")
    erased = column.read_moves([row(board, None, "2", None)])
    assert [erased.concern_owner("bob", cell) for cell in (None, "1", "2", "3")] == [False, True, True, False]
    emptied = column.read_moves([JournalRow(1, board.key, None, 0, "", "", None, 0)])
    assert emptied.concern_owner("bob", "3")
    assert not column.read_moves([row(board, "ada", None, "5")]).concern_owner("bob", None)
