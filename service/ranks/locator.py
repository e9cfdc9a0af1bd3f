"""Find ranks on one board, each with its bracket and its method.

A rank comes from the curve or from a count. The mode of the request decides which:

    auto      counts near the top, in short gaps, where there is no curve, and in longer gaps if this process has room
    exact     always counts
    estimate  never counts where a curve exists

A count may start at the anchor knot, which is the nearest knot of the curve that is better than the value. Such a count
is as short for a bad rank as for a good one. It is possible only while the change log still holds every change since
the curve's mark. If a curve exists, a count in the mode `auto` reads a bounded number of rows. The more
ranks a request wants, the shorter the gaps in which it counts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from config.settings import ReadingSettings
from predictor import AnyCurve, SummedCurve
from service.contract.queries import RankMode
from service.contract.responses.boards import Stats
from service.contract.responses.positions import Position
from service.contract.values import format_us, to_wire_number
from storage.boards.totals import check_copy, read_totals
from storage.coalesce import Crowd
from storage.curves.stored_curves import CurveBook
from storage.entries.exact_ranks import SHORT_GAP_ROWS, CountStart, GapCount
from storage.entries.rankings import OpenBoard, Ranking
from storage.errors import StoreDamagedError
from storage.log.change_log import date_snapshot
from storage.reads.point_reads import NO_STARTS, EntryRead, PointReads
from storage.records import Board, ColumnKind
from storage.store import Program, Store, read_single

COUNT_SLACK = 2  # `auto` counts up to this many times `exact_top` rows before it falls back to the curve
DEFAULT_CHANGES_MAX = 100  # most changes since the curve that a count for `auto` in a longer gap adds up
COUNTED_METHODS = ("count", "gap")  # with these methods, the rank is exact in the snapshot that was read
CountStarts = Mapping[int, CountStart]  # by column index
RankMethod = Literal["count", "knot", "gap", "curve"]


class WantedRank(NamedTuple):
    """A cell whose rank is wanted. `owner` is the cell's owner, or None if a newcomer would get the cell."""

    column_index: int
    cell: str
    owner: str | None


class LocatedRank(msgspec.Struct, frozen=True, gc=False):
    rank: int
    low: int
    high: int
    method: RankMethod
    as_of_us: int
    curve: AnyCurve | None = None  # the curve that the rank was read off; None: the rank was counted

    @property
    def exact(self) -> bool:
        """Return whether the bracket contains no other rank."""
        return self.low == self.high


class _CellForm(NamedTuple):
    """The facts about a column that are needed to turn a stored cell into a value."""

    name: str
    offset: int | None  # the offset of a padded cell; None: the cell is the value itself
    width: int | None  # digits of the cell that come before its time; None: the cell holds no time
    scale: int


class Locator:
    def __init__(
        self,
        store: Store,
        reads: PointReads,
        entries: OpenBoard,
        book: CurveBook,
        limits: ReadingSettings,
        crowd: Crowd,
        now_us: Callable[[], int],
    ) -> None:
        board = self.board = entries.board
        self.entries = entries
        self._store, self._book, self._limits, self._crowd, self.now_us = store, book, limits, crowd, now_us
        self._reads, self._rankings = reads, entries.rankings
        # An archive counts every rank exactly, as of the time when the board was closed. So no curve is used.
        self._archived = board.archived_us is not None
        self._segmented = bool(board.segments)
        self._exact_top = board.spec.predictor.exact_top
        self.short_gap_rows = min(limits.exact_gap_rows_max, SHORT_GAP_ROWS)
        self._default_changes_max = min(limits.exact_changes_max, DEFAULT_CHANGES_MAX)
        self._cells = [self._cell_form(index) for index in range(len(board.spec.columns))]
        self._ranked_indexes = {board.spec.columns[index].name: index for index in board.sorted_indexes}

    def _cell_form(self, index: int) -> _CellForm:
        column = self.board.spec.columns[index]
        ranking = self._rankings.get(index)
        scale = 0 if column.kind is ColumnKind.TEXT else column.scale
        if ranking is None:
            return _CellForm(column.name, None, None, scale)
        padding = ranking.padding
        return _CellForm(column.name, padding.offset, padding.width if padding.timed else None, scale)

    def format_stats(self, cells: Sequence[str | int | None]) -> Stats:
        """Return the values of a row by column name, as the API shows them. This runs for each row of a page."""
        found: Stats = {}
        for (name, offset, width, scale), cell in zip(self._cells, cells, strict=False):
            value = cell
            if offset is not None and cell is not None:
                try:
                    value = int(cell if width is None else str(cell)[:width]) - offset
                except ValueError as error:
                    raise StoreDamagedError("a row of this leaderboard is damaged: restore a backup") from error
            found[name] = value if scale == 0 or not isinstance(value, int) else to_wire_number(value, scale)
        return found

    def find_ranked_indexes(self, names: tuple[str, ...]) -> list[int] | None:
        """Return the indexes of ranked columns; None if one of the names is unknown or not ranked."""
        if not self._ranked_indexes.keys() >= set(names):
            return None
        return [self._ranked_indexes[name] for name in names]

    def find_position(
        self, column_index: int, cell: str, mode: RankMode, starts: CountStarts, read: EntryRead
    ) -> Position | None:
        """Return the position of an owner's cell that `read` counted, or else the position that the curve gives it.

        Return None if the caller must use `find_positions`. `starts`: those that `read` got.
        """
        count = read.counts.get(column_index)
        if count is not None:
            return self._make_position(column_index, cell, self.locate_by_count(count), count.totals)
        padding = self._rankings[column_index].padding
        if padding.timed:
            return None
        if column_index in starts and column_index not in read.counts:
            mode = "estimate"  # the read found that the curve knows the rank exactly, or that the gap is too long
        gap_rows_max = self.short_gap_rows
        if self._segmented:  # the read of an owner's segment never counts, so this looks at the room for a count
            gap_rows_max = self.find_gap_rows_max(1)
        located = self._locate_by_curve(column_index, padding.key_of_cell(cell), False, mode, gap_rows_max)
        if located is None:
            return None
        totals = read.totals
        if self._segmented and located.curve is not None:
            # An estimate reads no other segment than the owner's, so the total is the curve's, too.
            totals = {column_index: located.curve.total}
        return self._make_position(column_index, cell, located, totals)

    def find_curve(self, index: int) -> AnyCurve | None:
        return None if self._archived else self._book.find_curve(self.board, index)

    def count_by_curves(self, indexes: Iterable[int]) -> dict[int, int]:
        """Return how many entries the curves of these columns count, without those that have no curve."""
        curves = {index: self.find_curve(index) for index in indexes}
        return {index: curve.total for index, curve in curves.items() if curve is not None}

    def is_exact_now(self, located: LocatedRank, index: int, totals: dict[int, int]) -> bool:
        """Return whether a rank is exact in the snapshot with these totals, in which it was counted if it was."""
        curve = located.curve
        return located.exact and (curve is None or self._book.is_current(self.board, index, curve, totals))

    def find_gap_rows_max(self, ranks: int) -> int:
        """Return how many entries a gap may hold that `auto` counts in, if a request wants this many ranks."""
        short = self.short_gap_rows
        return short if self._crowd.is_crowded() else max(short, self._limits.exact_gap_rows_max // max(1, ranks))

    def locate_without_count(self, wanted: WantedRank, mode: RankMode, gap_rows_max: int) -> LocatedRank | None:
        """Return the rank that the curve gives the cell; None if the rank must be counted.

        `gap_rows_max`: see `find_gap_rows_max`.
        """
        padding = self._rankings[wanted.column_index].padding
        key, tied_owner = padding.key_of_cell(wanted.cell), padding.timed and wanted.owner is not None
        return self._locate_by_curve(wanted.column_index, key, tied_owner, mode, gap_rows_max)

    def _locate_by_curve(
        self, index: int, key: int, tied_owner: bool, mode: RankMode, gap_rows_max: int
    ) -> LocatedRank | None:
        curve = None if mode == "exact" or self._archived else self._book.find_curve(self.board, index)
        if curve is None:
            return None
        rank, low, high, method = curve.locate(key)
        if tied_owner:
            # Owners who reached the same value in the same microsecond are ordered by the code points of their names.
            # The curve does not know this order, so the bracket covers the ranks of all these owners.
            ties = curve.ties_at(key)
            high = high + ties - 1 if ties else max(high, curve.locate(key + 1).high - 1)
            method = "knot" if low == high else "curve"
        wide = low != high
        if mode == "auto" and (low <= self._exact_top or (wide and self._is_short(curve, index, key, gap_rows_max))):
            return None
        return LocatedRank(rank, low, high, method, curve.as_of_us, curve)

    def _is_short(self, curve: AnyCurve, column_index: int, key: int, gap_rows_max: int) -> bool:
        """Return whether a count from the anchor knot is possible and reads at most `gap_rows_max` rows."""
        return curve.find_gap(key).rows <= gap_rows_max and self.find_count_start(column_index) is not None

    def find_count_start(self, column_index: int, changes_max: int | None = None) -> CountStart | None:
        """Return the curve and the mark from which a count in a column can start, or None.

        `changes_max`: the most changes that the count adds up; if None, `exact_changes_max`.
        Call this before the read begins: the mark must not be newer than the snapshot of the read.
        """
        if self._archived:
            return None
        changes_max = self._limits.exact_changes_max if changes_max is None else changes_max
        starts, asked_us = list[CountStart](), self.now_us()
        for part in self.board.parts:
            found = self._book.find_curve_and_mark(part, column_index)
            if found is None or found[1] is None:
                return None
            starts.append(CountStart(found[0], found[1], changes_max, asked_us))
        if not self.board.segments:
            return starts[0]
        curve = SummedCurve([start.curve for start in starts])  # type: ignore[misc]
        return CountStart(curve, 0, changes_max, asked_us, tuple(starts))

    def find_count_starts(self, indexes: Iterable[int]) -> CountStarts:
        """Return the start of a count for each of these columns that has one, by column index."""
        found = {index: self.find_count_start(index) for index in indexes}
        return {index: start for index, start in found.items() if start is not None}

    def find_default_starts(self, indexes: Iterable[int], mode: RankMode) -> CountStarts:
        """Return the start of a count for each column whose default ranks can be counted; none in other modes."""
        if mode != "auto":
            return NO_STARTS
        starts: dict[int, CountStart] = {}
        for index in indexes:
            start = self.find_count_start(index, self._default_changes_max)
            if start is not None and self._rankings[index].passed_mark != start.mark:
                starts[index] = start
        return starts

    def may_read_many_rows(self, wanted: WantedRank, mode: RankMode, starts: CountStarts) -> bool:
        """Return whether counting this rank may read more than `light_read_rows_max` rows."""
        if self._archived:  # a count in an archive reads only a few blocks
            return False
        start = starts.get(wanted.column_index)
        if start is None:
            return mode == "exact" or self.find_curve(wanted.column_index) is None
        key = self._rankings[wanted.column_index].padding.key_of_cell(wanted.cell)
        return start.curve.find_gap(key).rows > self._limits.light_read_rows_max

    def locate_rank(
        self, wanted: WantedRank, mode: RankMode, starts: CountStarts, asked_us: int
    ) -> Program[LocatedRank]:
        """Return the rank that the curve gives the cell. If it must be counted, count it."""
        located = self.locate_without_count(wanted, mode, self.find_gap_rows_max(1))
        if located is None:
            located = yield from self.count_rank(wanted, mode, starts, asked_us)
        return located

    def count_rank(
        self, wanted: WantedRank, mode: RankMode, starts: CountStarts, asked_us: int
    ) -> Program[LocatedRank]:
        """Count a rank. `starts` and `asked_us` were taken before the read began."""
        ranking, owner = self._rankings[wanted.column_index], self._owner_among_ties(wanted)
        start = starts.get(wanted.column_index)
        if start is not None:
            found = yield from ranking.count_from_anchor(start, wanted.cell, owner=owner)
            if found is not None:
                return self.locate_by_count(found)
        estimate = None if mode == "exact" else self.locate_without_count(wanted, "estimate", 0)
        rows_max = None if estimate is None else max(1, self._exact_top) * COUNT_SLACK
        found = yield from ranking.count_from_top(wanted.cell, rows_max, asked_us)
        if estimate is not None and rows_max is not None and found.better_count >= rows_max:
            return estimate
        before = (yield from ranking.count_tied(wanted.cell, owner))[1] if owner else 0
        return self.locate_by_count(found._replace(ties_before=before))

    def locate_by_count(self, found: GapCount) -> LocatedRank:
        """Return the rank that a count found, as of a time at which its snapshot was the current state.

        Segments have snapshots of their own. So their sum is as of the time before the first snapshot, and its bracket
        covers what was posted since then.
        """
        rank = 1 + found.better_count + found.ties_before
        low, high, as_of_us = rank, rank, found.asked_us
        if found.is_sum:
            low, high = max(1, low - found.late), high + found.late
        elif found.changed_us > as_of_us:
            as_of_us = date_snapshot(found.changed_us, as_of_us, self.now_us)
        return LocatedRank(rank, low, high, "gap" if found.from_anchor else "count", as_of_us)

    def _owner_among_ties(self, wanted: WantedRank) -> str:
        """Return the owner if a count must find the owner's place among equal cells, else an empty text.

        If equal values share a rank, counting the equal cells is not necessary and may take long.
        """
        return wanted.owner or "" if self._rankings[wanted.column_index].timed else ""

    async def find_positions(
        self, wanted: Sequence[WantedRank], mode: RankMode, totals: dict[int, int] | None = None
    ) -> list[Position]:
        """Return the positions in the order of `wanted`.

        A caller that has already read the board's totals passes them as `totals`. If this function counts a rank, all
        positions show the totals from the snapshot of the count instead.
        """
        self._crowd.enter(1)
        try:
            gap_rows_max = self.find_gap_rows_max(len(wanted))
            located = [self.locate_without_count(each, mode, gap_rows_max) for each in wanted]
            missing = [each for each, at in zip(wanted, located, strict=True) if at is None]
            counted: list[LocatedRank] = []
            if totals is None and self.board.segments and not missing:
                totals = self.count_by_curves({each.column_index for each in wanted})  # no segment has to be read
            if missing or totals is None:
                counted, totals = await self._count_ranks(missing, mode)
        finally:
            self._crowd.leave(1)
        rest = iter(counted)
        return [self.make_position(each, at or next(rest), totals) for each, at in zip(wanted, located, strict=True)]

    async def _count_ranks(
        self, wanted: Sequence[WantedRank], mode: RankMode
    ) -> tuple[list[LocatedRank], dict[int, int]]:
        """Return the ranks in the order of `wanted`, and the board's totals from the same snapshot."""
        asked_us, starts = self.now_us(), self.find_count_starts({each.column_index for each in wanted})
        far = any(self.may_read_many_rows(each, mode, starts) for each in wanted)
        if len(wanted) == 1 and starts and not far:
            # One statement counts the rank and reads the totals.
            (each,) = wanted
            alone = await self._count_alone(each, starts[each.column_index])
            if alone is not None:
                return [self.locate_by_count(alone)], alone.totals
            # The change log can't confirm that the start is usable, so count from the top. In segments, the start may
            # be usable for a count that is made without those of other requests.
            starts, far = starts if self._segmented else {}, mode == "exact"

        def count_all() -> Program[tuple[list[LocatedRank], dict[int, int]]]:
            counted = []
            for each in wanted:
                counted.append((yield from self.count_rank(each, mode, starts, asked_us)))
            return counted, (yield from read_board_totals(self.board))

        return await self._store.read(count_all, heavy=far)

    async def _count_alone(self, wanted: WantedRank, start: CountStart) -> GapCount | None:
        index, owner = wanted.column_index, self._owner_among_ties(wanted)
        if self._segmented:
            return await self._reads.count_in_segments(self.board, index, (wanted.cell, owner), start)
        count = self._rankings[index].count_from_anchor
        found = await read_single(self._store, lambda: count(start, wanted.cell, owner=owner))
        if found is not None:
            check_copy(self.board, found.totals)
        return found

    def make_position(self, wanted: WantedRank, located: LocatedRank, totals: Mapping[int, int]) -> Position:
        return self._make_position(wanted.column_index, wanted.cell, located, totals)

    def _make_position(self, index: int, cell: str, located: LocatedRank, totals: Mapping[int, int]) -> Position:
        name, offset, width, scale = self._cells[index]
        value = int(cell if width is None else cell[:width]) - (offset or 0)
        total, rank, low, high = totals.get(index, 0), located.rank, located.low, located.high
        return Position(
            column=name,
            value=value if scale == 0 else to_wire_number(value, scale),
            rank=rank,
            low=low,
            high=high,
            exact=low == high,
            method=located.method,
            total=total,
            percentile=percentile(rank, total),
            as_of=_as_of(located.as_of_us),
        )


def count_rows_before(ranking: Ranking, cell: str, owner: str, start: CountStart | None) -> Program[int]:
    """Count the rows before a cell: from the anchor knot of `start` if the change log allows it, else from the top.

    The rows with the same cell that stand before `owner` count, too, unless `owner` is empty.
    """
    if start is not None:
        found = yield from ranking.count_from_anchor(start, cell, owner=owner)
        if found is not None:
            return found.better_count + found.ties_before
    better_count = yield from ranking.count_better(cell)
    if owner:
        better_count += (yield from ranking.count_tied(cell, owner))[1]
    return better_count


_as_of = lru_cache(maxsize=1024)(format_us)  # all ranks from one curve show the same time


def percentile(rank: int, total: int) -> float:
    """Return 100 * (total - rank) / (total - 1), limited to 0 … 100, with three decimals; 100 if total <= 1."""
    if rank <= 1 or total <= 1:
        return 100.0
    return round(100 * (total - rank) / (total - 1), 3) if rank < total else 0.0


def read_board_totals(board: Board) -> Program[dict[int, int]]:
    """Return how many entries of a board are ranked, by column index; `find_totals` explains the other keys.

    Raises:
        UnknownBoardError: the board was deleted.
        BoardChangedError: the board has changed since this process read it.
    """
    return (yield from read_totals([board]))[board.key]
