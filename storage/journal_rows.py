"""A row of the journal as what it left in its board: the cells afterwards.

The rule: columns that were added later are absent in what was written before.
"""

from __future__ import annotations

from .journal import JournalRow
from .merging import Cell
from .posted import Happened, Posted
from .ranked_cells import RankedCells
from .records import Board

# Of these the row holds every cell, since the ranked ones don't stand in `next`.
_WHOLE = (Happened.UNSEEN, Happened.HIDDEN)


class RowReader:
    """Reads the rows of one board."""

    def __init__(self, board: Board) -> None:
        self._ranked = RankedCells(board)
        self._columns = len(board.spec.columns)

    def cells_after(self, row: JournalRow, posted: Posted) -> list[Cell]:
        """The entry's cells after what the row tells of; not for those that change none."""
        if posted.happened in _WHOLE:
            return [*posted.cells, *[None] * (self._columns - len(posted.cells))]
        cells: list[Cell] = [None] * self._columns
        for index, cell in zip(self._ranked.others, posted.cells, strict=False):
            cells[index] = cell
        for index in self._ranked.indexes:
            cells[index] = self._ranked.cell(row.next, index)
        return cells
