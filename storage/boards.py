"""Boards as this process works with them: compiled statements and merge rules.

The rule: they are made once a board and kept within a bound.
"""

from __future__ import annotations

from collections import OrderedDict

from querybuilder import Dialect

from .entries import Entries
from .merging import Merger
from .records import Board


class OpenBoards:
    """The most recently used boards with their statements."""

    def __init__(self, dialect: Dialect, *, open_boards_max: int) -> None:
        self._dialect = dialect
        self._open_boards_max = open_boards_max
        self._open: OrderedDict[int, tuple[Entries, Merger]] = OrderedDict()

    def open(self, board: Board) -> tuple[Entries, Merger]:
        """The statements and merge rules of a board as it is now."""
        found = self._open.get(board.key)
        if found is None or found[0].board is not board:
            found = self._open[board.key] = (Entries(self._dialect, board), Merger(board))
            if len(self._open) > self._open_boards_max:
                self._open.popitem(last=False)
        self._open.move_to_end(board.key)
        return found


class ChangeCounts:
    """Rows that this process has written or erased, by board: what has not changed need not be refreshed."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}

    def add(self, board_key: int, rows: int) -> None:
        """Rows of a board were written."""
        if rows:
            self._rows[board_key] = self._rows.get(board_key, 0) + rows

    def of(self, board_key: int) -> int:
        """Rows of a board written since the process began."""
        return self._rows.get(board_key, 0)

    def __len__(self) -> int:
        return len(self._rows)

    def forget(self, board_key: int) -> None:
        """The board is gone for good: keys are never given again."""
        self._rows.pop(board_key, None)
