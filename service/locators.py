"""Which locator finds ranks on a board: an archived one is asked in another way than one that has rows.

The rule: whoever asks for ranks asks alike, whatever became of the board.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from predictor import RankCurve
from storage.boards import OpenBoards
from storage.curves import CurveBook
from storage.gap_counts import Footing
from storage.records import Board
from storage.store import Program, Store

from .position_answers import Position
from .positions import CountLimits, Footings, Located, Locator, Wanted
from .queries import RankMode


class ArchiveLocator(Locator):
    """Finds ranks on a board that was archived: its archive counts them all."""

    def curve(self, index: int) -> RankCurve | None:
        """None is needed."""
        return None

    def footing(self, column_index: int) -> Footing | None:
        """None is needed."""
        return None

    def read_off(self, column_index: int, cell: str, mode: RankMode, totals: dict[int, int]) -> Position | None:
        """The general way is the only one."""
        return None

    def counts_far(self, wanted: Sequence[Wanted], mode: RankMode, footings: Footings) -> bool:
        """Whatever is asked, few blocks are read."""
        return False

    def _counted(self, wanted: Wanted, mode: RankMode, footing: Footing | None) -> Program[Located]:
        found = yield from super()._counted(wanted, "exact", None)
        return found._replace(as_of_us=self.board.closed_us or found.as_of_us)


class Locators:
    """A `Locator` for each of the boards used last."""

    def __init__(
        self,
        store: Store,
        boards: OpenBoards,
        book: CurveBook,
        limits: CountLimits,
        *,
        now_us: Callable[[], int],
        open_boards_max: int,
    ) -> None:
        self._store, self._boards, self._book, self._limits = store, boards, book, limits
        self._now_us, self._open_boards_max = now_us, open_boards_max
        self._kept: OrderedDict[int, Locator] = OrderedDict()

    def of(self, board: Board) -> Locator:
        """The locator of a board as it is now."""
        found = self._kept.get(board.key)
        if found is not None and found.board is board:
            return found
        entries, _ = self._boards.open(board)
        kind = Locator if board.archived_us is None else ArchiveLocator
        found = kind(self._store.of(board.id), entries, self._book, self._limits, self._now_us)
        self._kept[board.key] = found
        self._kept.move_to_end(board.key)
        if len(self._kept) > self._open_boards_max:
            self._kept.popitem(last=False)
        return found
