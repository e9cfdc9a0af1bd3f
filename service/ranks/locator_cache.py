"""The locator of each board: a `Locator` for boards with rows, an `ArchiveLocator` for archived boards."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from config.settings import ReadingSettings
from predictor import RankCurve
from service.contract.queries import RankMode
from service.contract.responses.positions import Position
from storage.curves.stored_curves import CurveBook
from storage.entries.exact_ranks import CountStart
from storage.reads.open_boards import OpenBoards
from storage.records import Board
from storage.store import Program, Store

from .locator import CountStarts, LocatedRank, Locator, WantedRank


class ArchiveLocator(Locator):
    """Finds ranks on an archived board. The archive counts every rank exactly, so no curve is used."""

    def find_curve(self, index: int) -> RankCurve | None:
        return None

    def find_count_start(self, column_index: int) -> CountStart | None:
        return None

    def find_position_by_curve(
        self, column_index: int, cell: str, mode: RankMode, totals: dict[int, int]
    ) -> Position | None:
        return None

    def may_read_many_rows(self, wanted: Sequence[WantedRank], mode: RankMode, starts: CountStarts) -> bool:
        """Return False: a count in an archive reads only a few blocks."""
        return False

    def _count_rank(self, wanted: WantedRank, mode: RankMode, start: CountStart | None) -> Program[LocatedRank]:
        found = yield from super()._count_rank(wanted, "exact", None)
        return found._replace(as_of_us=self.board.closed_us or found.as_of_us)


class LocatorCache:
    """Keeps a `Locator` for each of the most recently used boards."""

    def __init__(
        self,
        store: Store,
        boards: OpenBoards,
        book: CurveBook,
        limits: ReadingSettings,
        *,
        now_us: Callable[[], int],
        open_boards_max: int,
    ) -> None:
        self._store, self._boards, self._book, self._limits = store, boards, book, limits
        self._now_us, self._open_boards_max = now_us, open_boards_max
        self._kept: OrderedDict[int, Locator] = OrderedDict()

    def find_locator(self, board: Board) -> Locator:
        """Return the locator for this state of the board. Make a locator if the cached one is for an earlier state."""
        found = self._kept.get(board.key)
        if found is not None and found.board is board:
            return found
        entries, _ = self._boards.open_board(board)
        kind = Locator if board.archived_us is None else ArchiveLocator
        found = kind(self._store.for_board(board.id), entries, self._book, self._limits, self._now_us)
        self._kept[board.key] = found
        self._kept.move_to_end(board.key)
        if len(self._kept) > self._open_boards_max:
            self._kept.popitem(last=False)
        return found
