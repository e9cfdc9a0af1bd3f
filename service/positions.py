"""Ranks: from the curve where it is good, by counting where it is not, and always with the bracket and the method said.

`auto` counts near the top, where the gap of the curve holds few entries, and wherever there is no curve; `exact` always
counts; `estimate` never counts where a curve exists. Where the log of changes can vouch for the curve's nearest rung, a
count starts there and is as short at any depth; in `auto` it costs a bounded number of rows in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from predictor import RankCurve
from querybuilder import Dialect
from storage.curves import CurveBook
from storage.entries import Entries, live_epochs
from storage.errors import UnknownBoard
from storage.gap_counts import Footing, GapCount
from storage.leaderboards import check_copy, count_entries
from storage.rankings import Ranking
from storage.records import Board, Kind
from storage.store import Program, Store

from .answers import Stats
from .position_answers import Position
from .queries import RankMode
from .values import format_us, number

NAMED_MAX = 256  # lists of columns whose positions are kept, a board
COUNT_SLACK = 2  # near the top as many times `exact_top` rows are counted before the curve is believed after all


@dataclass(frozen=True, slots=True)
class CountLimits:
    """How much is counted; each is a setting of the same name."""

    exact_gap_rows_max: int
    exact_changes_max: int
    light_read_rows_max: int


COUNTED = ("count", "gap")  # methods that know the rank as of now
Footings = Mapping[int, Footing]  # by column index


class Wanted(NamedTuple):
    """A cell whose rank is asked for: an owner's, or the one that an arrival with a value would have (`owner` None)."""

    column_index: int
    cell: str
    owner: str | None


class Located(NamedTuple):
    """A rank with its bracket."""

    rank: int
    low: int
    high: int
    method: Literal["count", "knot", "gap", "curve"]
    as_of_us: int

    @property
    def exact(self) -> bool:
        """Whether the rank is known, not estimated."""
        return self.low == self.high


def located_by_curve(curve: RankCurve, ranking: Ranking, wanted: Wanted) -> Located:
    """The rank that the curve gives."""
    key = ranking.padding.key(wanted.cell)
    rank, low, high, _ = curve.locate(key)
    if ranking.timed and wanted.owner is not None:
        # Of equal values reached in the same microsecond the owner's code points decide: a curve doesn't know them.
        ties = curve.ties_at(key)
        high = high + ties - 1 if ties else max(high, curve.locate(key + 1).high - 1)
    return Located(rank, low, high, "knot" if low == high else "curve", curve.as_of_us)


class _Column(NamedTuple):
    """What an answer for one ranked column needs, looked up once."""

    name: str
    scale: int
    offset: int
    high: bool
    timed: bool


class _CellForm(NamedTuple):
    """How a cell of a column becomes a value."""

    name: str
    offset: int | None  # of a padded cell; None: the cell is the value
    width: int | None  # digits, where a time follows them
    scale: int


class Locator:
    """Finds ranks on one board."""

    def __init__(
        self, store: Store, entries: Entries, book: CurveBook, limits: CountLimits, now_us: Callable[[], int]
    ) -> None:
        board = self.board = entries.board
        self.entries = entries
        self._store, self._book, self._limits, self._now_us = store, book, limits, now_us
        self._find = book.find
        self._exact_top = board.spec.predictor.exact_top
        self._columns = {
            index: _Column(
                board.spec.columns[index].name,
                board.spec.columns[index].scale,
                ranking.padding.offset,
                ranking.padding.high,
                ranking.timed,
            )
            for index, ranking in self.entries.rankings.items()
        }
        self._cells = [self._cell_form(index) for index in range(len(board.spec.columns))]
        self._named: dict[tuple[str, ...], list[int]] = {}

    def _cell_form(self, index: int) -> _CellForm:
        column = self.board.spec.columns[index]
        ranking = self.entries.rankings.get(index)
        scale = 0 if column.kind is Kind.TEXT else column.scale
        if ranking is None:
            return _CellForm(column.name, None, None, scale)
        padding = ranking.padding
        return _CellForm(column.name, padding.offset, padding.width if padding.timed else None, scale)

    def stats(self, cells: Sequence[str | int | None]) -> Stats:
        """The values of a row by column name, as they travel. Every row of every page comes through here."""
        found: Stats = {}
        for (name, offset, width, scale), cell in zip(self._cells, cells, strict=False):
            value = cell
            if offset is not None and cell is not None:
                value = int(cell if width is None else str(cell)[:width]) - offset
            found[name] = value if scale == 0 or not isinstance(value, int) else number(value, scale)
        return found

    def named(self, names: tuple[str, ...]) -> list[int] | None:
        """The positions of ranked columns, None where one is not known or not ranked."""
        found = self._named.get(names)
        if found is None:
            by_name = {column.name: index for index, column in self._columns.items()}
            if any(name not in by_name for name in names):
                return None
            found = [by_name[name] for name in names]
            if len(self._named) < NAMED_MAX:
                self._named[names] = found
        return found

    def read_off(self, column_index: int, cell: str, mode: RankMode, totals: dict[int, int]) -> Position | None:
        """The position that the curve gives an owner's cell, None where the general way (`locate`) is needed.

        It is the path of nearly every request, and so it is flat: `at_once` and `position` in one, for untimed columns.
        """
        column = self._columns[column_index]
        curve = self._find(self.board, column_index)
        if curve is None or column.timed or mode == "exact":
            return None
        text = int(cell)
        rank, low, high, method = curve.locate(-text if column.high else text)
        if mode == "auto" and (low <= self._exact_top or (low != high and self._is_short(curve, column_index, cell))):
            return None
        total = totals.get(column_index, 0)
        return Position(
            column=column.name,
            value=number(text - column.offset, column.scale),
            rank=rank,
            low=low,
            high=high,
            exact=low == high,
            method=method,
            total=total,
            percentile=percentile(rank, total),
            as_of=_as_of(curve.as_of_us),
        )

    def curve(self, index: int) -> RankCurve | None:
        """The curve that serves a column."""
        return self._find(self.board, index)

    def at_once(self, wanted: Wanted, mode: RankMode) -> Located | None:
        """The rank where no count is needed, else None."""
        if mode == "exact":
            return None
        curve = self.curve(wanted.column_index)
        if curve is None:
            return None
        located = located_by_curve(curve, self.entries.rankings[wanted.column_index], wanted)
        if mode == "estimate":
            return located
        if located.low <= self._exact_top:
            return None
        short = not located.exact and self._is_short(curve, wanted.column_index, wanted.cell)
        return None if short else located

    def _is_short(self, curve: RankCurve, column_index: int, cell: str) -> bool:
        """Whether a count within the cell's gap is short enough for `auto`, and possible."""
        rung = curve.rung_for(self.entries.rankings[column_index].padding.key(cell))
        return rung.gap_rows <= self._limits.exact_gap_rows_max and self.footing(column_index) is not None

    def footing(self, column_index: int) -> Footing | None:
        """What exact ranks of a column start from. Ask before a program runs: curve and mark belong together."""
        served = self._book.served(self.board, column_index)
        if served is None or served.mark is None:
            return None
        return Footing(served.curve, served.mark, self._limits.exact_changes_max)

    def footings(self, wanted: Sequence[Wanted]) -> Footings:
        """`footing` of every column asked for that has one."""
        found = {index: self.footing(index) for index in {each.column_index for each in wanted}}
        return {index: footing for index, footing in found.items() if footing is not None}

    def counts_far(self, wanted: Sequence[Wanted], mode: RankMode, footings: Footings) -> bool:
        """Whether counting these may read many rows."""
        return any(self._counts_far(each, mode, footings.get(each.column_index)) for each in wanted)

    def _counts_far(self, wanted: Wanted, mode: RankMode, footing: Footing | None) -> bool:
        if footing is None:
            return mode == "exact" or self.curve(wanted.column_index) is None
        key = self.entries.rankings[wanted.column_index].padding.key(wanted.cell)
        return footing.curve.rung_for(key).gap_rows > self._limits.light_read_rows_max

    def counted(self, wanted: Sequence[Wanted], mode: RankMode, footings: Footings) -> Program[list[Located]]:
        """The ranks that need a count."""
        found = []
        for each in wanted:
            found.append((yield from self._counted(each, mode, footings.get(each.column_index))))
        return found

    def _counted(self, wanted: Wanted, mode: RankMode, footing: Footing | None) -> Program[Located]:
        ranking = self.entries.rankings[wanted.column_index]
        now_us = self._now_us()
        if footing is not None:
            found = yield from ranking.count_from_rung(footing, wanted.cell, owner=self._among_ties(wanted))
            if found is not None:
                return self._from_rung(wanted, found, now_us)
        curve = None if mode == "exact" else self.curve(wanted.column_index)
        if curve is None:
            better_count = yield from ranking.count_better(wanted.cell)
        else:
            rows_max = max(1, self._exact_top) * COUNT_SLACK
            better_count = yield from ranking.count_better_up_to(wanted.cell, rows_max)
            if better_count >= rows_max:
                return located_by_curve(curve, ranking, wanted)
        if ranking.timed and wanted.owner is not None:
            _, before = yield from ranking.count_tied(wanted.cell, wanted.owner)
            better_count += before
        rank = 1 + better_count
        return Located(rank, rank, rank, "count", now_us)

    def _from_rung(self, wanted: Wanted, found: GapCount, now_us: int) -> Located:
        rank = 1 + found.better_count + found.ties_before
        return Located(rank, rank, rank, "gap" if found.rung else "count", now_us)

    def _among_ties(self, wanted: Wanted) -> str:
        """The owner before whom equal cells count; nobody where they share a rank, for such runs may be long."""
        return wanted.owner or "" if self._columns[wanted.column_index].timed else ""

    async def _counted_alone(self, wanted: Wanted, footing: Footing) -> tuple[Located, dict[int, int]] | None:
        """One short count with the totals, in one statement; None where the general way is needed."""
        asked = self.entries.rankings[wanted.column_index].asked_from_rung(
            footing, wanted.cell, owner=self._among_ties(wanted)
        )
        now_us = self._now_us()
        found = asked.answer(await self._store.read_one(asked.query))
        if found is None or not found.totals:
            return None
        check_copy(self.board, found.totals)
        return self._from_rung(wanted, found, now_us), found.totals

    async def locate(
        self, wanted: Sequence[Wanted], mode: RankMode, totals: dict[int, int] | None = None
    ) -> tuple[list[Located], dict[int, int]]:
        """Ranks in the order asked for, and the board's totals (of the same snapshot as the counts, where any)."""
        found = [self.at_once(each, mode) for each in wanted]
        if None in found or totals is None:
            missing = [each for each, located in zip(wanted, found, strict=True) if located is None]
            footings = self.footings(missing)
            far = self.counts_far(missing, mode, footings)
            if len(missing) == 1 and footings and not far:
                alone = await self._counted_alone(missing[0], footings[missing[0].column_index])
                if alone is not None:
                    return [located or alone[0] for located in found], alone[1]
                footings, far = {}, mode == "exact"  # the log can't vouch for the rung: all may have to be counted
            counted, now = await self._store.read(lambda: self._counted_with_totals(missing, mode, footings), heavy=far)
            rest = iter(counted)
            return [located or next(rest) for located in found], now
        return [located for located in found if located is not None], totals

    def _counted_with_totals(
        self, wanted: Sequence[Wanted], mode: RankMode, footings: Footings
    ) -> Program[tuple[list[Located], dict[int, int]]]:
        counted = yield from self.counted(wanted, mode, footings)
        totals = yield from board_totals(self._store.dialect, self.board)
        return counted, totals

    def position(self, wanted: Wanted, located: Located, totals: dict[int, int]) -> Position:
        """The answer for a rank."""
        column = self.board.spec.columns[wanted.column_index]
        total = totals.get(wanted.column_index, 0)
        value = self.entries.rankings[wanted.column_index].padding.value(wanted.cell)
        return Position(
            column=column.name,
            value=number(value, column.scale),
            rank=located.rank,
            low=located.low,
            high=located.high,
            exact=located.low == located.high,
            method=located.method,
            total=total,
            percentile=percentile(located.rank, total),
            as_of=_as_of(located.as_of_us),
        )


_as_of = lru_cache(maxsize=1024)(format_us)  # a curve's time is shown with every rank read off it


def percentile(rank: int, total: int) -> float:
    """100 * (total - rank) / (total - 1), clipped to 0 … 100, to three digits; 100 where there is nobody else."""
    if total <= 1:
        return 100.0
    return round(min(100.0, max(0.0, 100 * (total - rank) / (total - 1))), 3)


def board_totals(dialect: Dialect, board: Board) -> Program[dict[int, int]]:
    """Entries of a board by column index.

    Raises:
        UnknownBoard: it is gone.
        BoardChanged: it is another one than this process knows.
    """
    totals = (yield from count_entries(dialect, [board.key]))[board.key]
    if not totals and not board.is_unreached and board.key not in (yield from live_epochs(dialect, [board.key])):
        raise UnknownBoard(f"no leaderboard {board.id!r}")
    check_copy(board, totals)
    return totals
