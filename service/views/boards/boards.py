"""Handlers that create, change, show, list, empty and delete leaderboards."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from service.context import Context
from service.contract.problems import ProblemError
from service.contract.queries import BoardsQuery
from service.contract.requests import TIE_COLUMNS_MAX, BoardBody, ColumnBody, PutBoard, TiesSent
from service.contract.responses.boards import (
    BoardAnswer,
    BoardList,
    ColumnAnswer,
    CurveState,
    TiesShown,
    curve_state,
    tier_answers,
)
from service.contract.routes import Call, Reply
from service.contract.values import format_us, parse_decimal, to_micros, to_wire_number
from storage.boards import journal
from storage.boards.board_changes import change_board
from storage.boards.board_creation import create_board
from storage.boards.board_removal import delete_board, reset_board
from storage.boards.boards import BoardState, find_last_changes, list_boards, read_states
from storage.errors import FamilyBoardError, SpecInvalidError, UnknownBoardError
from storage.log.log_record import ChangeKind
from storage.records import (
    INT64_MAX,
    Best,
    Board,
    BoardSpec,
    ColumnKind,
    ColumnSpec,
    Merge,
    PredictorSpec,
    RefreshMethod,
    Season,
    TierSpec,
    Ties,
)
from storage.store import Program

# By default, a column takes values from minus this number to this number. If the column's scale is too great for these
# numbers to fit into 64 bits, the default range is the widest one that fits.
DEFAULT_LIMIT_UNITS = 10**15
ACTIVE_BOARDS_MAX = 5_000  # a list by activity is refused if more boards than this match its filters


async def put_board(context: Context, call: Call) -> Reply:
    board_id = call.path["board"]
    spec = replace(make_spec(call.body, context), season=make_season(call.body))
    settings = context.settings

    def program(away: Collection[int]) -> Program[tuple[Board, bool]]:
        now_us = context.now_us()
        board = yield from create_board(
            board_id=board_id,
            spec=spec,
            now_us=now_us,
            boards_max=settings.catalog_boards_max,
            own_tables_max=context.own_tables_max,
            partition=call.body.partition,
            away=away,
            spare=context.store.dialect.spares_tables,
        )
        if board.spec is spec:
            return board, True
        return (yield from change_board(board_id=board_id, wanted=spec, now_us=now_us)), False

    (board, created), _ = await context.try_living(lambda away: context.store.write(lambda: program(away)))
    context.catalog.keep_board(board)
    return Reply(await _answer(context, board), status=201 if created else 200)


def make_season(body: PutBoard) -> Season | None:
    """Return the season of a board, which says when it opens and closes. Return None if the body has neither time.

    Raises:
        SpecInvalidError: the times contradict each other.
    """
    opens_us = None if body.opens_at is None else to_micros(body.opens_at)
    ends_us = None if body.closes_at is None else to_micros(body.closes_at)
    if opens_us is None and ends_us is None:
        if body.keep_seconds is not None:
            raise SpecInvalidError(
                "keep_seconds needs closes_at: a leaderboard that never closes keeps its rows", pointer="/keep_seconds"
            )
        return None
    if opens_us is not None and ends_us is not None and not opens_us < ends_us:
        raise SpecInvalidError("opens_at must be before closes_at", pointer="/closes_at")
    return Season(opens_us, ends_us, body.grace_seconds, body.keep_seconds)


def make_spec(body: BoardBody, context: Context) -> BoardSpec:
    """Return the specification of a board or a family, with every default filled in.

    Raises:
        SpecInvalidError: parts of the specification contradict each other.
        ProblemError: a `min` or `max` is not a number, or the column can't store it.
    """
    names = [column.name for column in body.columns]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise SpecInvalidError(f"column {name!r} is given twice", pointer=f"/columns/{index}/name")
    columns = tuple(_column(column, index) for index, column in enumerate(body.columns))
    for index, column in enumerate(columns):
        _check_followed(column, columns, f"/columns/{index}/of")
    ties, tie_columns = _ties(body.ties, columns)
    settings = context.settings
    refresh_seconds = int(settings.default_refresh_seconds)
    defaults = PredictorSpec(settings.default_samples, settings.default_exact_top, refresh_seconds, RefreshMethod.AUTO)
    chosen = {name: value for name, value in msgspec.structs.asdict(body.predictor).items() if value is not UNSET}
    return BoardSpec(
        columns=columns,
        ties=ties,
        tie_columns=tie_columns,
        predictor=replace(defaults, **chosen),
        table=body.table,
        segments=body.segments,
    )


def _column(body: ColumnBody, index: int) -> ColumnSpec:
    at = f"/columns/{index}"
    of = None if body.of is UNSET else body.of
    if body.tiers and not body.sorted:
        raise SpecInvalidError("only a ranked column has tiers", pointer=f"{at}/tiers")
    best = (Best.LOW if body.merge is Merge.MIN else Best.HIGH) if body.best is UNSET else body.best
    if body.type is ColumnKind.TEXT:
        if body.sorted or body.merge not in (Merge.LAST, Merge.WITH):
            raise SpecInvalidError("a text column can't be sorted and merges by last or with", pointer=at)
        if body.scale or body.min is not UNSET or body.max is not UNSET:
            raise SpecInvalidError("a text column has no scale, min or max", pointer=at)
        return ColumnSpec(body.name, False, body.merge, best, body.type, 0, 0, 0, of)
    limit = min(DEFAULT_LIMIT_UNITS * 10**body.scale, INT64_MAX)
    least = -limit if body.min is UNSET else parse_decimal(body.min, body.scale, pointer=f"{at}/min")
    most = limit if body.max is UNSET else parse_decimal(body.max, body.scale, pointer=f"{at}/max")
    if not least < most:  # both fit into 64 bits: `parse_decimal` has checked that
        raise SpecInvalidError("min must be less than max", pointer=f"{at}/min")
    tiers = _tiers(body, least, most, at=f"{at}/tiers")
    return ColumnSpec(body.name, body.sorted, body.merge, best, body.type, body.scale, least, most, of, tiers)


def _tiers(body: ColumnBody, least: int, most: int, *, at: str) -> tuple[TierSpec, ...]:
    """Return the tiers of a column. `least` and `most` are the column's smallest and largest value."""
    names = [tier.name for tier in body.tiers]
    found = []
    for number, tier in enumerate(body.tiers):
        if tier.name in names[:number]:
            raise SpecInvalidError(f"tier {tier.name!r} is given twice", pointer=f"{at}/{number}/name")
        to_rank = None if tier.to_rank is UNSET else tier.to_rank
        to_percent = None if tier.to_percent is UNSET else tier.to_percent
        value = None
        if tier.value is not UNSET:
            value = parse_decimal(tier.value, body.scale, pointer=f"{at}/{number}/value")
            if not least <= value <= most:
                detail = f"the tier's value is outside the range of {body.name!r}"
                raise ProblemError("value_out_of_range", detail, pointer=f"{at}/{number}/value")
        limits = [each for each in (to_rank, to_percent, value) if each is not None]
        if len(limits) != 1:
            detail = f"a tier has one of to_rank, to_percent and value, not {len(limits) or 'none'} of them"
            raise SpecInvalidError(detail, pointer=f"{at}/{number}")
        found.append(TierSpec(tier.name, to_rank, to_percent, value))
    return tuple(found)


def _check_followed(column: ColumnSpec, columns: Sequence[ColumnSpec], at: str) -> None:
    """Raise SpecInvalidError unless the column follows no other one, or a column that can be followed."""
    if (column.merge is Merge.WITH) != (column.of is not None):
        raise SpecInvalidError("a column has `of` if and only if it merges by with", pointer=at)
    if column.of is None:
        return
    followed = next((each for each in columns if each.name == column.of), None)
    if followed is None or followed.kind is ColumnKind.TEXT or followed.merge is Merge.WITH:
        raise SpecInvalidError(f"{column.of!r} is not a column of numbers that can be followed", pointer=at)
    if column.sorted:
        raise SpecInvalidError("a column that follows another one can't be sorted", pointer=at)


def _ties(ties: TiesSent, columns: Sequence[ColumnSpec]) -> tuple[Ties, tuple[str, ...]]:
    """Return whether time breaks ties, and the columns that break ties before it."""
    if isinstance(ties, Ties):
        return ties, ()
    timed = ties[-1] == Ties.EARLIEST
    names = tuple(ties[:-1] if timed else ties)
    numeric = {column.name for column in columns if column.kind is ColumnKind.NUMBER}
    for index, name in enumerate(names):
        if name not in numeric or name in names[:index] or index >= TIE_COLUMNS_MAX:
            detail = f"{name!r}: ties lists up to {TIE_COLUMNS_MAX} different columns of numbers, then perhaps earliest"
            raise SpecInvalidError(detail, pointer=f"/ties/{index}")
    return Ties.EARLIEST if timed else Ties.SHARED, names


def show_ties(spec: BoardSpec) -> TiesShown:
    """Return the rules for equal values as the API shows them."""
    if not spec.tie_columns:
        return spec.ties
    return [*spec.tie_columns, *([spec.ties] if spec.ties is Ties.EARLIEST else [])]


async def get_board(context: Context, call: Call) -> BoardAnswer:
    return await _answer(context, await context.catalog.reread_board(call.path["board"]))


async def get_boards(context: Context, call: Call) -> BoardList:
    query: BoardsQuery = call.query
    limit = query.limit or context.settings.page_entries_default
    # The filters are a part of the list's name `of`. A cursor holds this name, so a list with other filters refuses it.
    filters = f"{query.prefix}?{query.contains}?{query.families}" if query.contains or not query.families else ""
    of = filters or query.prefix
    listing = partial(list_boards, prefix=query.prefix, contains=query.contains, families=query.families)
    by_activity = query.order == "activity"
    first: Any = (-INT64_MAX, "") if by_activity else ""
    after = context.cursors.find_start(query.cursor, of, first)

    def program() -> Program[tuple[list[tuple[Board, BoardState]], dict[int, int]]]:
        active: dict[int, int] = {}
        if by_activity:
            boards = yield from listing(archived=False, after="", limit=ACTIVE_BOARDS_MAX + 1)
            if len(boards) > ACTIVE_BOARDS_MAX:
                detail = f"more than {ACTIVE_BOARDS_MAX} match; leave out leaderboards of families, or name a part"
                raise ProblemError("too_many_boards", detail, pointer="order")
            active = yield from find_last_changes(boards)
            place = partial(_place, active)
            boards = sorted((board for board in boards if place(board) > after), key=place)[: limit + 1]
        else:
            boards = yield from listing(after=after, limit=limit + 1)
        return list(zip(boards, (yield from read_states(boards, context.now_us())), strict=True)), active

    found, active = await context.store.read(program)
    shown, next_page = context.cursors.cut_page(found, limit, of, lambda last: _place(active, last[0]))
    listed = [make_board_answer(context, *each, active_us=active.get(each[0].key)) for each in shown]
    return BoardList(listed, next_page)


def _place(active: dict[int, int], board: Board) -> Any:
    """Return the values by which a list orders this board: the time of its last change and its id, or only its id.

    `active` has the time of the last change of each board, by board key. It is empty if the list is ordered by id.
    """
    return (-active[board.key], board.id) if active else board.id


async def remove_board(context: Context, call: Call) -> None:
    board_id = call.path["board"]

    def program() -> Program[Board]:
        gone = yield from delete_board(board_id=board_id)
        yield from journal.log_deleted(gone.leaves, context.now_us())
        return gone

    board = await _change_alone(context, board_id, program)
    context.catalog.forget_board(board_id)
    for leaf in board.leaves:
        context.curves.book.forget_board(leaf.key)


async def _change_alone(context: Context, board_id: str, program: Callable[[], Program[Board]]) -> Board:
    """Run a program that changes one board, which must not belong to a family. Return the program's result.

    Raises:
        UnknownBoardError: there is no such board.
        FamilyBoardError: the board belongs to a family. This is raised even if no post has reached the board yet.
    """
    try:
        return await context.store.write(program)
    except UnknownBoardError:
        if await context.catalog.families.find_unreached_board(board_id) is None:
            raise
        raise FamilyBoardError(f"{board_id!r} belongs to a family: it changes only with the family") from None


async def empty_board(context: Context, call: Call) -> BoardAnswer:
    board_id = call.path["board"]

    def program() -> Program[Board]:
        now_us = context.now_us()
        emptied = yield from reset_board(board_id=board_id, now_us=now_us)
        yield from journal.log_event(emptied.leaves, ChangeKind.RESET, now_us)
        return emptied

    board = await _change_alone(context, board_id, program)
    context.catalog.keep_board(board)
    return await _answer(context, board)


async def _answer(context: Context, board: Board) -> BoardAnswer:
    now_us = context.now_us()
    [state] = await context.store.read(lambda: read_states([board], now_us))
    curves: dict[str, CurveState | None] = {}
    for index in board.sorted_indexes:
        found = context.curves.book.find_curve(board, index)
        curves[board.spec.columns[index].name] = None if found is None else curve_state(board, found, now_us)
    return make_board_answer(context, board, state, curves=curves)


def make_board_answer(
    context: Context,
    board: Board,
    state: BoardState,
    *,
    curves: dict[str, CurveState | None] | None = None,
    active_us: int | None = None,
) -> BoardAnswer:
    return BoardAnswer(
        id=board.id,
        columns=[_column_answer(column) for column in board.spec.columns],
        ties=show_ties(board.spec),
        table=board.spec.table,
        partition=board.partition if context.store.partitions > 1 and not board.is_spread else UNSET,
        segments=board.spec.segments,
        predictor=board.spec.predictor,
        **_times(board.spec.season),
        closed=state.closed,
        archived=board.gate.archived_us is not None,
        entries=state.entries,
        created_at=format_us(board.created_at_us),
        active_at=UNSET if active_us is None else format_us(active_us),
        curves=UNSET if curves is None else curves,
    )


def _times(season: Season | None) -> dict[str, Any]:
    if season is None:
        return {}
    return {
        "opens_at": None if season.opens_us is None else format_us(season.opens_us),
        "closes_at": None if season.ends_us is None else format_us(season.ends_us),
        "grace_seconds": season.grace_seconds,
        "keep_seconds": season.keep_seconds,
    }


def _column_answer(column: ColumnSpec) -> ColumnAnswer:
    text = column.kind is ColumnKind.TEXT
    return ColumnAnswer(
        name=column.name,
        sorted=column.sorted,
        merge=column.merge,
        best=column.best,
        scale=column.scale,
        min=None if text else to_wire_number(column.min_scaled, column.scale),
        max=None if text else to_wire_number(column.max_scaled, column.scale),
        type=column.kind,
        of=column.of or UNSET,
        tiers=tier_answers(column),
    )
