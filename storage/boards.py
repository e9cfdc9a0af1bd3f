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
