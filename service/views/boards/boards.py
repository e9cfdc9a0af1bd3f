"""Handlers that create, change, show, list, empty and delete leaderboards."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from msgspec import UNSET

from service.context import Context
from service.contract.problems import ProblemError
from service.contract.queries import BoardsQuery
from service.contract.responses.boards import BoardAnswer, BoardList, CurveState, curve_state
from service.contract.routes import Call, Reply
from service.contract.values import BOARD_PATTERN, format_us, parse_matching
from storage.boards import journal
from storage.boards.board_changes import change_board
from storage.boards.board_creation import create_board
from storage.boards.board_removal import delete_board, reset_board
from storage.boards.boards import BoardState, find_last_changes, list_boards, read_states
from storage.errors import FamilyBoardError, UnknownBoardError
from storage.records import INT64_MAX, Board
from storage.store import Program

from .specs import make_rewards, make_season, make_spec, show_column, show_entry, show_rewards, show_season, show_ties

ACTIVE_BOARDS_MAX = 5_000  # a list by activity is refused if more than this many boards match its filters


async def put_board(context: Context, call: Call) -> Reply:
    board_id = parse_matching(call.path["board"], pattern=BOARD_PATTERN, what="a leaderboard id", pointer="board")
    spec, body = make_spec(call.body, context), call.body
    rewards = make_rewards(body.rewards, body.each, spec.columns)
    spec = replace(spec, season=make_season(body), rewards=rewards)
    settings = context.settings

    def program(away: Collection[int]) -> Program[tuple[Board, bool]]:
        now_us = context.now_us()
        board = yield from create_board(
            board_id=board_id,
            spec=spec,
            now_us=now_us,
            boards_max=settings.catalog_boards_max,
            own_tables_max=context.own_tables_max,
            partition=body.partition,
            away=away,
            spare=context.store.dialect.spares_tables,
        )
        if board.spec is spec:
            call.act = "board.created"
            return board, True
        changed = yield from change_board(board_id=board_id, wanted=spec, now_us=now_us)
        call.act = "board.changed" if changed.gate.closes_us == board.gate.closes_us else "board.closed"
        return changed, False

    (board, created), _ = await context.try_living(lambda away: context.store.write(lambda: program(away)))
    context.catalog.keep_board(board)
    return Reply(await _answer(context, board), status=201 if created else 200)


async def get_board(context: Context, call: Call) -> BoardAnswer:
    return await _answer(context, await context.catalog.reread_board(call.path["board"]))


class _Listed(NamedTuple):
    boards: list[Board]
    states: dict[int, BoardState]  # by board key; boards in partitions that do not answer are missing
    active: dict[int, int]  # see `_place`


async def get_boards(context: Context, call: Call) -> BoardList:
    query: BoardsQuery = call.query
    limit = query.limit or context.settings.page_entries_default
    # The filters are part of the list's name `of`. A cursor holds this name, so a list with other filters refuses it.
    filters = f"{query.prefix}?{query.contains}?{query.families}" if query.contains or not query.families else ""
    of = filters or query.prefix
    first: Any = (-INT64_MAX, "") if query.order == "activity" else ""
    after = context.cursors.find_start(query.cursor, of, first)
    listing = partial(_list_boards, query, after, limit + 1, context.now_us())
    (found, states, active), away = await context.read_living(listing)
    shown, next_page = context.cursors.cut_page(found, limit, of, partial(_place, active))
    listed = [
        _board_answer(context, board, states[board.key], active_us=active.get(board.key))
        for board in shown
        if board.key in states
    ]
    return BoardList(listed, next_page, [*away] or UNSET)


def _list_boards(query: BoardsQuery, after: Any, limit: int, now_us: int, away: Collection[int]) -> Program[_Listed]:
    listing = partial(list_boards, prefix=query.prefix, contains=query.contains, families=query.families)
    active: dict[int, int] = {}
    if query.order == "activity":
        boards = yield from listing(archived=False, after="", limit=ACTIVE_BOARDS_MAX + 1)
        if len(boards) > ACTIVE_BOARDS_MAX:
            detail = f"more than {ACTIVE_BOARDS_MAX} match; leave out leaderboards of families, or name a part"
            raise ProblemError("too_many_boards", detail, pointer="order")
        active = yield from find_last_changes(boards, away)
        place = partial(_place, active)
        boards = sorted((board for board in boards if place(board) > after), key=place)[:limit]
    else:
        boards = yield from listing(after=after, limit=limit)
    living = [board for board in boards if not any(leaf.partition in away for leaf in board.leaves)]
    states = yield from read_states(living, now_us)
    return _Listed(boards, dict(zip([board.key for board in living], states, strict=True)), active)


def _place(active: dict[int, int], board: Board) -> Any:
    """Return the values that give a board its place in a list: the time of its last change and its id, or only its id.

    `active` has the time of each board's last change, by board key. It is empty if the list is ordered by id.
    """
    return (-active[board.key], board.id) if active else board.id


async def remove_board(context: Context, call: Call) -> None:
    board_id = call.path["board"]

    def program() -> Program[Board]:
        gone = yield from delete_board(board_id=board_id)
        yield from journal.log_deleted(gone.leaves, context.now_us())
        return gone

    board = await _change_alone(context, board_id, program)
    context.forget_leaves(board.leaves)


async def _change_alone(context: Context, board_id: str, program: Callable[[], Program[Board]]) -> Board:
    """Run a program that changes one board, which must not belong to a family, and return its result.

    Raises:
        UnknownBoardError: there is no such board.
        FamilyBoardError: the board belongs to a family, even if no post has reached it yet.
    """
    try:
        return await context.store.write(program)
    except UnknownBoardError:
        if await context.catalog.families.find_unreached_board(board_id) is None:
            raise
        raise FamilyBoardError(f"{board_id!r} belongs to a family: it changes only with the family") from None


async def empty_board(context: Context, call: Call) -> BoardAnswer:
    board_id = call.path["board"]

    board = await _change_alone(context, board_id, lambda: reset_board(board_id=board_id, now_us=context.now_us()))
    context.catalog.keep_board(board)
    return await _answer(context, board)


async def _answer(context: Context, board: Board) -> BoardAnswer:
    now_us = context.now_us()
    [state] = await context.store.read(lambda: read_states([board], now_us))
    curves: dict[str, CurveState | None] = {}
    for index in board.sorted_indexes:
        found = context.curves.book.find_curve(board, index)
        curves[board.spec.columns[index].name] = None if found is None else curve_state(board, found, now_us)
    return _board_answer(context, board, state, curves=curves)


def show_spec(context: Context, board: Board) -> dict[str, Any]:
    """Show the fields of `SpecAnswer` by name. `board` is a leaderboard, or the template of a family's leaderboards."""
    return {
        "id": board.id,
        "columns": [show_column(column) for column in board.spec.columns],
        "ties": show_ties(board.spec),
        "table": board.spec.table,
        "partition": board.partition if context.store.partitions > 1 and not board.is_spread else UNSET,
        "predictor": board.spec.predictor,
        "entry": show_entry(board.spec.entry),
        "created_at": format_us(board.created_at_us),
    }


def _board_answer(
    context: Context,
    board: Board,
    state: BoardState,
    *,
    curves: dict[str, CurveState | None] | None = None,
    active_us: int | None = None,
) -> BoardAnswer:
    rewards = board.spec.rewards
    return BoardAnswer(
        **show_spec(context, board),
        segments=board.spec.segments,
        **show_season(board.spec.season),
        rewards=UNSET if rewards is None else show_rewards(rewards, board.spec.columns),
        each=UNSET if rewards is None else rewards.each,
        closed=state.closed,
        archived=board.gate.archived_us is not None,
        entries=state.entries,
        changes=state.changes,
        owners=UNSET if state.owners is None else state.owners,
        active_at=UNSET if active_us is None else format_us(active_us),
        curves=UNSET if curves is None else curves,
    )
