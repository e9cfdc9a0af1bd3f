"""Runs a handler again if another process has changed a board: created it again, emptied it, moved it, added columns.

Before each further try, the boards of the request are read from the store again, so the answer fits their current
state. If a handler does not find an owner because the owner is hidden, the answer says that the owner is hidden.

A handler also refuses requests by this process's copies of the boards, for example if a value is out of range. As a
board may have been deleted and created again, the handler then runs once more with confirmed copies.

On Citus, a transaction over several partitions becomes visible on one node after the other. Until then, a board that
moves may be missing in its partition and present in the catalog. So later tries come after a pause. A board is called
unknown only if the store has just said so: other requests may remove a board from this process's copy of the catalog.

Before each try, aliases of periods in ids of boards (`arena:this-week`) are replaced by the periods. So handlers see
only ids of real boards. All tries of a request use the time at which the request arrived.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import wraps

import msgspec

from service.context import Context
from service.contract.problems import ProblemError
from service.contract.queries import HistoryQuery, ValuePositionsQuery
from service.contract.requests import ManyBoards
from service.contract.routes import Answer, Call, Route
from storage import errors
from storage.boards.family_ids import has_alias

# The pause before each further try, in which the boards are read again. After the last one, the request fails.
PAUSES_S = (0.0, 0.05, 0.2, 0.8)
_REFUSALS = ProblemError, errors.PostError, errors.ArchivedError, errors.BadCursorError  # perhaps by an outdated copy


def retry_on_change(route: Route) -> Route:
    """Return a route whose handler replaces aliases, and runs again if this process knew an old state of a board."""
    names_boards = "{board}" in route.path or route.body is ManyBoards or route.query is HistoryQuery
    if not names_boards or route.method == "PUT":
        return route
    handler = route.handler
    names_one_board = "{board}" in route.path and route.query is not ValuePositionsQuery

    @wraps(handler)
    async def handle(context: Context, call: Call) -> Answer:
        # Only an id with a colon can have an alias, and most ids have no colon.
        named = () if names_one_board and ":" not in call.path["board"] else _boards_of(call)
        may_be_aliased = any(map(has_alias, named))
        now_us, pauses_s = context.now_us() if may_be_aliased else 0, iter(PAUSES_S)
        may_confirm = not route.ndjson and route.query is not HistoryQuery  # posts and histories do this themselves
        while True:
            if may_be_aliased:
                await _resolve_aliases(context, call, named, now_us)
            try:
                return await handler(context, call)
            except errors.UnknownOwnerError:
                board, owner = await context.catalog.find_board(call.path["board"]), call.path.get("owner")
                if owner is None or not await context.reads.find_hidden(board, [owner]):
                    raise
                raise errors.NotRankedError(f"{owner!r} is hidden") from None
            except (errors.UnknownBoardError, errors.BoardChangedError) as error:
                # Running the handler again is safe: a transaction that raises one of these errors is rolled back.
                board_ids = _boards_of(call)
                if isinstance(error, errors.UnknownBoardError):
                    for each in board_ids:
                        if context.catalog.find_known(each) is None:  # another request may have forgotten the board
                            board = await context.catalog.reread_board(each)  # raises an error if there is none
                            if board.is_unreached:
                                raise
                pause_s = next(pauses_s, None)
                if pause_s is None:  # the catalog still has the boards
                    raise (error if isinstance(error, errors.BoardChangedError) else errors.BoardChangedError) from None
                await asyncio.sleep(pause_s)
            except _REFUSALS:
                if not may_confirm or len(_boards_of(call)) > context.settings.query_values_max + 1:
                    raise
                may_confirm = False
            await context.catalog.confirm([*_boards_of(call), *call.other_boards])

    return replace(route, handler=handle)


async def _resolve_aliases(context: Context, call: Call, named: Sequence[str], now_us: int) -> None:
    """Replace aliases of periods in the ids of a request's boards. `named` are these ids as the caller sent them."""
    if len(named) > context.settings.query_values_max + 1:
        return  # the handler refuses a request with that many boards
    found = await context.catalog.resolve_aliases(named, now_us)
    call.has_alias = found != list(named)
    if "board" not in call.path:
        call.body = msgspec.structs.replace(call.body, boards=found)
        return
    call.path = {**call.path, "board": found[0]}
    if isinstance(call.query, ValuePositionsQuery):
        call.query = msgspec.structs.replace(call.query, with_=tuple(found[1:]))


def _boards_of(call: Call) -> Sequence[str]:
    """Return the ids of the boards that a request names in its path and query, or in its body."""
    board_id = call.path.get("board")
    if board_id is None:
        return () if call.body is None else call.body.boards
    return (board_id, *call.query.with_) if isinstance(call.query, ValuePositionsQuery) else (board_id,)
