"""Finds how journal rows change a ranked column, and tests whether such a change, called a move, concerns an owner.

A cell is the stored text of a value. A row concerns an owner in three cases: it names the owner; it names no owner,
because it erases one or empties the board, so it may be about this owner; or it moves another entry past the owner's
cell. The test takes only two binary searches for an owner, so clients can follow many owners of a busy board.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from storage.log.bundles import NO_CHANGE
from storage.log.cells import WORSE_THAN_ANY, RankedCells
from storage.log.partition_journal import JournalRow
from storage.records import Board


@dataclass(frozen=True, slots=True)
class RankMove:
    """A journal row's change of an entry's cell. A cell is None if the column did not rank the entry."""

    row: JournalRow
    before: str | None
    after: str | None

    def may_concern_cell(self, cell: str | None) -> bool:
        """Return whether the row empties the board, or erases, without a name, an owner who had this cell."""
        return self.row.owner is None and (self.before == cell or not self.row.next)


class MoveReader:
    def __init__(self, board: Board, index: int, *, high: bool) -> None:
        self._cells, self._index, self.high = RankedCells(board.spec), index, high

    def read_moves(self, rows: Iterable[JournalRow]) -> Moves:
        """Return a move for each row that changed an entry, even if the row left this column unchanged."""
        found = []
        for row in rows:
            if row.record is not None and row.record.kind in NO_CHANGE:
                continue
            before, after = (self._cells.extract_cell(text, self._index) for text in (row.previous, row.next))
            found.append(RankMove(row, before, after))
        return Moves(found, high=self.high)

    def is_better(self, cell: str | None, than: str | None) -> bool:
        """Return whether a cell is strictly better than another; None is worse than every cell."""
        if cell is None or than is None:
            return cell is not None
        return cell > than if self.high else cell < than


class Moves:
    """The moves of several rows, in order, with a fast test whether any of them concerns an owner."""

    def __init__(self, moves: list[RankMove], *, high: bool) -> None:
        self.all = moves
        absent = WORSE_THAN_ANY[high]
        self._search = bisect_right if high else bisect_left
        self._owners = {move.row.owner for move in moves}
        self._nameless = {move.before for move in moves if move.row.owner is None}
        self._of_all = any(move.row.owner is None and not move.row.next for move in moves)
        spans = [(move.before or absent, move.after or absent) for move in moves if move.before != move.after]
        self._from, self._to = sorted(map(min, spans)), sorted(map(max, spans))

    @cached_property
    def change_total(self) -> bool:
        return any((move.before is None) != (move.after is None) for move in self.all)

    def concern_owner(self, owner: str, cell: str | None) -> bool:
        """Return whether a move may have changed the owner's entry, or takes another entry past the owner's cell."""
        if owner in self._owners or cell in self._nameless or self._of_all:
            return True
        return cell is not None and self._search(self._from, cell) != self._search(self._to, cell)
