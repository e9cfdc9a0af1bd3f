"""How much waits in the ingest queue and for how long: what refuses posts before the queue grows without end.

The rule: what the store said last is never older than a bound where it decides. In between a process adds what it
queues itself; others' posts come in with the next look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from .errors import Overloaded, QueueFull
from .ingest_queue import ingest_queue
from .store import Store

RETRY_S_MIN = 1.0


@dataclass(frozen=True, slots=True)
class BacklogLimits:
    """The bounds; each is a setting of the same name."""

    ingest_posts_max: int
    ingest_age_s_max: float
    ingest_look_s: float


class Backlog:
    """What a process knows of the queue."""

    def __init__(
        self, store: Store, limits: BacklogLimits, *, now_us: Callable[[], int], monotonic: Callable[[], float]
    ) -> None:
        self._store, self._limits, self._now_us, self._monotonic = store, limits, now_us, monotonic
        self._looked_s: float | None = None
        self._posts, self._oldest_us = 0, 0  # as the store said
        self._since = 0  # queued here since then
        self._rate: float | None = None  # posts applied a second, between the last two looks
        self._looking: asyncio.Task[None] | None = None

    @property
    def posts(self) -> int:
        """How many wait, about."""
        return self._posts + self._since

    @property
    def age_s(self) -> float:
        """For how long the oldest has waited."""
        return max(0.0, (self._now_us() - self._oldest_us) / 1e6) if self._posts else 0.0

    def queued(self, posts: int) -> None:
        """So many were queued here."""
        self._since += posts

    async def admit(self, posts: int) -> None:
        """Return where so many more may wait.

        Raises:
            QueueFull: too many wait.
            Overloaded: they wait for too long.
        """
        if self._looked_s is None or self._monotonic() - self._looked_s >= self._limits.ingest_look_s:
            await self.look()
        if self.posts and self.posts + posts > self._limits.ingest_posts_max:
            over = self.posts + posts - self._limits.ingest_posts_max
            raise QueueFull(f"{self.posts} posts wait in the queue", retry_after_s=self._takes_s(over))
        if self.age_s > self._limits.ingest_age_s_max:
            detail = f"posts in the queue have waited for {self.age_s:.0f} s"
            raise Overloaded(detail, retry_after_s=self._takes_s(self.posts // 2))

    async def look(self) -> None:
        """Ask the store; who asks meanwhile gets the same answer."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(self._looked)
        await asyncio.shield(self._looking)

    def _looked(self, done: asyncio.Task[None]) -> None:
        self._looking = None
        if not done.cancelled():
            done.exception()  # all who asked may have gone

    async def _look(self) -> None:
        began_s, since = self._monotonic(), self._since
        by_shard = await ingest_queue(self._store.dialect).look(self._store)
        posts = sum(shard.posts for shard in by_shard.values())
        if self._looked_s is not None and began_s > self._looked_s and self._posts:
            self._rate = max(0.0, self._posts + since - posts) / (began_s - self._looked_s)
        self._posts, self._since = posts, self._since - since
        self._oldest_us = min((shard.oldest_us for shard in by_shard.values()), default=0)
        self._looked_s = began_s

    def _takes_s(self, posts: int) -> float:
        return max(RETRY_S_MIN, posts / self._rate) if self._rate else RETRY_S_MIN
