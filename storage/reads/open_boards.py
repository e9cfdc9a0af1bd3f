"""The compiled statements and merge rules of the boards that this process uses.

The number of open boards is bounded: the least recently used board is dropped.
"""

from collections import OrderedDict

from storage.archive.archive_reader import ArchivedEntries
from storage.entries.entries import Entries
from storage.entries.rankings import OpenBoard
from storage.records import Board
from storage.segments.segmented_entries import SegmentedEntries


class OpenBoards:
    def __init__(self, *, open_boards_max: int) -> None:
        self._open_boards_max = open_boards_max
        self._open: OrderedDict[int, OpenBoard] = OrderedDict()

    def open_board(self, board: Board) -> OpenBoard:
        """Return the programs that read this version of a board."""
        found = self._open.get(board.key)
        # A job reads its boards from the store, so an equal board may be another object.
        if found is None or (found.board is not board and found.board != board):
            found = self._open[board.key] = self._open_anew(board)
            if len(self._open) > self._open_boards_max:
                self._open.popitem(last=False)
        self._open.move_to_end(board.key)
        return found

    def open_rows(self, board: Board) -> Entries:
        """Return the statements and merge rules of a board or segment for posts and jobs, which use its rows."""
        found = self.open_board(board)
        return found if isinstance(found, Entries) else Entries(board)

    def _open_anew(self, board: Board) -> OpenBoard:
        if board.segments:
            return SegmentedEntries(board, [self.open_rows(segment) for segment in board.segments])
        return Entries(board) if board.archived_us is None else ArchivedEntries(board)
