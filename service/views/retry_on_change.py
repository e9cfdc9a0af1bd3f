"""Runs a handler again if another process has changed a board: created it again, emptied it, or added columns.

Before every new try, the boards are read from the store again, so the answer fits their current state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import TypeVar

from service.context import Context
from service.contract.routes import Answer, Call, Route
from storage.boards.catalog import Catalog
from storage.errors import BoardChangedError, UnknownBoardError
from storage.records import Board, PartOutcome, Post

T = TypeVar("T")

_RENEWALS_MAX = 3  # the most rereads of the boards; if a board still changes afterwards, the request fails


def retry_on_change(route: Route) -> Route:
    """Return a route whose handler runs again if a board has changed or is unknown."""
    if "unknown_board" not in route.problems:
        return route
    handler = route.handler

    @wraps(handler)
    async def handle(context: Context, call: Call) -> Answer:
        for _ in range(_RENEWALS_MAX):
            try:
                return await handler(context, call)
            except (UnknownBoardError, BoardChangedError):
                # Nothing was written: a transaction that finds its board deleted or changed is rolled back.
                await _reread(context.catalog, call)
        return await handler(context, call)

    return replace(route, handler=handle)


async def _reread(catalog: Catalog, call: Call) -> None:
    board_id = call.path.get("board")
    for each in call.body.boards if board_id is None else (board_id,):
        if catalog.find_known(each) is None:
            raise UnknownBoardError(f"no leaderboard {each!r}")  # the handler has just failed to find it in the store
        await catalog.reread_board(each)


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


async def find_retriable_posts(
    catalog: Catalog, posts: Sequence[Post], outcomes: Sequence[list[PartOutcome]]
) -> list[int]:
    """Return the indexes of posts that were rejected because this process had an outdated copy of a board."""
    gone: dict[str, Board] = {}
    unknown: dict[int, list[str]] = {}
    for index, (post, parts) in enumerate(zip(posts, outcomes, strict=True)):
        for target, part in zip(post.parts, parts, strict=True):
            if isinstance(part.error, UnknownBoardError):
                gone[target.board.id] = target.board
                unknown.setdefault(index, []).append(target.board.id)
    behind = await _behind(catalog, gone.values())
    return [index for index, board_ids in unknown.items() if not behind.isdisjoint(board_ids)]


async def _behind(catalog: Catalog, boards: Iterable[Board]) -> set[str]:
    """Return the ids of boards that still exist but differ from this process's copy."""
    behind = set()
    for board in boards:
        try:
            now = await catalog.reread_board(board.id)
        except UnknownBoardError:
            continue
        if now != board:
            behind.add(board.id)
    return behind
