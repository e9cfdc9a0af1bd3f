"""Handlers of the rows around an owner or a value.

If every row were ranked by itself, estimates could contradict each other. So only the rank of the owner or value is
looked up, and the ranks of the other rows are counted from it, row by row. Requests for rows around owners share a
first read, which gets the rows and counts the owner's rank if that is cheap. Otherwise the curve gives the rank or, if
it can't, a second read gets rank and rows from one snapshot.
"""

from collections.abc import Sequence
from typing import NamedTuple

from service.context import Context
from service.contract.queries import AroundOwnerQuery, AroundValueQuery
from service.contract.responses.boards import Page
from service.contract.routes import Call, Tagged
from service.ranks.locator import (
    COUNTED_METHODS,
    CountBegin,
    LocatedRank,
    Locator,
    WantedRank,
)
from service.ranks.pages import Pager, Window, cell_of
from service.views.owners.owners import add_profiles, find_column, find_own_entry
from service.views.unchanged import find_unchanged, tag_answer
from storage.errors import NotRankedError
from storage.leaves.rankings import Neighbours
from storage.leaves.row_rankings import AroundOwner
from storage.leaves.totals import read_board_totals
from storage.records import Entry, ShadowEntry
from storage.store import Program

from .rankings import parse_wanted_value

# This many further rows are read at each end of the window. They show whether the ranking has more rows, and whether
# the rows before the window have the same value as its first row.
MORE = 1

_Located = tuple[WantedRank, LocatedRank, Window]


async def get_rows_around_owner(context: Context, call: Call) -> Page | Tagged:
    query: AroundOwnerQuery = call.query
    owner = call.path["owner"]
    board, index = await find_column(context, call.path["board"], query.column)
    if not query.profiles and (unchanged := await find_unchanged(context, call, board, index)) is not None:
        return unchanged
    locator, pager = context.ranks.find_locator(board), context.ranks.make_pager(board, index)
    around = _RowsAround(locator, pager, query.better, query.worse + 1, query.fill)
    start = locator.find_default_starts([index]).get(index)
    asked = AroundOwner(board, index, owner, *around.rows_max, start)
    found = await context.reads.read_around_owner(asked)
    if found is not None:
        near, totals, counted = found
        wanted = WantedRank(index, cell_of(pager.ranking, near.after[0]), owner)
        if counted is not None:
            known: LocatedRank | None = locator.locate_by_count(counted)
        else:
            known = locator.locate_without_count(wanted, "auto", busy=True)
        if known is not None:
            return await _answer(context, call, pager, wanted, known, around.make_window(wanted, known, near, totals))
    begin = locator.begin_count(index)

    def program() -> Program[_Located]:
        entry = yield from find_own_entry(locator, owner)
        cell, shadow = entry.cells[index], entry if isinstance(entry, ShadowEntry) else None
        if not isinstance(cell, str):
            raise NotRankedError(f"{owner!r} has no value in {board.spec.columns[index].name!r}")
        return (yield from around.read(WantedRank(index, cell, owner, int(shadow is not None)), begin, shadow))

    located = await context.store.at(board.reading_partition).read(program, heavy=locator.find_curve(index) is None)
    return await _answer(context, call, pager, *located)


async def get_rows_around_value(context: Context, call: Call) -> Page | Tagged:
    query: AroundValueQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    if not query.profiles and (unchanged := await find_unchanged(context, call, board, index)) is not None:
        return unchanged
    locator, pager = context.ranks.find_locator(board), context.ranks.make_pager(board, index)
    wanted = parse_wanted_value(locator, index, query.value, "value")
    around, begin = _RowsAround(locator, pager, query.better, query.worse, query.fill), locator.begin_count(index)
    heavy = locator.find_curve(index) is None
    located = await context.store.at(board.reading_partition).read(lambda: around.read(wanted, begin), heavy=heavy)
    return await _answer(context, call, pager, *located)


class _RowsAround(NamedTuple):
    """Reads rows around a stored value (a cell): up to `better` rows before it, and up to `worse` rows from it on."""

    locator: Locator
    pager: Pager
    better: int
    worse: int
    fill: bool  # whether one side gets the rows that the other side lacks

    @property
    def rows_max(self) -> tuple[int, int]:
        """Return how many rows to read before the place and from it on, including the `MORE` rows at each end."""
        more = MORE if not self.fill else MORE + self.worse, MORE if not self.fill else MORE + self.better
        return self.better + more[0], self.worse + more[1]

    def read(self, wanted: WantedRank, begin: CountBegin, shadow: Entry | None = None) -> Program[_Located]:
        """Read a cell's rank and the rows around it, including the row of a shadowed owner in its place."""
        located = yield from self.locator.locate_rank(wanted, "auto", begin)
        better_rows, worse_rows = self.rows_max
        near = yield from self.pager.ranking.read_rows_around(
            wanted.cell, wanted.owner or "", better_rows=better_rows, worse_rows=worse_rows
        )
        totals = yield from read_board_totals(self.locator.board)
        if shadow is not None:
            near.after = [shadow, *near.after][:worse_rows]
            totals = {**totals, wanted.column_index: totals.get(wanted.column_index, 0) + 1}
        window = self.make_window(wanted, located, near, totals)
        window.more_after |= not (yield from self.pager.ranking.keeps_all_rows())
        return wanted, located, window

    def make_window(self, wanted: WantedRank, located: LocatedRank, near: Neighbours, totals: dict[int, int]) -> Window:
        """Return the requested rows of `near`, without the `MORE` rows at each end, and the number of the first row."""
        ranking, better, worse = self.pager.ranking, self.better, self.worse
        if self.fill:
            better, worse = better + max(0, worse - len(near.after)), worse + max(0, better - len(near.before))
        before = near.before[max(0, len(near.before) - better) :]
        rows = before + near.after[:worse]
        ties_before = 0 if ranking.timed else near.ties_before
        # An archive's ranks count erased and hidden owners, who have no row, so count its rows by `shown_before`.
        row_number = located.rank + ties_before if near.shown_before is None else near.shown_before + 1
        first_row_number = row_number - len(before)
        more_before = len(near.before) > len(before)
        more_after = len(near.after) > worse
        if located.method not in COUNTED_METHODS:
            # The row number is an estimate, so keep it between the first and the last row number, which are known.
            last_first = totals.get(ranking.index, 0) - len(rows) + 1
            if not more_before:
                first_row_number = 1
            elif not more_after:
                first_row_number = last_first
            else:
                first_row_number = max(2, min(first_row_number, last_first - 1))
        first_ties = 0
        if rows and more_before and not ranking.timed:
            above = near.before[: len(near.before) - len(before)]
            first_ties = self._count_first_ties(rows[0], wanted.cell, near, ties_before - len(before), above)
        return Window(
            rows,
            first_row_number,
            max(1, first_row_number - first_ties),
            self.locator.is_exact_now(located, ranking.index, totals),
            totals,
            more_before=more_before,
            more_after=more_after,
            place=(wanted.cell, wanted.owner or ""),
        )

    def _count_first_ties(
        self, first: Entry, cell: str, near: Neighbours, ties_before: int, above: Sequence[Entry]
    ) -> int:
        """Count the rows before the first shown row that have the same cell. These are `ties_before` if it is `cell`.

        `above` has the rows of `near` before the first shown row.
        """
        ranking = self.pager.ranking
        if cell_of(ranking, first) == cell:
            return ties_before
        ties = [cell_of(ranking, row) for row in above].count(cell_of(ranking, first))
        return ties + near.edge_ties if ties == len(above) else ties


async def _answer(
    context: Context, call: Call, pager: Pager, wanted: WantedRank, located: LocatedRank, window: Window
) -> Page | Tagged:
    query: AroundOwnerQuery | AroundValueQuery = call.query
    context.metrics.meter.add(
        "rankcurve_reads", 1, "around" if wanted.owner is not None else "rankings", located.method
    )
    page = pager.make_page(window)
    if not query.profiles:
        return tag_answer(call, pager.board, window.totals, page, None if window.exact else located.curve)
    await add_profiles(context, page.entries)
    return page
