"""The ranked cells of a row as one text, each at its fixed place, so that SQL can compare one with a knot.

The rule: an absent cell is worse than every cell, and a column that was added later is absent in both texts of an older
change, so that it cancels out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from querybuilder import Aliased, Condition, Term, col, length, plus, whole_part
from querybuilder import part as part_of

from .merging import Cell
from .padding import TIME_DIGITS, Padding
from .records import Board

_WORSE_THAN_ANY = {True: " ", False: "~"}  # before and after every digit, by whether high is best


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column's cell stands."""

    start: int  # the first character's is 0
    width: int
    absent: str
    high: bool

    def moved(self, piece: Term) -> tuple[Aliased, Aliased]:
        """The cell before and after, as terms `previous` and `next`, of a logged change that is `wide` enough."""
        before = part_of(piece, self.start + 1, self.width)
        after = part_of(piece, plus(whole_part(length(piece), 2), self.start + 1), self.width)
        return before.as_("previous"), after.as_("next")

    def wide(self, piece: Term) -> Condition:
        """Whether a logged change says something of the column, which may have been added later."""
        return length(piece).gt(2 * self.start)

    def at_least(self, name: str, cell: Term | str) -> Condition:
        """Whether `previous` or `next` is better than this cell, or the same."""
        return col(name).ge(cell) if self.high else col(name).le(cell)

    def better(self, name: str, cell: Term | str) -> Condition:
        """`at_least` without the same."""
        return col(name).gt(cell) if self.high else col(name).lt(cell)


class RankedCells:
    """The places of one board's ranked columns."""

    def __init__(self, board: Board) -> None:
        self._places: dict[int, Place] = {}
        start = 0
        for index in board.sorted_indexes:
            padding = Padding.of(board.spec, board.spec.columns[index])
            width = padding.width + (TIME_DIGITS if padding.timed else 0)
            self._places[index] = Place(start, width, _WORSE_THAN_ANY[padding.high] * width, padding.high)
            start += width
        self._absent = [(index, place.absent) for index, place in self._places.items()]
        self.others = [index for index in range(len(board.spec.columns)) if index not in self._places]
        self.indexes = list(self._places)
        self._only = self._absent[0] if len(self._absent) == 1 else None
        self.none = "".join(absent for _, absent in self._absent)  # of no row at all

    def place(self, column_index: int) -> Place:
        """Where a column's cells stand in either text; texts of before the column was added end earlier."""
        return self._places[column_index]

    def text(self, cells: Sequence[Cell]) -> str:
        """The ranked ones of a row's cells, side by side."""
        if self._only is not None:  # most boards have one
            return cells[self._only[0]] or self._only[1]  # type: ignore[return-value]
        return "".join([cells[index] or absent for index, absent in self._absent])  # type: ignore[misc]

    def cell(self, text: str, column_index: int) -> str | None:
        """The cell of a column, None where the row has none or had no such column yet."""
        place = self._places[column_index]
        found = text[place.start : place.start + place.width]
        return None if not found or found == place.absent else found
