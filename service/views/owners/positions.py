"""Handlers of an owner's positions: on one board, compared with the previous period, and on many boards.

Positions on many boards take few statements, however many boards there are. Each partition is read at most twice, each
time in one snapshot: first all entries, then the counts of all ranks that must be counted.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from service.context import Context
from service.contract.problems import ProblemError, check_count
from service.contract.queries import PositionsQuery
from service.contract.requests import ManyBoards
from service.contract.responses.positions import (
    BoardPositions,
    NextPlace,
    NoPosition,
    OwnerPositions,
    Position,
    Previous,
)
from service.contract.routes import Call
from service.contract.values import format_us, parse_decimal, to_wire_number
from service.ranks.locator import CountBegin, Locator, WantedRank
from service.ranks.rank_context import AskedRank
from storage.boards.family_ids import board_id, parse_board_id
from storage.errors import BoardChangedError, NotRankedError, UnknownOwnerError
from storage.leaves.count_policy import RankMode
from storage.leaves.totals import read_board_totals
from storage.reads.point_reads import EntryRead
from storage.records import Board, Entry
from storage.store import Program

from .owners import count_shadows, find_column, find_own_entry, find_ranked_column, list_wanted_ranks


async def get_positions(context: Context, call: Call, board: Board | None = None) -> OwnerPositions:
    query: PositionsQuery = call.query
    board_id, owner = call.path["board"], call.path["owner"]
    board = board or context.catalog.find_known(board_id) or await context.catalog.find_board(board_id)
    if query.compare is not None:
        return await _compare_positions(context, call, board, query)
    indexes: Sequence[int] = board.sorted_indexes
    if query.columns:
        indexes = [find_ranked_column(board, name) for name in query.columns]
    locator = context.ranks.find_locator(board)
    if query.next:
        return await _positions_with_next(context, locator, owner, indexes, query.rank)
    starts = locator.find_default_starts(indexes, query.rank, in_segments=False)
    read = await context.reads.read_entry(board, owner, starts)
    entry = read.entry or await context.reads.find_shadow(board, owner)
    if entry is None:
        raise UnknownOwnerError(f"{owner!r} has no entry in {board.id!r}")
    cells, mode, shadows = entry.cells, query.rank, int(read.entry is None)
    found: dict[int, Position] = {}
    for index in indexes:
        if isinstance(cell := cells[index], str):
            position = locator.find_position(WantedRank(index, cell, owner, shadows), mode, starts, read)
            if position is None:
                break
            found[index] = position
    else:
        return _owner_positions(context, board, owner, indexes, found)
    found = await _rank_columns(context, locator, list_wanted_ranks(entry, indexes), mode, read.totals)
    return _owner_positions(context, board, owner, indexes, found)


async def _compare_positions(context: Context, call: Call, board: Board, query: PositionsQuery) -> OwnerPositions:
    owner = call.path["owner"]
    absent: UnknownOwnerError | NotRankedError | None = None
    try:
        own = msgspec.structs.replace(call, query=msgspec.structs.replace(query, compare=None))
        answer = await get_positions(context, own, board)
    except (UnknownOwnerError, NotRankedError) as error:  # compare anyway: there may be a previous value
        absent = error
        columns = query.columns or [board.spec.columns[index].name for index in board.sorted_indexes]
        answer = OwnerPositions(owner, [NoPosition(column=name) for name in columns])
    before_id = await _find_board_before(context, board)
    call.other_boards = () if before_id is None else (before_id,)
    await _add_previous(context, board, before_id, answer, query.rank)
    if absent is not None and not any(each.previous and each.previous.position for each in answer.positions):
        raise absent
    return answer


async def _positions_with_next(
    context: Context, locator: Locator, owner: str, indexes: Sequence[int], mode: RankMode
) -> OwnerPositions:
    board, begins = locator.board, {index: locator.begin_count(index, mode) for index in indexes}
    far = mode == "exact" or any(locator.find_curve(index) is None for index in indexes)

    def program() -> Program[dict[int, Position]]:
        totals = yield from read_board_totals(board)
        entry = yield from find_own_entry(locator, owner)
        found = {}
        for wanted in list_wanted_ranks(entry, indexes):
            begin = begins[wanted.column_index]
            located = yield from locator.locate_rank(wanted, mode, begin)
            position = found[wanted.column_index] = locator.make_position(wanted, located, totals)
            position.next = yield from _find_next_place(locator, wanted, position.rank, mode, begin)
        return found

    found = await context.store.at(board.reading_partition).read(program, heavy=far)
    return _owner_positions(context, board, owner, indexes, found)


def _owner_positions(
    context: Context, board: Board, owner: str, indexes: Sequence[int], found: Mapping[int, Position]
) -> OwnerPositions:
    if not found:
        raise NotRankedError(f"{owner!r} has no value in the columns asked for")
    positions: list[Position | NoPosition] = []
    for index in indexes:
        position = found.get(index)
        if position is not None:
            context.metrics.meter.add("rankcurve_reads", 1, "positions", position.method)
        positions.append(position or NoPosition(column=board.spec.columns[index].name))
    return OwnerPositions(owner, positions)


async def get_positions_on_boards(context: Context, call: Call) -> BoardPositions:
    body: ManyBoards = call.body
    check_count(len(body.boards), context.settings.query_values_max, "too_many_boards", "/boards", "boards")
    owner = call.path["owner"]
    await context.catalog.find_stored_boards(body.boards)
    found = [await find_column(context, each, body.column) for each in body.boards]
    positions = await find_positions(context, [BoardColumn(*each) for each in found], owner)
    answers: list[Position | NoPosition] = []
    for each, (board, index), position in zip(body.boards, found, positions, strict=True):
        context.metrics.meter.add("rankcurve_reads", 1, "owners", "row" if position is None else position.method)
        answers.append(position or NoPosition(column=board.spec.columns[index].name))
        answers[-1].board = each
    return BoardPositions(owner, answers)


class BoardColumn(NamedTuple):
    board: Board | None  # None: no post has reached the board
    column_index: int


async def find_positions(
    context: Context,
    asked: Sequence[BoardColumn],
    owner: str,
    mode: RankMode = "auto",
    read: Mapping[int, EntryRead] | None = None,
) -> list[Position | None]:
    """Find the owner's positions in the order of `asked`. A position is None if the owner has no value there.

    `read` has the owner's entries by board key, if the caller has read them already.

    Raises:
        UnknownBoardError, BoardChangedError: a board was deleted or has changed since this process read it.
    """
    boards = {board.key: board for board, _ in asked if board is not None}
    read = read or await context.reads.read_on_boards(boards.values(), owner)
    ranks: dict[int, AskedRank] = {}
    for number, (board, index) in enumerate(asked):
        entry = None if board is None else read[board.key].entry
        if board is not None and entry is not None:
            for wanted in list_wanted_ranks(entry, [index]):
                ranks[number] = AskedRank(context.ranks.find_locator(board), wanted)
    totals = {key: each.totals for key, each in read.items()}
    found = dict(zip(ranks, await context.ranks.find_positions([*ranks.values()], mode, totals), strict=True))
    return [found.get(number) for number in range(len(asked))]


async def _find_board_before(context: Context, board: Board) -> str | None:
    """Find the id of the previous period's board, or return None for an all-time board.

    Raises:
        ProblemError: the board belongs to no family, so it has no period.
    """
    named = None if board.family_key is None else parse_board_id(board.id)
    if named is None:
        detail = f"{board.id!r} is not the leaderboard of a period, so no period comes before it"
        raise ProblemError("bad_request", detail, pointer="compare")
    family = await context.catalog.families.find_family(named.family)
    if family.key != board.family_key:  # this process's copy of the family or of the board is outdated
        raise BoardChangedError
    before = family.spec.calendar.find_previous(named.period)
    return None if before is None else board_id(named.family, before.id, named.facets)


async def _add_previous(
    context: Context, board: Board, before_id: str | None, answer: OwnerPositions, mode: RankMode
) -> None:
    for position in answer.positions:
        position.previous = None
    if before_id is None:
        return
    indexes = [board.column_index[position.column] for position in answer.positions]
    columns = board.spec.columns
    values = {
        index: parse_decimal(str(value) if isinstance(value := position.value, int) else value, columns[index].scale)
        for index, position in zip(indexes, answer.positions, strict=True)
        if isinstance(position, Position)
    }
    before = await context.catalog.find_board(before_id)
    read = await context.reads.read_on_boards([before], answer.owner)
    asked = [BoardColumn(before, index) for index in indexes]
    then = await find_positions(context, asked, answer.owner, mode, read)
    ranked = await _rank_values(context, before, values, mode, read[before.key].entry)
    for index, position, earlier in zip(indexes, answer.positions, then, strict=True):
        position.previous = Previous(board=before_id, position=earlier, value_position=ranked.get(index))


async def _rank_columns(
    context: Context,
    locator: Locator,
    wanted: Sequence[WantedRank],
    mode: RankMode,
    totals: dict[int, int] | None = None,
) -> dict[int, Position]:
    known = {} if totals is None else {locator.board.key: totals}
    found = await context.ranks.find_positions([AskedRank(locator, each) for each in wanted], mode, known)
    return {each.column_index: position for each, position in zip(wanted, found, strict=True)}


async def _rank_values(
    context: Context, board: Board, values: Mapping[int, int], mode: RankMode, own: Entry | None
) -> dict[int, Position]:
    """Find the positions that new entries with these values would have on a board, by column index.

    `own` is their owner's entry on that board.
    """
    locator = context.ranks.find_locator(board)
    wanted = []
    for index, value in values.items():
        cell = locator.entries.rankings[index].padding.pad_arrival(value)
        wanted.append(count_shadows(locator, [own], WantedRank(index, cell, None)))
    return await _rank_columns(context, locator, wanted, mode)


def _find_next_place(
    locator: Locator, own: WantedRank, own_rank: int, mode: RankMode, begin: CountBegin
) -> Program[NextPlace | None]:
    """Find the next entry that is better than the owner's stored value `own`, or return None if there is none.

    `points` of the result is how much the owner still needs. If a time or tie columns order equal values, an equal
    value may not be enough. `points` is None if the owner would then need a value outside the column's range.
    """
    index, ranking = own.column_index, locator.entries.rankings[own.column_index]
    landed = yield from ranking.find_next_better(own.cell, own.owner or "")
    if landed is None:
        return None
    found = yield from locator.locate_rank(WantedRank(index, *landed), mode, begin)
    if ranking.timed and not landed[1]:  # an archive does not know whose row comes right before the owner's
        found = msgspec.structs.replace(found, rank=own_rank - 1, low=own_rank - 1, high=own_rank - 1)
    padding, scale = ranking.padding, locator.board.spec.columns[index].scale
    value = wanted = padding.decode_value(landed[0])
    if landed[0] != padding.pad_arrival(value):
        wanted += 1 if padding.high else -1
    within_range = padding.min_scaled <= wanted <= padding.max_scaled
    missing = abs(wanted - padding.decode_value(own.cell)) if within_range else None
    return NextPlace(
        # Estimates may give both entries the same rank. The next entry is strictly better, so its rank is made smaller.
        rank=max(found.low, min(found.rank, own_rank - 1)),
        low=found.low,
        high=found.high,
        exact=found.exact,
        as_of=format_us(found.as_of_us),
        value=to_wire_number(value, scale),
        points=None if missing is None else to_wire_number(missing, scale),
    )
