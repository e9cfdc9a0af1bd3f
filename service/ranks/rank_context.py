"""The `RankContext` with which a process finds ranks: it has a locator for each board, and shares reads of first pages.

It keeps locators for the boards that were opened last, and makes a new one when a board has changed.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from config.settings import ReadingSettings
from service.contract.cursors import CursorCodec
from service.contract.responses.positions import Position
from storage.coalesce import Crowd, StoreCoalescers
from storage.curves.curve_book import CurveBook
from storage.leaves.count_policy import RankMode
from storage.leaves.totals import read_totals_of
from storage.reads.open_boards import OpenBoards
from storage.reads.point_reads import PointReads
from storage.records import Board
from storage.store import Program, Store

from .locator import LocatedRank, Locator, WantedRank
from .pages import FirstPage, Pager

_Totals = Mapping[int, dict[int, int]]  # each board's totals, by board key


class AskedRank(NamedTuple):
    locator: Locator
    wanted: WantedRank


class RankContext:
    """Finds positions on any boards. It keeps a `Locator` for each of the boards that were opened last."""

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
        self.first_pages: StoreCoalescers[tuple[Board, int, int], FirstPage] = StoreCoalescers(
            self._read_first_pages,
            batch_max=limits.point_reads_per_batch_max,
            waiting_max=limits.reads_waiting_max,
            tasks_max=limits.point_read_tasks_max,
        )

    def find_locator(self, board: Board) -> Locator:
        """Return a board's locator. If the kept locator is for an earlier state of the board, make a new one."""
        found = self._locators.get(board.key)
        if found is not None and found.board is board:
            return found
        entries = self._boards.open_board(board)
        store = self._store.at(board.reading_partition)
        found = Locator(store, self._reads, board, entries, self._book, self._limits, self.crowd, self._now_us)
        self._locators[board.key] = found
        self._locators.move_to_end(board.key)
        if len(self._locators) > self._limits.open_boards_max:
            self._locators.popitem(last=False)
        return found

    def make_pager(self, board: Board, index: int) -> Pager:
        return Pager(self.find_locator(board), self._cursors, index)

    async def _read_first_pages(self, asked: Sequence[tuple[Board, int, int]]) -> list[FirstPage]:
        """Read a ranking's first page once for all callers who asked for the same board, column and limit."""
        board, index, limit = asked[0]
        pager = self.make_pager(board, index)
        window = await pager.read_first(limit)
        return [(pager.tag_page(window), len(window.rows))] * len(asked)

    async def find_positions(self, asked: Sequence[AskedRank], mode: RankMode, totals: _Totals) -> list[Position]:
        """Find positions, in the order of `asked`. All ranks that are counted in one store share a snapshot.

        `totals` has the totals that the caller has read, by board key. If a rank is counted on a board, its position
        has the totals from the snapshot of the count instead.

        Raises:
            UnknownBoardError, BoardChangedError: a board was deleted or has changed since this process read it.
        """
        self.crowd.enter(1)
        try:
            ranks = len(asked)
            found = [locator.locate_without_count(wanted, mode, ranks=ranks) for locator, wanted in asked]
            by_store: defaultdict[Store, list[int]] = defaultdict(list)
            for number, (locator, _) in enumerate(asked):
                if found[number] is None or locator.needs_totals(totals):
                    by_store[locator.store].append(number)
            for store, numbers in by_store.items():
                missing = [number for number in numbers if found[number] is None]
                boards = [asked[number].locator.board for number in numbers]
                counted, read = await self._count_ranks(store, [asked[each] for each in missing], boards, mode, totals)
                totals = {**totals, **read}
                for number, located in zip(missing, counted, strict=True):
                    found[number] = located
        finally:
            self.crowd.leave(1)
        return [
            locator.make_position(wanted, located, totals.get(locator.board.key, {}))
            for (locator, wanted), located in zip(asked, found, strict=True)
            if located is not None
        ]

    async def _count_ranks(
        self, store: Store, asked: Sequence[AskedRank], boards: Sequence[Board], mode: RankMode, known: _Totals
    ) -> tuple[list[LocatedRank], _Totals]:
        begins = [locator.begin_count(wanted.column_index, mode) for locator, wanted in asked]
        far = any(
            locator.may_read_many_rows(wanted, mode, begin.start, known.get(locator.board.key))
            for (locator, wanted), begin in zip(asked, begins, strict=True)
        )
        if len(asked) == len(boards) == 1 and begins[0].start is not None and not far:
            [(locator, wanted)] = asked
            alone = await locator.count_alone(wanted, begins[0].start)
            if alone is not None:
                return [locator.locate_by_count(alone)], {boards[0].key: alone.totals}
            # The log has too many changes since the start, or lacks some, so count from the top. With segments, keep
            # the start: `count_alone` may have used another request's older start, and this one may still be usable.
            begins, far = begins if boards[0].is_spread else [begins[0]._replace(start=None)], mode == "exact"

        def count_all() -> Program[tuple[list[LocatedRank], _Totals]]:
            # This may have waited for a connection. The later a count is asked for, the fewer changes come after it.
            counted, asked_us = [], self._now_us()
            for (locator, wanted), begin in zip(asked, begins, strict=True):
                counted.append((yield from locator.count_rank(wanted, mode, begin._replace(asked_us=asked_us))))
            return counted, (yield from read_totals_of(boards))

        return await store.read(count_all, heavy=far)
