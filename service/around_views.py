"""The rows around an owner or a value, with ranks that agree: all follow from the place's by counting along the rows.

Far from the top, where the curve gives the rank, an owner's row and its neighbours come from a read that many requests
share; where the rank has to be counted, count and rows are of one snapshot.
"""

from __future__ import annotations

from storage.errors import NotRanked, UnknownOwner
from storage.neighbours import Neighbours
from storage.records import Entry
from storage.store import Program

from .answers import Page
from .context import Context
from .owner_views import find_column
from .pages import Pager, Window, cell_of, ranks_of
from .positions import COUNTED, Footings, Located, Locator, Wanted, board_totals
from .profiles import add_profiles
from .queries import AroundOwnerQuery, AroundValueQuery
from .ranking_views import wanted_value
from .routes import Call

MORE = 1  # one row beyond each edge tells whether there are more, and from which on the first row's tie run is counted


async def around_owner(context: Context, call: Call) -> Page:
    """`GET …/entries/{owner}/around`."""
    query: AroundOwnerQuery = call.query
    owner = call.path["owner"]
    board, index = await find_column(context, call.path["board"], query.column)
    locator, pager = context.locators.of(board), Pager(context, board, index)
    better, worse = query.better, query.worse + 1
    found = await context.reads.around_owner(board, index, owner, better_rows=better + MORE, worse_rows=worse + MORE)
    if found is not None:
        near, totals = found
        wanted = Wanted(index, cell_of(pager.ranking, near.after[0]), owner)
        known = locator.at_once(wanted, "auto")
        if known is not None:
            shared = _window(pager, wanted, known, near, totals, better=better, worse=worse)
            return await _answer(context, pager, shared, known, wanted, profiles=query.profiles)
    footing = locator.footing(index)
    footings = {} if footing is None else {index: footing}
    wanted, window, located = await context.store_of(board).read(
        lambda: _around_owner(context, locator, pager, owner, query, footings), heavy=locator.curve(index) is None
    )
    return await _answer(context, pager, window, located, wanted, profiles=query.profiles)


def _wanted_owner(entry: Entry | None, owner: str, index: int, column: str) -> Wanted:
    if entry is None:
        raise UnknownOwner(f"{owner!r} has no entry in this leaderboard")
    cell = entry.cells[index]
    if not isinstance(cell, str):
        raise NotRanked(f"{owner!r} has no value in {column!r}")
    return Wanted(index, cell, owner)


def _around_owner(
    context: Context, locator: Locator, pager: Pager, owner: str, query: AroundOwnerQuery, footings: Footings
) -> Program[tuple[Wanted, Window, Located]]:
    found = yield from locator.entries.by_owners([owner])
    wanted = _wanted_owner(found.get(owner), owner, pager.ranking.index, query.column)
    around = yield from _around(context, locator, pager, wanted, footings, better=query.better, worse=query.worse + 1)
    return wanted, *around


async def around_value(context: Context, call: Call) -> Page:
    """`GET …/rankings/{column}/around`."""
    query: AroundValueQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    locator, pager = context.locators.of(board), Pager(context, board, index)
    wanted = wanted_value(locator, index, query.value, "value")
    footings = locator.footings([wanted])
    window, located = await context.store_of(board).read(
        lambda: _around(context, locator, pager, wanted, footings, better=query.better, worse=query.worse),
        heavy=locator.curve(index) is None,
    )
    return await _answer(context, pager, window, located, wanted, profiles=query.profiles)


def _around(
    context: Context,
    locator: Locator,
    pager: Pager,
    wanted: Wanted,
    footings: Footings,
    *,
    better: int,
    worse: int,
) -> Program[tuple[Window, Located]]:
    ranking = pager.ranking
    located = locator.at_once(wanted, "auto")
    if located is None:
        (located,) = yield from locator.counted([wanted], "auto", footings)
    near = yield from ranking.rows_around(
        wanted.cell, wanted.owner or "", better_rows=better + MORE, worse_rows=worse + MORE
    )
    totals = yield from board_totals(context.store.dialect, locator.board)
    return _window(pager, wanted, located, near, totals, better=better, worse=worse), located


def _window(
    pager: Pager,
    wanted: Wanted,
    located: Located,
    near: Neighbours,
    totals: dict[int, int],
    *,
    better: int,
    worse: int,
) -> Window:
    """The rows asked for, of those that were read with `MORE` at each edge."""
    ranking = pager.ranking
    before = near.before[max(0, len(near.before) - better) :]
    rows = before + near.after[:worse]
    ties_before = 0 if ranking.timed else near.ties_before
    first_row_number = located.rank + ties_before - len(before)
    more_before = len(near.before) > len(before)
    more_after = len(near.after) > worse or pager.goes_on_past(first_row_number + len(rows) - 1, totals)
    if located.method not in COUNTED:
        # The board's ends are known, whatever the curve says; an estimate lies between them.
        last_first = totals.get(ranking.index, 0) - len(rows) + 1
        if not more_before:
            first_row_number = 1
        elif not more_after:
            first_row_number = last_first
        else:
            first_row_number = max(2, min(first_row_number, last_first - 1))
    if ranking.timed or not rows or not more_before:
        first_ties = 0
    elif cell_of(ranking, rows[0]) == wanted.cell:
        first_ties = ties_before - len(before)
    elif cell_of(ranking, near.before[0]) == cell_of(ranking, rows[0]):
        first_ties = near.edge_ties + MORE
    else:
        first_ties = 0
    return Window(
        rows,
        first_row_number,
        max(1, first_row_number - first_ties),
        located.method in COUNTED,
        totals,
        more_before=more_before,
        more_after=more_after,
    )


async def _answer(
    context: Context, pager: Pager, window: Window, located: Located, wanted: Wanted, *, profiles: bool
) -> Page:
    context.metrics.read("around" if wanted.owner is not None else "rankings", located.method)
    page = pager.page(window, _known(pager, window, located, wanted))
    if profiles:
        await add_profiles(context, page.entries)
    return page


def _known(pager: Pager, window: Window, located: Located, wanted: Wanted) -> list[bool]:
    """Whether each row's rank is known."""
    if window.exact or wanted.owner is None or not located.exact:
        return [window.exact] * len(window.rows)
    # The curve knows the place's rank, unless the rows have shown that it is no longer that.
    ranks = ranks_of(pager.ranking, window)
    return [
        rank == located.rank and cell_of(pager.ranking, row) == wanted.cell
        for row, rank in zip(window.rows, ranks, strict=True)
    ]
