"""The parts with which a process finds ranks: a locator for each board, pages, and the shared reads of first pages."""

from collections import OrderedDict
from collections.abc import Callable

from config.settings import ReadingSettings
from service.contract.cursors import CursorCodec
from storage.coalesce import Crowd, StoreCoalescers
from storage.curves.stored_curves import CurveBook
from storage.reads.open_boards import OpenBoards
from storage.reads.point_reads import PointReads
from storage.records import Board
from storage.store import Store

from .locator import Locator
from .pages import FirstPage, Pager, read_first_pages


class RankContext:
    """Keeps a `Locator` for each of the most recently used boards."""

    def __init__(
        self,
        store: Store,
        boards: OpenBoards,
        reads: PointReads,
        book: CurveBook,
        limits: ReadingSettings,
        cursors: CursorCodec,
        *,
        crowd: Crowd,
        now_us: Callable[[], int],
    ) -> None:
        self._store, self._boards, self._reads, self._book, self._limits = store, boards, reads, book, limits
        self._cursors, self.crowd, self._now_us = cursors, crowd, now_us
        self._locators: OrderedDict[int, Locator] = OrderedDict()
        self.first_pages: StoreCoalescers[tuple[Pager, int], FirstPage] = StoreCoalescers(
            read_first_pages,
            batch_max=limits.point_reads_per_batch_max,
            waiting_max=limits.reads_waiting_max,
            tasks_max=limits.point_read_tasks_max,
        )

    def find_locator(self, board: Board) -> Locator:
        """Return the locator for this state of the board. Make a locator if the cached one is for an earlier state."""
        found = self._locators.get(board.key)
        if found is not None and found.board is board:
            return found
        entries = self._boards.open_board(board)
        found = Locator(
            self._store.at(board.partition), self._reads, entries, self._book, self._limits, self.crowd, self._now_us
        )
        self._locators[board.key] = found
        self._locators.move_to_end(board.key)
        if len(self._locators) > self._limits.open_boards_max:
            self._locators.popitem(last=False)
        return found

    def make_pager(self, board: Board, index: int) -> Pager:
        return Pager(self._store.at(board.partition), self.find_locator(board), self._cursors, index)
