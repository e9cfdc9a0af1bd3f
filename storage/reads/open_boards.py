"""The compiled statements and merge rules of the boards that this process uses.

Boards with the same table and spec share statements and rules. The number of open boards is bounded: the least recently
used board is dropped.
"""

from __future__ import annotations

from collections import OrderedDict

from storage.archive.archive_reader import ArchivedEntries
from storage.entries.entries import Entries, Pattern
from storage.log.merging import Merger
from storage.records import Board


class OpenBoards:
    def __init__(self, *, open_boards_max: int) -> None:
        self._open_boards_max = open_boards_max
        self._open: OrderedDict[int, tuple[Entries, Merger]] = OrderedDict()
        self._patterns: OrderedDict[tuple[int, int], Pattern] = OrderedDict()  # by table key and id of the spec object

    def open_board(self, board: Board) -> tuple[Entries, Merger]:
        """Return the statements and merge rules for this version of a board."""
        found = self._open.get(board.key)
        if found is None or found[0].board is not board:
            pattern = self._pattern(board)
            opened = Entries if board.archived_us is None else ArchivedEntries
            found = self._open[board.key] = (opened(board, pattern), pattern.merger)
            if len(self._open) > self._open_boards_max:
                self._open.popitem(last=False)
        self._open.move_to_end(board.key)
        return found

    def _pattern(self, board: Board) -> Pattern:
        if board.table_key is None:
            return Pattern(board)
        same = board.table_key, id(board.spec)
        found = self._patterns.get(same)
        if found is None or found.spec is not board.spec:
            found = self._patterns[same] = Pattern(board)
            if len(self._patterns) > self._open_boards_max:
                self._patterns.popitem(last=False)
        return found
