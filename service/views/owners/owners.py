"""Handlers that read owners: an owner's entry and positions, the entries of many owners, an owner on many boards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import wraps

import msgspec
from msgspec import UNSET

from service.context import Context
from service.contract.problems import ProblemError
from service.contract.queries import PositionsQuery, ProfilesQuery, RankMode
from service.contract.requests import Lookup, ManyBoards
from service.contract.responses.boards import EntryAnswer, LookupAnswer, LookupEntry
from service.contract.responses.positions import (
    BoardPosition,
    BoardPositions,
    NoBoardPosition,
    NoPosition,
    OwnerPositions,
    Position,
)
from service.contract.routes import Answer, Call, Handler
from service.contract.values import format_us, parse_owner
from service.ranks.locator import Locator, WantedRank, read_board_totals
from service.ranks.next_better import NextBetterFinder
from storage.archive.archive_reader import ArchivedEntries
from storage.entries.entries import Entries
from storage.entries.hidden_owners import hidden_statements
from storage.errors import NotRankedError, UnknownColumnError, UnknownOwnerError
from storage.reads.point_reads import EntryRead
from storage.records import Best, Board, Entry
from storage.store import Program

from .owner_on_boards import BoardColumn, find_positions
from .previous_period import add_previous, find_board_before
from .profiles import add_profiles


async def find_column(context: Context, board_id: str, name: str) -> tuple[Board, int]:
    """Return a board and the index of one of its ranked columns. Ask the store before reporting either as unknown.

    Raises:
        UnknownBoardError: there is no such board.
        UnknownColumnError: the board has no such column, or the column is not ranked.
    """
    board = await context.catalog.find_board(board_id)
    index = board.column_index.get(name)
    if index is None:
        board = await context.catalog.reread_board(board_id)
        index = board.column_index.get(name)
    if index is None:
        raise UnknownColumnError(f"no column {name!r} in {board_id!r}", pointer="column")
    if not board.spec.columns[index].sorted:
        raise UnknownColumnError(f"column {name!r} of {board_id!r} is not ranked", pointer="column")
    return board, index


async def entry(context: Context, call: Call) -> EntryAnswer:
    """Handle `GET …/entries/{owner}`."""
    query: ProfilesQuery = call.query
    board = await context.catalog.find_board(call.path["board"])
    owner = call.path["owner"]
    found = (await context.reads.read_entry(board, owner)).entry
    unseen = False
    if found is None:
        found, unseen = (await find_hidden_entries(context, board, [owner])).get(owner), True
    if found is None:
        raise UnknownOwnerError(f"{owner!r} has no entry in {board.id!r}")
    context.metrics.count_ranks_read("entry", "row")
    stats = context.ranks.find_locator(board).format_stats(found.cells)
    answer = EntryAnswer(found.owner, format_us(found.updated_at_us), stats, hidden=unseen or UNSET)
    if query.profiles:
        await add_profiles(context, [answer])
    return answer


async def find_hidden_entries(context: Context, board: Board, owners: Sequence[str]) -> dict[str, Entry]:
    """Return, by owner, the entries of those owners who are hidden. No ranking of the board shows them."""
    entries = context.boards.open_board(board)[0]
    if isinstance(entries, ArchivedEntries):
        return await context.store_for_board(board).read(lambda: entries.of_hidden(owners))
    found = await context.store_for_board(board).read(lambda: hidden_statements.find_hidden([board.key], owners))
    return {each.entry.owner: each.widen_cells(len(board.spec.columns)) for each in found.entries}


def unless_hidden(handler: Handler) -> Handler:
    """Return a handler that raises `NotRankedError` for a hidden owner, instead of `UnknownOwnerError`."""

    @wraps(handler)
    async def handle(context: Context, call: Call) -> Answer:
        try:
            return await handler(context, call)
        except UnknownOwnerError:
            board, owner = await context.catalog.find_board(call.path["board"]), call.path["owner"]
            if not await find_hidden_entries(context, board, [owner]):
                raise
            raise NotRankedError(f"{owner!r} is hidden") from None

    return handle


async def get_positions(context: Context, call: Call) -> OwnerPositions:
    """Handle `GET …/entries/{owner}/positions`."""
    query: PositionsQuery = call.query
    if query.compare is None:
        return await _positions_now(context, call, query)
    board = await context.catalog.find_board(call.path["board"])
    before_id = find_board_before(board)
    absent: UnknownOwnerError | NotRankedError | None = None
    try:
        answer = await _positions_now(context, call, query)
    except (UnknownOwnerError, NotRankedError) as error:  # owners without a value in this period are compared too
        absent, board = error, await context.catalog.find_board(board.id)
        columns = query.columns or [board.spec.columns[index].name for index in board.sorted_indexes]
        answer = OwnerPositions(call.path["owner"], [NoPosition(column=name) for name in columns])
    answer = await add_previous(context, await context.catalog.find_board(board.id), before_id, answer, query.rank)
    if absent is not None and not any(each.previous and each.previous.position for each in answer.positions):
        raise absent
    return answer


async def _positions_now(context: Context, call: Call, query: PositionsQuery) -> OwnerPositions:
    owner = call.path["owner"]
    board = context.catalog.find_known(call.path["board"]) or await context.catalog.find_board(call.path["board"])
    indexes: Sequence[int] = board.sorted_indexes
    locator = context.ranks.find_locator(board)
    if query.columns:
        named = locator.find_ranked_indexes(query.columns)
        if named is None:
            found = [await find_column(context, board.id, name) for name in query.columns]
            board, named = found[-1][0], [index for _, index in found]
            locator = context.ranks.find_locator(board)
        indexes = named
    if query.next:
        return await _positions_with_next(context, locator, owner, indexes, query.rank)
    read = await context.reads.read_entry(board, owner)
    if read.entry is None:
        raise UnknownOwnerError(f"{owner!r} has no entry in {board.id!r}")
    cells, totals, mode = read.entry.cells, read.totals, query.rank
    answers: list[Position] = []
    for index in indexes:
        cell = cells[index]
        position = locator.find_position_by_curve(index, cell, mode, totals) if isinstance(cell, str) else None
        if position is None:
            return await _positions(context, locator, read, indexes, mode)
        answers.append(position)
    for position in answers:
        context.metrics.count_ranks_read("positions", position.method)
    return OwnerPositions(owner, [*answers])


async def _positions(
    context: Context, locator: Locator, read: EntryRead, indexes: Sequence[int], mode: RankMode
) -> OwnerPositions:
    assert read.entry is not None
    wanted = _wanted(read.entry, indexes)
    if not wanted:
        raise NotRankedError(f"{read.entry.owner!r} has no value in the columns asked for")
    by_index: dict[int, Position] = {}
    for each, position in zip(wanted, await locator.find_positions(wanted, mode, read.totals), strict=True):
        context.metrics.count_ranks_read("positions", position.method)
        by_index[each.column_index] = position
    columns = locator.board.spec.columns
    return OwnerPositions(
        read.entry.owner, [by_index.get(index) or NoPosition(column=columns[index].name) for index in indexes]
    )


async def _positions_with_next(
    context: Context, locator: Locator, owner: str, indexes: Sequence[int], mode: RankMode
) -> OwnerPositions:
    board = locator.board
    places = NextBetterFinder(locator, mode)
    far = mode == "exact" or any(locator.find_curve(index) is None for index in indexes)
    entry, found = await context.store_for_board(board).read(
        lambda: places.of(owner, lambda entry: _wanted(entry, indexes)), heavy=far
    )
    if entry is None:
        raise UnknownOwnerError(f"{owner!r} has no entry in {board.id!r}")
    if not found:
        raise NotRankedError(f"{owner!r} has no value in the columns asked for")
    for position in found.values():
        context.metrics.count_ranks_read("positions", position.method)
    columns = board.spec.columns
    return OwnerPositions(owner, [found.get(index) or NoPosition(column=columns[index].name) for index in indexes])


def _wanted(entry: Entry, indexes: Sequence[int]) -> list[WantedRank]:
    return [
        WantedRank(index, cell, entry.owner)
        for index in dict.fromkeys(indexes)
        if isinstance(cell := entry.cells[index], str)
    ]


async def look_up_entries(context: Context, call: Call) -> LookupAnswer:
    """Handle `POST …/entries/lookup`."""
    body: Lookup = call.body
    query: ProfilesQuery = call.query
    _bound(len(body.owners), context.settings.lookup_owners_max, "too_many_owners", "/owners")
    owners = [parse_owner(owner, pointer=f"/owners/{i}") for i, owner in enumerate(body.owners)]
    board = await context.catalog.find_board(call.path["board"])
    index = None
    if body.column is not None:
        board, index = await find_column(context, board.id, body.column)
    locator = context.ranks.find_locator(board)
    entries, stats_of = locator.entries, locator.format_stats
    found, totals = await context.store_for_board(board).read(lambda: _entries_with_totals(context, entries, owners))
    located: dict[str, Position] = {}
    if index is not None:
        locator = context.ranks.find_locator(board)
        wanted = [each for owner in dict.fromkeys(owners) if owner in found for each in _wanted(found[owner], [index])]
        for each, position in zip(wanted, await locator.find_positions(wanted, "auto", totals), strict=True):
            context.metrics.count_ranks_read("owners", position.method)
            located[each.owner or ""] = position
    else:
        context.metrics.count_ranks_read("owners", "row", len(found))
    missing = [owner for owner in dict.fromkeys(owners) if owner not in found]
    unseen = await find_hidden_entries(context, board, missing) if missing else {}
    places = {} if index is None else _places(locator, index, found.values())
    answers = []
    for owner in owners:
        row = found.get(owner) or unseen.get(owner)
        if row is not None:
            answer = LookupEntry(owner, format_us(row.updated_at_us), stats_of(row.cells))
            if index is not None:
                answer.position, answer.place = located.get(owner), places.get(owner)
            if owner in unseen:
                answer.hidden = True
            answers.append(answer)
    if query.profiles:
        await add_profiles(context, answers)
    return LookupAnswer(answers, [owner for owner in missing if owner not in unseen])


def _places(locator: Locator, index: int, rows: Iterable[Entry]) -> dict[str, int]:
    """Return the rank that each owner has if only these rows are ranked."""
    high = locator.board.spec.columns[index].best is Best.HIGH
    rows = list(rows)
    cells = sorted((cell for row in rows if isinstance(cell := row.cells[index], str)), reverse=high)
    firsts: dict[str, int] = {}
    for number, cell in enumerate(cells, start=1):
        firsts.setdefault(cell, number)
    return {row.owner: firsts[cell] for row in rows if isinstance(cell := row.cells[index], str)}


def _entries_with_totals(
    context: Context, entries: Entries, owners: Sequence[str]
) -> Program[tuple[dict[str, Entry], dict[int, int]]]:
    found = yield from entries.find_entries(list(dict.fromkeys(owners)))
    totals = yield from read_board_totals(entries.board)
    return found, totals


def _bound(count: int, most: int, code: str, pointer: str) -> None:
    if count > most:
        raise ProblemError(code, f"{count} is more than {most}", pointer=pointer)


async def get_positions_on_boards(context: Context, call: Call) -> BoardPositions:
    """Handle `POST /v1/owners/{owner}/positions`."""
    body: ManyBoards = call.body
    _bound(len(body.boards), context.settings.query_values_max, "too_many_boards", "/boards")
    owner = call.path["owner"]
    await context.catalog.find_stored_boards(body.boards)
    asked = [BoardColumn(*(await find_column(context, board_id, body.column))) for board_id in body.boards]
    answers: list[BoardPosition | NoBoardPosition] = []
    for board_id, position in zip(body.boards, await find_positions(context, asked, owner), strict=True):
        if position is None:
            context.metrics.count_ranks_read("owners", "row")
            answers.append(NoBoardPosition(board=board_id, column=body.column))
            continue
        context.metrics.count_ranks_read("owners", position.method)
        answers.append(BoardPosition(board=board_id, **msgspec.structs.asdict(position)))
    return BoardPositions(owner, answers)
