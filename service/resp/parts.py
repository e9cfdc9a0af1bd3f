"""The state that all Redis connections of a process share, and the store operations that they have in common."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from service.context import Context
from service.contract.api_keys import Identity
from storage.coalesce import StoreCoalescers
from storage.records import Board, BoardSpec, PartOutcome, Post

from .keys import Keys, Place
from .redis_order import RankOf, RedisOrder

SCANS_MAX = 10_000  # ZSCAN cursors that a process remembers


class _AskedRank(NamedTuple):
    board: Board
    column_index: int
    owner: str


class DoorParts:
    def __init__(self, context: Context, new_board: BoardSpec | None) -> None:
        self.context, self.settings = context, context.settings
        self.keys = Keys(context, new_board)
        self.connections: set[object] = set()
        self.arriving_bytes = 0  # the sum over all connections
        self._scans: OrderedDict[int, tuple[int, str]] = OrderedDict()
        self._last_cursor = 0
        self._ranks: StoreCoalescers[_AskedRank, RankOf | None] = StoreCoalescers(
            self._find_ranks,
            batch_max=context.settings.point_reads_per_batch_max,
            waiting_max=context.settings.reads_waiting_max,
            tasks_max=context.settings.point_read_tasks_max,
            crowd=context.ranks.crowd,
        )

    async def submit(self, posts: Sequence[Post], caller: Identity, *, traced: bool = False) -> list[PartOutcome]:
        """Apply posts, each to one board, and return their outcomes: if `traced`, with the cells before the posts."""
        context = self.context
        if context.key_limits.posts.is_set:
            context.key_limits.posts.admit(caller.key_id, len(posts))
        if traced:
            for post in posts:
                post.tells_before = True
        outcomes = [outcome for [outcome] in await context.posting.writer.submit(posts)] if posts else []
        for status, count in Counter([outcome.status for outcome in outcomes]).items():
            context.metrics.meter.add("rankcurve_posts", count, status.value)
        return outcomes

    def order(self, place: Place) -> RedisOrder:
        locator, gap_rows_max = self.context.ranks.find_locator(place.board), self.settings.exact_gap_rows_max
        return RedisOrder(locator, place.column_index, gap_rows_max=gap_rows_max)

    def ask_rank(self, place: Place, owner: str) -> asyncio.Future[RankOf | None]:
        """Return a future for an owner's rank. Its result is None if the owner is not in the ranking."""
        board = place.board
        kind = board.key, board.leaves[0].shape, place.column_index
        store = self.context.store.at(board.reading_partition)
        return self._ranks[store].ask(kind, _AskedRank(board, place.column_index, owner))

    async def _find_ranks(self, asked: Sequence[_AskedRank]) -> list[RankOf | None]:
        board, index, _ = asked[0]
        order = self.order(Place(board, index))
        owners = list(dict.fromkeys(each.owner for each in asked))
        mode, is_busy = self.settings.resp_rank, self.context.ranks.crowd.is_crowded()
        finding = partial(order.find_ranks, owners, mode, order.find_start(), is_busy=is_busy)
        found = await self.context.store.at(board.reading_partition).read(finding)
        for method, count in Counter([each.method for each in found.values()]).items():
            self.context.metrics.meter.add("rankcurve_reads", count, "positions", method)
        return [found.get(each.owner) for each in asked]

    def keep_cursor(self, board_key: int, owner: str) -> int:
        """Remember the owner after whom a ZSCAN is to continue, and return a number for use as its cursor."""
        self._last_cursor += 1
        self._scans[self._last_cursor] = board_key, owner
        if len(self._scans) > SCANS_MAX:
            self._scans.popitem(last=False)
        return self._last_cursor

    def find_cursor(self, board_key: int, cursor: int) -> str | None:
        """Return the owner after whom a ZSCAN continues, or None if this process does not know the cursor."""
        if cursor == 0:
            return ""
        key, owner = self._scans.get(cursor, (None, ""))
        return owner if key == board_key else None
