"""Boards that another process made anew, emptied or widened: a caller is answered from what they are now.

The rule: a request is handled again only after the store was asked what its boards are now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import TypeVar

from storage.catalog import Catalog
from storage.errors import BoardChanged, UnknownBoard
from storage.records import Board, PartOutcome, Post

from .context import Context
from .routes import Answer, Call, Route

T = TypeVar("T")

_RENEWALS_MAX = 3  # a board that changes as often while one request is answered


def renewed(route: Route) -> Route:
    """The route; where it names boards, its handler runs again after it met one that is not what it was."""
    if "unknown_board" not in route.problems:
        return route
    handler = route.handler

    @wraps(handler)
    async def handle(context: Context, call: Call) -> Answer:
        for _ in range(_RENEWALS_MAX):
            try:
                return await handler(context, call)
            except (UnknownBoard, BoardChanged):
                # Nothing was done: a transaction that finds its board gone is rolled back.
                await _reread(context.catalog, call)
        return await handler(context, call)

    return replace(route, handler=handle)


async def _reread(catalog: Catalog, call: Call) -> None:
    board_id = call.path.get("board")
    for each in call.body.boards if board_id is None else (board_id,):
        if catalog.known(each) is None:
            raise UnknownBoard(f"no leaderboard {each!r}")  # the handler has just asked the store
        await catalog.reread(each)


async def with_made(
    catalog: Catalog, board_ids: Sequence[str], answer: Callable[[Mapping[str, Board]], Awaitable[T]]
) -> T:
    """What `answer` makes of those boards that the store has a row of, by id.

    Raises:
        UnknownBoard, BoardChanged: they changed as often as that.
    """
    for _ in range(_RENEWALS_MAX):
        found = await catalog.find_made(board_ids)
        try:
            return await answer(found)
        except (UnknownBoard, BoardChanged):
            for each in found:
                with suppress(UnknownBoard):
                    await catalog.reread(each)
    return await answer(await catalog.find_made(board_ids))


async def renewed_posts(catalog: Catalog, posts: Sequence[Post], outcomes: Sequence[list[PartOutcome]]) -> list[int]:
    """Indexes of the posts that were rejected because of a board that the store has after all, made anew."""
    gone: dict[str, Board] = {}
    unknown: dict[int, list[str]] = {}
    for index, (post, parts) in enumerate(zip(posts, outcomes, strict=True)):
        for target, part in zip(post.parts, parts, strict=True):
            if isinstance(part.error, UnknownBoard):
                gone[target.board.id] = target.board
                unknown.setdefault(index, []).append(target.board.id)
    behind = await _behind(catalog, gone.values())
    return [index for index, board_ids in unknown.items() if not behind.isdisjoint(board_ids)]


async def _behind(catalog: Catalog, boards: Iterable[Board]) -> set[str]:
    """The ids of those boards that are no longer what they were, but still there."""
    behind = set()
    for board in boards:
        try:
            now = await catalog.reread(board.id)
        except UnknownBoard:
            continue
        if now != board:
            behind.add(board.id)
    return behind
