"""Rows of the journal as moves in one ranked column, and whom of those who are followed they concern.

The rule: a row concerns an owner where it is the own one, or may be, or goes past the owner's cell. To find that out
costs two searches however many rows there are, so that a thousand owners of a busy board can be followed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from storage.journal import JournalRow
from storage.posted import NO_CHANGE
from storage.ranked_cells import RankedCells
from storage.records import Board

_ABSENT = {True: "", False: "~"}  # worse than every cell, by whether high is best


@dataclass(frozen=True, slots=True)
class Move:
    """A row of the journal as a move in one column; None: not ranked."""

    row: JournalRow
    before: str | None
    after: str | None

    def may_be_of(self, cell: str | None) -> bool:
        """Whether nobody's name stands in it and it is that of whoever has the cell, or of everybody."""
        return self.row.owner is None and (self.before == cell or not self.row.next)


class Column:
    """Reads moves in one column of a board."""

    def __init__(self, board: Board, index: int, *, high: bool) -> None:
        self._cells, self._index, self.high = RankedCells(board), index, high

    def moves(self, rows: Iterable[JournalRow]) -> Moves:
        """All that changed something, those included that leave the column as it was."""
        found = []
        for row in rows:
            if row.posted is not None and row.posted.happened in NO_CHANGE:
                continue
            before, after = (self._cells.cell(text, self._index) for text in (row.previous, row.next))
            found.append(Move(row, before, after))
        return Moves(found, high=self.high)

    def better(self, cell: str | None, than: str | None) -> bool:
        """Whether a cell is strictly better than another one."""
        if cell is None or than is None:
            return cell is not None
        return cell > than if self.high else cell < than


class Moves:
    """Moves in their order."""

    def __init__(self, moves: list[Move], *, high: bool) -> None:
        self.all = moves
        absent = _ABSENT[high]
        self._search = bisect_right if high else bisect_left
        self._owners = {move.row.owner for move in moves}
        self._nameless = {move.before for move in moves if move.row.owner is None}
        self._of_all = any(move.row.owner is None and not move.row.next for move in moves)
        spans = [(move.before or absent, move.after or absent) for move in moves if move.before != move.after]
        self._from, self._to = sorted(map(min, spans)), sorted(map(max, spans))

    def concern(self, owner: str, cell: str | None) -> bool:
        """Whether one of them is of the owner, may be, or goes past the cell."""
        if owner in self._owners or cell in self._nameless or self._of_all:
            return True
        return cell is not None and self._search(self._from, cell) != self._search(self._to, cell)
