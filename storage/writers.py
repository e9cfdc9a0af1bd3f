"""A writer for each pool of connections, so that posts to boards whose pool stands still hold up no others.

The rule: the posts of one request go through one writer: that of their boards' pool, or the common one where the boards
belong to several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from .records import PartOutcome, Post
from .store import Store
from .writer import Writer, WriterObserver


class _Share:
    """One writer's part in the figures of all."""

    def __init__(self, whole: WriterObserver, shares: list[_Share]) -> None:
        self._whole, self._shares = whole, shares
        self._depth = self._groups = self._limit = 0
        shares.append(self)

    def group_written(self, *, posts: int, rows: int, seconds: float) -> None:
        """See `WriterObserver`."""
        self._whole.group_written(posts=posts, rows=rows, seconds=seconds)

    def race_lost(self) -> None:
        """See `WriterObserver`."""
        self._whole.race_lost()

    def queue_depth(self, posts: int) -> None:
        """See `WriterObserver`."""
        self._depth = posts
        self._whole.queue_depth(sum(share._depth for share in self._shares))

    def writes_in_flight(self, groups: int, *, limit: int) -> None:
        """See `WriterObserver`."""
        self._groups, self._limit = groups, limit
        limits = sum(share._limit for share in self._shares)
        self._whole.writes_in_flight(sum(share._groups for share in self._shares), limit=limits)

    def posts_refused(self, reason: str, posts: int) -> None:
        """See `WriterObserver`."""
        self._whole.posts_refused(reason, posts)


class Writers:
    """Hands posts to the writer of their pool; a writer starts with its first posts."""

    def __init__(self, store: Store, make: Callable[[Store, WriterObserver], Writer], observer: WriterObserver) -> None:
        self._store, self._make, self._observer = store, make, observer
        self._shares: list[_Share] = []
        self._writers: dict[Store, Writer] = {}
        self._of(store)

    def _of(self, store: Store) -> Writer:
        writer = self._writers.get(store)
        if writer is None:
            writer = self._writers[store] = self._make(store, _Share(self._observer, self._shares))
            writer.start()
        return writer

    @property
    def alive(self) -> bool:
        """Whether posts are taken from every queue."""
        return all(writer.alive for writer in self._writers.values())

    async def submit(self, posts: Sequence[Post]) -> list[list[PartOutcome]]:
        """See `Writer.submit`."""
        stores = {self._store.of(board_id) for board_id in _boards_of(posts)}
        return await self._of(stores.pop() if len(stores) == 1 else self._store).submit(posts)

    async def close(self) -> None:
        """Apply what was accepted, then stop."""
        await asyncio.gather(*(writer.close() for writer in self._writers.values()))


def _boards_of(posts: Sequence[Post]) -> set[str]:
    """The boards that choose the pool: for a family's posts its board of all time, whether it has one or not."""
    alone = {part.board.id for post in posts if post.family is None for part in post.parts}
    return alone | {f"{family_id}:all" for family_id in {post.family.id for post in posts if post.family is not None}}
