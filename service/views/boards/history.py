"""The handler of an owner's history: the owner's final position in each closed period, newest first.

The answer lists every closed period since the family was created, even periods in which the owner has no entry, so that
a chart has a point for each period. One answer takes at most four reads by each connection pool, whatever the limit:

    1. the family
    2. the catalog, for boards that this process does not know
    3. the owner's entries
    4. the counts of ranks for which the curves are not good enough
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.context import Context
from service.contract.cursors import BoardCursor
from service.contract.problems import ProblemError
from service.contract.queries import HistoryQuery, RankMode
from service.contract.responses.boards import HistoryAnswer, PastPosition
from service.contract.responses.positions import Position
from service.contract.routes import Call
from service.views.owners.owner_on_boards import BoardColumn, find_positions
from service.views.retry_on_change import retry_with_boards
from storage.boards.family_ids import board_id
from storage.errors import UnknownColumnError
from storage.periods import Calendar, Period, PeriodKind, calendar_of, parse_period
from storage.records import Board, Family

from .families import check_facets, make_period_answer


async def get_history(context: Context, call: Call) -> HistoryAnswer:
    """Handle `GET /v1/families/{family}/owners/{owner}/history`."""
    query: HistoryQuery = call.query
    # Another process may have deleted the family or shortened its grace.
    family = await context.catalog.families.reread_family(call.path["family"])
    facets = check_facets(family, query.facets)
    kind = _kind(family, query.period)
    family, index = await _column(context, family, query.column)
    list_id = board_id(family.id, kind.value, facets)
    calendar, newest = calendar_of(family.spec.time_zone), _newest_closed(context, family, kind)
    if query.cursor is not None:
        newest = _before(context, query.cursor, list_id)
    periods = _closed_since_made(family, calendar, newest, query.limit + 1)
    more = len(periods) > query.limit
    periods = periods[: query.limit]
    boards = [board_id(family.id, period.id, facets) for period in periods]
    found = await _positions(context, boards, index, call.path["owner"], query.rank)
    answers = [
        PastPosition(board, make_period_answer(context, family, period), position)
        for board, period, position in zip(boards, periods, found, strict=True)
    ]
    following = context.cursors.encode_cursor(BoardCursor(list_id, periods[-1].id)) if more else None
    return HistoryAnswer(call.path["owner"], query.column, answers, following)


def _kind(family: Family, name: str) -> PeriodKind:
    kind = PeriodKind(name)
    if kind not in family.spec.periods:
        raise ProblemError("unknown_board", f"{family.id!r} has no leaderboards by {name!r}", pointer="period")
    if kind is PeriodKind.ALL:
        raise ProblemError("bad_request", "the period all never closes", pointer="period")
    return kind


async def _column(context: Context, family: Family, name: str) -> tuple[Family, int]:
    """Return the family and the index of a ranked column. Ask the store before reporting the column as unknown."""
    if name not in family.template_board.column_index:
        family = await context.catalog.families.reread_family(family.id)
    index = family.template_board.column_index.get(name)
    if index is None:
        raise UnknownColumnError(f"no column {name!r} in {family.id!r}", pointer="column")
    if not family.spec.board.columns[index].sorted:
        raise UnknownColumnError(f"column {name!r} of {family.id!r} is not ranked", pointer="column")
    return family, index


def _newest_closed(context: Context, family: Family, kind: PeriodKind) -> Period | None:
    closed_us = context.now_us() - family.spec.grace_seconds * 1_000_000
    return calendar_of(family.spec.time_zone).period_at(kind, closed_us).previous


def _before(context: Context, cursor: str, list_id: str) -> Period | None:
    """Return the period before the one that a cursor names."""
    place = context.cursors.decode_cursor(cursor, BoardCursor)
    last = parse_period(place.after)
    if place.of != list_id or last is None:
        raise ProblemError("bad_cursor", "the cursor belongs to another list", pointer="cursor")
    return last.previous


def _closed_since_made(family: Family, calendar: Calendar, newest: Period | None, limit: int) -> list[Period]:
    """Return at most `limit` closed periods, newest first.

    None of them is older than the earliest period that still took posts when the family was created.
    """
    found: list[Period] = []
    while newest is not None and len(found) < limit:
        bounds = calendar.bounds_us(newest)
        if bounds is None or bounds[1] + family.spec.longest_grace_us <= family.created_at_us:
            break
        found.append(newest)
        newest = newest.previous
    return found


async def _positions(
    context: Context, boards: Sequence[str], index: int, owner: str, mode: RankMode
) -> list[Position | None]:
    async def find_final_positions(made: Mapping[str, Board]) -> list[Position | None]:
        there = [board for board in boards if board in made]
        found = await find_positions(context, [BoardColumn(made[board], index) for board in there], owner, mode)
        by_board = dict(zip(there, found, strict=True))
        return [by_board.get(board) for board in boards]

    positions = await retry_with_boards(context.catalog, boards, find_final_positions)
    for position in positions:
        context.metrics.count_ranks_read("families", "row" if position is None else position.method)
    return positions
