"""Boards as this process works with them: compiled statements and merge rules.

The rule: they are made once for all boards of one table and one spec, and kept within a bound.
"""

from __future__ import annotations

from collections import OrderedDict

from querybuilder import Dialect

from .archives import ArchivedEntries
from .entries import Entries, Pattern
from .merging import Merger
from .records import Board


class OpenBoards:
    """The most recently used boards with their statements."""

    def __init__(self, dialect: Dialect, *, open_boards_max: int) -> None:
        self._dialect = dialect
        self._open_boards_max = open_boards_max
        self._open: OrderedDict[int, tuple[Entries, Merger]] = OrderedDict()
        self._patterns: OrderedDict[tuple[int, int], Pattern] = OrderedDict()  # by table and spec object

    def open(self, board: Board) -> tuple[Entries, Merger]:
        """The statements and merge rules of a board as it is now."""
        found = self._open.get(board.key)
        if found is None or found[0].board is not board:
            pattern = self._pattern(board)
            opened = Entries if board.archived_us is None else ArchivedEntries
            found = self._open[board.key] = (opened(self._dialect, board, pattern), pattern.merger)
            if len(self._open) > self._open_boards_max:
                self._open.popitem(last=False)
        self._open.move_to_end(board.key)
        return found

    def _pattern(self, board: Board) -> Pattern:
        if board.table_key is None:
            return Pattern(self._dialect, board)
        same = board.table_key, id(board.spec)
        found = self._patterns.get(same)
        if found is None or found.spec is not board.spec:
            found = self._patterns[same] = Pattern(self._dialect, board)
            if len(self._patterns) > self._open_boards_max:
                self._patterns.popitem(last=False)
        return found
