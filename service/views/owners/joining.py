"""The handler with which an owner joins a leaderboard that has entry rules."""

from functools import partial

from service.context import Context
from service.contract.requests import JoinBoard
from service.contract.responses.boards import JoinAnswer
from service.contract.routes import Call, Reply
from service.contract.values import format_us, parse_owner
from storage.boards.family_ids import parse_board_id
from storage.errors import BoardChangedError, LostRaceError
from storage.posting.joining import join_leaf
from storage.posting.rules import Attempt, find_refusal
from storage.records import Board, Gate

RACES_MAX = 20  # how often a join is tried while other transactions change the rows that it relies on


async def join_board(context: Context, call: Call) -> Reply:
    body: JoinBoard = call.body
    owner = parse_owner(body.owner, pointer="/owner")
    board = await context.catalog.find_board(call.path["board"])
    if (player := call.identity.player) is not None:
        player.check_owner(owner)
        player.check_board(board.id)
    opens_us = None
    if board.family_key is not None:
        board, opens_us = await _make_board(context, board)
    leaf = board.leaf_of(owner)
    joining = partial(join_leaf, leaf, owner, opens_us=opens_us)
    for _ in range(RACES_MAX):
        try:
            row, is_new = await context.store.at(leaf.partition).write(lambda: joining(now_us=context.now_us()))
        except LostRaceError:
            continue
        rules = board.spec.entry
        left = None if rules is None or rules.posts_max is None else max(0, rules.posts_max - row.posts)
        joined_at = None if row.joined_us is None else format_us(row.joined_us)
        return Reply(JoinAnswer(board.id, owner, joined_at, row.posts, left), status=201 if is_new else 200)
    raise BoardChangedError


async def _make_board(context: Context, board: Board) -> tuple[Board, int | None]:
    """Return a family's board, which is created if it is missing, and the time at which its period begins.

    The time is None if the board has always been open.

    Raises:
        PeriodClosedError, NotOpenError: the board does not exist yet, and its period has ended or not begun.
    """
    named = parse_board_id(board.id)
    assert named is not None
    family = await context.catalog.families.find_family(named.family)
    if family.key != board.family_key:  # this process's copy of the family or of the board is outdated
        raise BoardChangedError
    opens_us, ends_us = family.spec.calendar.bounds_us(named.period) or (None, None)
    if not board.is_unreached:
        return board, opens_us
    now_us = context.now_us()
    attempt = Attempt(None, now_us, board.id, True, gate=Gate(opens_us=opens_us, ends_us=ends_us), joins=True)
    if (error := find_refusal(attempt)) is not None:
        raise error
    limits = {"boards_max": context.settings.catalog_boards_max, "own_tables_max": context.own_tables_max}
    made = await context.catalog.make_boards(family, [board.id], now_us=now_us, **limits)
    return made[board.id], opens_us
