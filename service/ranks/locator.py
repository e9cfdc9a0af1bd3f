"""Finds ranks on one board, by counting or from the curve, each with its bracket, method and percentile.

`storage.leaves.count_policy` decides between the two, by the mode of the request and by what the curve says.

Counting from the top would make bad ranks slow. So a count may start at the nearer knot of the gap around the value
(the anchor knot), whose rank the curve knows exactly. The curve includes all changes before its mark, a position in the
change log, so a count can start at a knot only if the log still holds every change from the mark on. If a curve exists,
a count in the mode `auto` reads a bounded number of rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from config.settings import ReadingSettings
from predictor import AnyCurve
from service.contract.responses.boards import Stats
from service.contract.responses.positions import Position, PositionMethod
from service.contract.values import format_us, to_wire_number
from storage.coalesce import Crowd
from storage.curves.curve_book import CurveBook
from storage.errors import StoreDamagedError
from storage.leaves.count_policy import CountPolicy, RankMode, limit_gap_rows
from storage.leaves.exact_ranks import CountStart, GapCount
from storage.leaves.rankings import OpenBoard
from storage.log.cells import Padding
from storage.log.change_log import date_snapshot
from storage.reads.point_reads import NO_STARTS, EntryRead, PointReads
from storage.records import Board, ColumnKind
from storage.store import Program, Store, read_single

from .tiers import Tiers

COUNTED_METHODS = ("count", "gap")  # methods whose rank is exact in the snapshot that was read


class WantedRank(NamedTuple):
    """A cell whose rank is wanted, and its owner, or None for the rank that a new owner would get with this cell."""

    column_index: int
    cell: str
    owner: str | None
    # The ranking lacks shadowed owners' entries: how many of them to count, and how many of these precede the cell.
    shadows: int = 0
    better_shadows: int = 0


class CountBegin(NamedTuple):
    """The start of a count, chosen before the read begins. If `start` is None, the count starts at the top."""

    start: CountStart | None
    asked_us: int  # the service's clock before the read began; a counted rank is as of this time or later


class LocatedRank(msgspec.Struct, frozen=True, gc=False):
    rank: int
    low: int
    high: int
    method: PositionMethod
    as_of_us: int  # a time for which the rank and its bracket hold
    curve: AnyCurve | None = None  # the curve that the rank was read off; None: the rank was counted
    late: int = 0  # changes after `as_of_us` in the snapshots of a board's segments, which the rank leaves out

    @property
    def exact(self) -> bool:
        return self.low == self.high


class _CellForm(NamedTuple):
    name: str
    offset: int | None  # the number in the cell is the value plus this; None: the cell is the value itself
    width: int | None  # how many digits of the cell hold the value; None: all of them
    scale: int  # the number of decimals


class Locator:
    def __init__(
        self,
        store: Store,
        reads: PointReads,
        board: Board,
        entries: OpenBoard,
        book: CurveBook,
        limits: ReadingSettings,
        crowd: Crowd,
        now_us: Callable[[], int],
    ) -> None:
        self.board, self.entries = board, entries
        self.store, self._book, self._limits, self._crowd, self.now_us = store, book, limits, crowd, now_us
        self.reads, self._rankings = reads, entries.rankings
        archived, exact_top = board.gate.archived_us is not None, board.spec.predictor.exact_top
        self.policy = CountPolicy(exact_top, limits.exact_changes_max, archived)
        self._default_changes_max = self.policy.limit_changes("auto")
        self._segmented = board.is_spread
        self._cells = [self._cell_form(index) for index in range(len(board.spec.columns))]
        self.tiers = {index: Tiers(column) for index, column in enumerate(board.spec.columns) if column.tiers}

    def _cell_form(self, index: int) -> _CellForm:
        column = self.board.spec.columns[index]
        scale = 0 if column.kind is ColumnKind.TEXT else column.scale
        if not column.sorted and not column.keeps_time:
            return _CellForm(column.name, None, None, scale)
        padding = Padding(self.board.spec, column)
        return _CellForm(column.name, padding.offset, padding.width if padding.orders_equals else None, scale)

    def format_stats(self, cells: Sequence[str | int | None]) -> Stats:
        """Format a row's values by column name, as the API shows them. This runs for each row of a page."""
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

    def find_reached_at(self, index: int, cell: str | int | None) -> str | UnsetType:
        """Find when a ranked value was reached; UNSET without a value, or if time does not order equal values."""
        padding = self._rankings[index].padding
        return format_us(padding.reached_us(cell)) if padding.timed and isinstance(cell, str) else UNSET

    def find_position(
        self, wanted: WantedRank, mode: RankMode, starts: Mapping[int, CountStart], read: EntryRead
    ) -> Position | None:
        """Find the position of an owner's cell, or return None if the caller must use `RankContext.find_positions`.

        `read` has the owner's entry. If the same read has also counted better entries, the rank comes from this count,
        otherwise from the curve. `starts` has, by column index, the curve and mark with which the read could count.
        """
        index = wanted.column_index
        count = read.counts.get(index)
        if count is not None:
            return self.make_position(wanted, self.locate_by_count(count), count.totals)
        if wanted.shadows or self._rankings[index].timed:
            return None
        located: LocatedRank | None
        if index in starts and index not in read.counts:
            # The read has not counted, because the curve knows the rank exactly, or because the gap is too long.
            located = self._read_off(wanted, starts[index].curve)
        else:  # the read of an owner's segment never counts, so decide here whether to count
            located = self.locate_without_count(wanted, mode, busy=not self._segmented)
        return None if located is None else self.make_position(wanted, located, read.totals)

    def find_curve(self, index: int, mode: RankMode = "auto") -> AnyCurve | None:
        """Find the curve that a request in this mode may use, or return None if it has to count."""
        return self._book.find_curve(self.board, index) if self.policy.uses_curve(mode) else None

    def is_exact_now(self, located: LocatedRank, index: int, totals: dict[int, int]) -> bool:
        """Return whether a rank is exact in the snapshot of `totals`. A counted rank must come from this snapshot."""
        return (
            located.exact
            and not located.late
            and (located.curve is None or self.is_current(index, located.curve, totals))
        )

    def is_current(self, index: int, curve: AnyCurve, totals: dict[int, int]) -> bool:
        """Return whether a curve includes all changes of the snapshot with these totals."""
        return self._book.is_current(self.board, index, curve, totals)

    def locate_without_count(
        self, wanted: WantedRank, mode: RankMode, *, ranks: int = 1, busy: bool = False
    ) -> LocatedRank | None:
        """Read the rank of the cell off the curve, or return None if it must be counted.

        `ranks` is the number of ranks that the request wants. If `busy` is true, decide as if this process were busy.
        """
        index, policy = wanted.column_index, self.policy
        curve = self.find_curve(index, mode)
        if curve is None:
            return None
        found = self._read_off(wanted, curve)
        if mode == "auto":
            key = self._rankings[index].padding.key_of_cell(wanted.cell)
            gap_rows = 0 if found.exact else curve.find_gap(key).rows
            crowded = busy or self._crowd.is_crowded()
            gap_rows_max = limit_gap_rows(self._limits.exact_gap_rows_max, ranks=ranks, crowded=crowded)
            if policy.should_count(found.low, gap_rows, gap_rows_max) and (
                found.low <= policy.exact_top or self.find_count_start(index) is not None
            ):
                return None
        return found

    def _read_off(self, wanted: WantedRank, curve: AnyCurve) -> LocatedRank:
        padding = self._rankings[wanted.column_index].padding
        key = padding.key_of_cell(wanted.cell)
        rank, low, high, method = curve.locate(key)
        if padding.timed and wanted.owner is not None:
            # Owners who reached the same value in the same microsecond are ordered by the code points of their names.
            # The curve does not know this order, so the bracket covers the ranks of all these owners.
            ties = curve.ties_at(key)
            own = 0 if wanted.shadows else 1  # whether the curve counts the owner's own row
            high = high + ties - own if ties else max(high, curve.locate(key + 1).high - own)
            method = "knot" if low == high else "curve"
        return LocatedRank(rank, low, high, method, curve.as_of_us, curve)

    def find_count_start(self, column_index: int) -> CountStart | None:
        """Find the curve and mark from which a count in this column can start at a knot. Return None if there are none.

        Call this before the read begins, because the mark must not be newer than the snapshot of the read.
        """
        if self.policy.archived:
            return None
        return self._book.find_count_start(self.board, column_index, self.policy.changes_max, self.now_us())

    def find_default_starts(
        self, indexes: Iterable[int], mode: RankMode = "auto", *, in_segments: bool = True
    ) -> Mapping[int, CountStart]:
        """Find, by column index, where counts in the mode `auto` start. In other modes, return an empty mapping.

        `in_segments` is False if the caller's read can't count in segments. A segmented board then has no starts.
        """
        if mode != "auto" or self.policy.archived or (self._segmented and not in_segments):
            return NO_STARTS
        starts: dict[int, CountStart] = {}
        changes_max, asked_us = self._default_changes_max, self.now_us()
        for index in indexes:
            start = self._book.find_count_start(self.board, index, changes_max, asked_us, as_asked=True)
            if start is not None:
                starts[index] = start
        return starts

    def begin_count(self, index: int, mode: RankMode = "auto") -> CountBegin:
        """Find where counts in a column start. Call this before the read begins.

        If the board has segments, they are counted as of the time of this call.
        """
        asked_us, start = self.now_us(), None
        if not self.policy.archived:
            changes_max = self.policy.limit_changes(mode)
            start = self._book.find_count_start(self.board, index, changes_max, asked_us, as_asked=True)
        return CountBegin(start, asked_us)

    def may_read_many_rows(
        self, wanted: WantedRank, mode: RankMode, start: CountStart | None, totals: Mapping[int, int] | None
    ) -> bool:
        """Return whether counting this rank may read more than `light_read_rows_max` rows.

        `totals` has the totals of the board or of one of its leaves. It is None if they are not known.
        """
        if self.policy.archived:
            return False
        rows_max = self._limits.light_read_rows_max
        if totals is not None and totals.get(wanted.column_index, 0) * len(self.board.leaves) <= rows_max:
            return False
        if start is None:
            return mode == "exact" or self.find_curve(wanted.column_index) is None
        key = self._rankings[wanted.column_index].padding.key_of_cell(wanted.cell)
        return start.curve.find_gap(key).rows > rows_max

    def locate_rank(self, wanted: WantedRank, mode: RankMode, begin: CountBegin) -> Program[LocatedRank]:
        """Read the rank of the cell off the curve, or count it if it must be counted."""
        located = self.locate_without_count(wanted, mode)
        return located or (yield from self.count_rank(wanted, mode, begin))

    def count_rank(self, wanted: WantedRank, mode: RankMode, begin: CountBegin) -> Program[LocatedRank]:
        estimate = None if mode == "exact" else self.locate_without_count(wanted, "estimate")
        rows_max = None if estimate is None else self.policy.top_rows_max
        counting = self._rankings[wanted.column_index].count_before
        found = yield from counting(wanted.cell, self._owner_among_ties(wanted), *begin, rows_max)
        if estimate is not None and rows_max is not None and not found.from_anchor and found.better_count >= rows_max:
            return estimate
        return self.locate_by_count(found)

    def locate_by_count(self, found: GapCount) -> LocatedRank:
        """Turn the result of a count into a rank. Its `as_of_us` is a time at which the counted snapshot was current.

        Each segment of a board is counted in its own snapshot, so the sum is as of a time before the first of them.
        """
        rank = 1 + found.better_count + found.ties_before
        low, high, as_of_us = rank, rank, found.asked_us
        if found.is_sum:
            low, high = max(1, low - found.late_ties), high + found.late_ties
        elif found.changed_us > as_of_us:
            as_of_us = date_snapshot(found.changed_us, as_of_us, self.now_us)
        return LocatedRank(rank, low, high, "gap" if found.from_anchor else "count", as_of_us, late=found.late)

    def _owner_among_ties(self, wanted: WantedRank) -> str:
        """Return the owner if a count must find the owner's place among equal cells, otherwise an empty text.

        If equal values share a rank, the place does not matter, and counting the equal cells may take long.
        """
        return wanted.owner or "" if self._rankings[wanted.column_index].timed else ""

    def needs_totals(self, known: Mapping[int, object]) -> bool:
        """Return whether an estimated position needs totals of the board that are not in `known`, those read so far."""
        return not self._segmented and self.board.key not in known

    async def count_alone(self, wanted: WantedRank, start: CountStart) -> GapCount | None:
        """Count a rank and read the totals in one statement. Return None if the count can't start at a knot."""
        index, owner = wanted.column_index, self._owner_among_ties(wanted)
        if self._segmented:
            return await self.reads.count_in_segments(self.board, index, (wanted.cell, owner), start)
        count = self._rankings[index].count_from_anchor
        return await read_single(self.store, lambda: count(start, wanted.cell, owner=owner))

    def make_position(self, wanted: WantedRank, located: LocatedRank, totals: Mapping[int, int]) -> Position:
        index, cell, owner, shadows, better = wanted
        name, offset, width, scale = self._cells[index]
        value = int(cell if width is None else cell[:width]) - (offset or 0)
        total, rank, low, high = totals.get(index, 0), located.rank, located.low, located.high
        if self._segmented:
            # A curve has the total of all segments. A count includes entries that `totals` lacks, erased after `as_of`.
            others = rank - (owner is None or shadows > 0)
            total = max(total, others) if located.curve is None else located.curve.total
        if shadows:
            total, rank, low, high = total + shadows, rank + better, low + better, high + better
        position = Position(
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
        if width is not None and owner is not None:  # equal values are ordered, possibly by time
            position.reached_at = self.find_reached_at(index, cell)
        if self.tiers and index in self.tiers:
            self.tiers[index].add_to_position(position, value)
        return position


_as_of = lru_cache(maxsize=1024)(format_us)  # cached: all ranks from one curve show the same time


def percentile(rank: int, total: int) -> float:
    """Compute 100 * (total - rank) / (total - 1), limited to 0 … 100, with three decimals; 100 if total <= 1."""
    if rank <= 1 or total <= 1:
        return 100.0
    return round(100 * (total - rank) / (total - 1), 3) if rank < total else 0.0
