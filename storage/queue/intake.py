"""Queues posts durably, many requests in one transaction. A request is answered once its posts are durable.

    submit ──> waiting ──> one transaction at a time ──> accepted
       └──> refused, without waiting, if the queue is too deep or its oldest post too old

Each transaction of a process takes the requests that wait when it begins, the oldest first. So the requests of one
process are queued in the order of their arrival.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from config.settings import QueueSettings, Settings
from storage.boards.families import find_families_by_key
from storage.entries.entries import read_live_epochs
from storage.errors import (
    BoardChangedError,
    OutcomeUnknownError,
    OverloadedError,
    QueueFullError,
    StorageError,
    StoreBusyError,
    WaitTooLongError,
)
from storage.posting.waiting_posts import GATHER_TURNS, RequestIntake
from storage.records import Post
from storage.store import Program, Store, read_single

from .ingest_queue import NewBlock, ingest_queue
from .post_blocks import encode_posts, shard_of


class EnqueueObserver(Protocol):
    def posts_queued(self, posts: int) -> None:
        """Count posts that are durable in the queue."""

    def queueing_refused(self, reason: str, posts: int) -> None:
        """Count posts that were not queued.

        The reason is "queue_full", "overloaded", "stopping", or "expired" if the posts waited too long.
        """


@dataclass(slots=True, eq=False)
class _Request:
    posts: Sequence[Post]
    done: asyncio.Future[None] = field(repr=False)


class Enqueuer(RequestIntake[_Request]):
    def __init__(
        self,
        store: Store,
        backlog: QueueBacklog,
        shards: int,
        limits: Settings,
        observer: EnqueueObserver,
        *,
        now_us: Callable[[], int],
        appended: Callable[[], None] = lambda: None,
    ) -> None:
        """Make an enqueuer, which calls `appended` after each transaction, so that workers here need not poll."""
        super().__init__("enqueuer", wait_s_max=limits.post_wait_s_max)
        self._store, self._backlog, self._shards = store, backlog, shards
        self._limits, self._observer, self._now_us, self._appended = limits, observer, now_us, appended
        self._waiting: deque[_Request] = deque()
        self._posts_waiting = 0

    async def submit(self, posts: Sequence[Post]) -> None:
        """Return once all of the posts are durable in the queue.

        Raises:
            QueueFullError, OverloadedError, WaitTooLongError, StoreBusyError: nothing was queued.
            OutcomeUnknownError: the posts may be queued.
            BoardChangedError: nothing was queued; a board or a family was deleted or emptied.
        """
        if self._closing:
            self._observer.queueing_refused("stopping", len(posts))
            raise QueueFullError("the service is shutting down")
        if self._posts_waiting + len(posts) > max(self._limits.queue_posts_max, len(posts)):
            self._observer.queueing_refused("queue_full", len(posts))
            raise QueueFullError(f"{self._posts_waiting} posts are waiting to be queued")
        try:
            await self._backlog.admit_posts(self._posts_waiting + len(posts))
        except StorageError as error:
            reason = "queue_full" if isinstance(error, QueueFullError) else "overloaded"
            self._observer.queueing_refused(reason, len(posts))
            raise
        request = _Request(posts, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._posts_waiting += len(posts)
        self._wake.set()
        self._expiry.add_waiting(request, request.done)
        await request.done

    def _expire(self, request: _Request) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
            self._posts_waiting -= len(request.posts)
            self._observer.queueing_refused("expired", len(request.posts))
            _fail(request, WaitTooLongError())
        else:
            _fail(request, OutcomeUnknownError())

    async def _run(self) -> None:
        while self._waiting or not self._closing:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            for _ in range(GATHER_TURNS):
                await asyncio.sleep(0)
            group = self._take_group()
            if group:
                await self._append(group)

    def _take_group(self) -> list[_Request]:
        group: list[_Request] = []
        posts = 0
        while self._waiting:
            request = self._waiting[0]
            if group and posts + len(request.posts) > self._limits.ingest_group_posts_max:
                break
            self._waiting.popleft()
            self._posts_waiting -= len(request.posts)
            if not request.done.done():  # otherwise the caller has given up
                group.append(request)
                posts += len(request.posts)
        return group

    async def _append(self, group: list[_Request]) -> None:
        posts = [post for request in group for post in request.posts]
        blocks, targets = self._blocks(posts), _targets(posts)

        def program() -> Program[None]:
            yield from targets.check()
            yield from ingest_queue.append_blocks(blocks)

        try:
            await self._store.write(program)
        except _TargetsChangedError as changed:
            unchanged = [request for request in group if _targets(request.posts).isdisjoint(changed)]
            for request in group:
                if request not in unchanged:
                    _fail(request, BoardChangedError())
            if unchanged:
                await self._append(unchanged)
            return
        except StorageError as error:  # each request would also fail in a transaction of its own
            for request in group:
                _fail(request, type(error)(error.detail))
            return
        except Exception as error:
            if len(group) > 1:  # try the requests one by one: a bad request must not make the others fail
                for request in group:
                    await self._append([request])
                return
            failure = StoreBusyError("the posts could not be queued")
            failure.__cause__ = error
            _fail(group[0], failure)
            return
        self._backlog.count_queued(len(posts))
        self._observer.posts_queued(len(posts))
        for request in group:
            if not request.done.done():
                request.done.set_result(None)
        self._appended()

    def _blocks(self, posts: Sequence[Post]) -> list[NewBlock]:
        now_us, most = self._now_us(), self._limits.ingest_block_posts_max
        by_shard: dict[int, list[Post]] = defaultdict(list)
        for post in posts:
            by_shard[shard_of(post.owner, self._shards)].append(post)
        return [
            NewBlock(shard, now_us, len(block), encode_posts(block, now_us))
            for shard, theirs in sorted(by_shard.items())
            for block in (theirs[at : at + most] for at in range(0, len(theirs), most))
        ]


class _TargetsChangedError(Exception):
    """Boards or families of the posts changed after the posts had been checked."""

    def __init__(self, boards: set[int], families: set[int]) -> None:
        super().__init__("boards or families of the posts changed")
        self.boards, self.families = boards, families


@dataclass(frozen=True, slots=True)
class _Targets:
    """The boards and families that posts go to. Other processes may have deleted or emptied them meanwhile."""

    epochs: dict[int, int]  # the epoch of each board without a family, by board key
    families: set[int]

    def check(self) -> Program[None]:
        """Raise `_TargetsChangedError` if a board was deleted or emptied, or if a family was deleted."""
        boards: set[int] = set()
        families: set[int] = set()
        if self.epochs:
            found = yield from read_live_epochs(sorted(self.epochs))
            boards = {key for key, epoch in self.epochs.items() if found.get(key) != epoch}
        if self.families:
            families = self.families - (yield from find_families_by_key(sorted(self.families))).keys()
        if boards or families:
            raise _TargetsChangedError(boards, families)

    def isdisjoint(self, changed: _TargetsChangedError) -> bool:
        return changed.boards.isdisjoint(self.epochs) and changed.families.isdisjoint(self.families)


def _targets(posts: Sequence[Post]) -> _Targets:
    alone = [part.board for post in posts if post.family is None for part in post.parts]
    families = {post.family.key for post in posts if post.family is not None}
    return _Targets({board.key: board.epoch for board in alone}, families)


def _fail(request: _Request, error: Exception) -> None:
    if not request.done.done():
        request.done.set_exception(error)


RETRY_S_MIN = 1.0


class QueueBacklog:
    """Refuses posts if the queue is too deep or too old.

    It reads the number of waiting posts and the age of the oldest one from the store, unless its last read was less
    than `ingest_look_s` ago. Between two reads, it counts only the posts that this process queues.
    """

    def __init__(
        self, store: Store, limits: QueueSettings, *, now_us: Callable[[], int], monotonic: Callable[[], float]
    ) -> None:
        self._store, self._limits, self._now_us, self._monotonic = store, limits, now_us, monotonic
        self._looked_s: float | None = None
        self._posts, self._oldest_us = 0, 0  # number of posts and time of the oldest, as last read from the store
        self._since = 0  # posts that this process has queued since the last read
        self._rate: float | None = None  # posts that workers applied per second between the last two reads
        self._looking: asyncio.Task[None] | None = None

    @property
    def posts(self) -> int:
        return self._posts + self._since

    @property
    def age_s(self) -> float:
        """Return how long the oldest post has waited; 0 if no post waits."""
        return max(0.0, (self._now_us() - self._oldest_us) / 1e6) if self._posts else 0.0

    def count_queued(self, posts: int) -> None:
        self._since += posts

    async def admit_posts(self, posts: int) -> None:
        """Check that `posts` more posts may wait.

        Raises:
            QueueFullError: too many posts wait.
            OverloadedError: the oldest post has waited for too long.
        """
        if self._looked_s is None or self._monotonic() - self._looked_s >= self._limits.ingest_look_s:
            await self.read_queue()
        if self.posts and self.posts + posts > self._limits.ingest_posts_max:
            over = self.posts + posts - self._limits.ingest_posts_max
            raise QueueFullError(f"{self.posts} posts wait in the queue", retry_after_s=self._takes_s(over))
        if self.age_s > self._limits.ingest_age_s_max:
            detail = f"the oldest post in the queue has waited for {self.age_s:.0f} s"
            raise OverloadedError(detail, retry_after_s=self._takes_s(self.posts // 2))

    async def read_queue(self) -> None:
        """Read the backlog from the store. Calls that come during a read wait for the same read."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(self._looked)
        await asyncio.shield(self._looking)

    def _looked(self, done: asyncio.Task[None]) -> None:
        self._looking = None
        if not done.cancelled():
            done.exception()  # mark the exception as retrieved, because all callers may be cancelled

    async def _look(self) -> None:
        began_s, since = self._monotonic(), self._since
        by_shard = await read_single(self._store, ingest_queue.backlog)
        posts = sum(shard.posts for shard in by_shard.values())
        if self._looked_s is not None and began_s > self._looked_s and self._posts:
            self._rate = max(0.0, self._posts + since - posts) / (began_s - self._looked_s)
        self._posts, self._since = posts, self._since - since
        self._oldest_us = min((shard.oldest_us for shard in by_shard.values()), default=0)
        self._looked_s = began_s

    def _takes_s(self, posts: int) -> float:
        return max(RETRY_S_MIN, posts / self._rate) if self._rate else RETRY_S_MIN
