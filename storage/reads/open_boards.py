"""Keeps the compiled statements and merge rules of the boards that this process uses.

Compiling them again for each request would cost more than most requests do. The number of boards is bounded, and the
least recently used board is dropped first.
"""

from collections import OrderedDict
from typing import TypeVar

from storage.archive.archive_reader import ArchivedEntries
from storage.leaves.entries import Entries
from storage.leaves.rankings import OpenLeaf
from storage.records import Board, Leaf
from storage.segments.segmented_entries import SegmentedEntries

T = TypeVar("T")


class OpenBoards:
    def __init__(self, *, open_boards_max: int) -> None:
        self._open_boards_max = open_boards_max
        self._open: OrderedDict[int, OpenLeaf] = OrderedDict()
        self._spread: OrderedDict[int, SegmentedEntries] = OrderedDict()

    def open_board(self, board: Board) -> OpenLeaf | SegmentedEntries:
        return self.open_segments(board) if board.is_spread else self.open_leaf(board.leaf)

    def open_segments(self, board: Board) -> SegmentedEntries:
        found = self._spread.get(board.key)
        # A job reads its boards from the store, so the same version of a board may be another, equal object.
        if found is None or (found.board is not board and found.board != board):
            found = SegmentedEntries(board, [self.open_rows(leaf) for leaf in board.leaves])
            self._keep(self._spread, board.key, found)
        else:
            self._spread.move_to_end(board.key)
        return found

    def open_leaf(self, leaf: Leaf) -> OpenLeaf:
        found = self._open.get(leaf.key)
        if found is None or (found.leaf is not leaf and found.leaf != leaf):
            found = Entries(leaf) if leaf.archived_us is None else ArchivedEntries(leaf)
            self._keep(self._open, leaf.key, found)
        else:
            self._open.move_to_end(leaf.key)
        return found

    def open_rows(self, leaf: Leaf) -> Entries:
        """Open a leaf for posts and jobs, which read and write its rows."""
        found = self.open_leaf(leaf)
        return found if isinstance(found, Entries) else Entries(leaf)

    def _keep(self, kept: OrderedDict[int, T], key: int, found: T) -> None:
        kept[key] = found
        kept.move_to_end(key)
        if len(kept) > self._open_boards_max:
            kept.popitem(last=False)
