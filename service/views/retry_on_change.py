"""Runs a handler again if another process has changed a board: created it again, emptied it, moved it, added columns.

Before every new try, the boards are read from the store again, so the answer fits their current state.

Before every try, aliases of periods (`arena:this-week`) are replaced by the periods that they stand for. So handlers
see only ids of boards. All tries use the time at which the request arrived.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import TypeVar

import msgspec

from service.context import Context
from service.contract.queries import ValuePositionsQuery
from service.contract.requests import ManyBoards
from service.contract.routes import Answer, Call, Route
from storage.boards.catalog import Catalog
from storage.boards.family_ids import has_alias
from storage.errors import BoardChangedError, UnknownBoardError
from storage.records import Board

T = TypeVar("T")

_RENEWALS_MAX = 3  # the most rereads of the boards; if a board still changes afterwards, the request fails


def retry_on_change(route: Route) -> Route:
    """Return a route whose handler gets no aliases, and runs again if a board has changed or is unknown."""
    if ("{board}" not in route.path or route.method == "PUT") and route.body is not ManyBoards:
        return route
    handler = route.handler
    names_one_board = "{board}" in route.path and route.query is not ValuePositionsQuery

    @wraps(handler)
    async def handle(context: Context, call: Call) -> Answer:
        # Most ids have no colon. They need no further check.
        named = () if names_one_board and ":" not in call.path["board"] else _boards_of(call)
        may_be_aliased = any(map(has_alias, named))
        now_us = context.now_us() if may_be_aliased else 0
        for _ in range(_RENEWALS_MAX):
            if may_be_aliased:
                await _resolve_aliases(context, call, named, now_us)
            try:
                return await handler(context, call)
            except (UnknownBoardError, BoardChangedError):
                # Nothing was written: a transaction that finds its board deleted or changed is rolled back.
                await _reread(context.catalog, call)
        return await handler(context, call)

    return replace(route, handler=handle)


async def _reread(catalog: Catalog, call: Call) -> None:
    for each in _boards_of(call):
        if catalog.find_known(each) is None:
            raise UnknownBoardError(f"no leaderboard {each!r}")  # the handler has just failed to find it in the store
        await catalog.reread_board(each)


async def _resolve_aliases(context: Context, call: Call, named: Sequence[str], now_us: int) -> None:
    """Replace the aliases in a request. `named` are its boards as the caller has named them."""
    if len(named) > context.settings.query_values_max + 1:
        return  # the handler refuses so many boards
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
        return call.body.boards  # type: ignore[no-any-return]
    return (board_id, *call.query.with_) if isinstance(call.query, ValuePositionsQuery) else (board_id,)


async def retry_with_boards(
    catalog: Catalog, board_ids: Sequence[str], answer: Callable[[Mapping[str, Board]], Awaitable[T]]
) -> T:
    """Call `answer` with the boards that the store has, by id. Call it again if a board has changed.

    Raises:
        UnknownBoardError, BoardChangedError: the boards changed during every try.
    """
    for _ in range(_RENEWALS_MAX):
        found = await catalog.find_stored_boards(board_ids)
        try:
            return await answer(found)
        except (UnknownBoardError, BoardChangedError):
            for each in found:
                with suppress(UnknownBoardError):
                    await catalog.reread_board(each)
    return await answer(await catalog.find_stored_boards(board_ids))
