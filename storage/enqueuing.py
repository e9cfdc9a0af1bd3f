"""Posts into the ingest queue, many requests in one transaction: whoever is answered is durably accepted.

    submit ──> refused at the door (depth, age) ──> waiting ──> one transaction at a time ──> accepted

The rule: one transaction at a time a process, of all that waits when it begins. So requests of one process are queued
in the order in which they came, and what one caller sends after an answer stands behind what was answered.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from querybuilder import Dialect

from .backlog import Backlog
from .entries import live_epochs
from .errors import BoardChanged, OutcomeUnknown, QueueFull, StorageError, StoreBusy, WaitTooLong
from .families import families_by_key
from .ingest_queue import Appended, ingest_queue
from .intake import GATHER_TURNS, Intake
from .queued_posts import block_text, shard_of
from .records import Post
from .store import Program, Store


@dataclass(frozen=True, slots=True)
class EnqueueLimits:
    """The bounds; each is a setting of the same name."""

    queue_posts_max: int  # waiting for their transaction
    ingest_group_posts_max: int
    ingest_block_posts_max: int
    post_wait_s_max: float


class EnqueueObserver(Protocol):
    """What queueing tells its operators."""

    def posts_queued(self, posts: int) -> None:
        """They are durable."""

    def queueing_refused(self, reason: str, posts: int) -> None:
        """Nothing was queued: "queue_full", "overloaded", "stopping" or "expired" while they waited."""


@dataclass(slots=True, eq=False)
class _Request:
    posts: Sequence[Post]
    done: asyncio.Future[None] = field(repr=False)


class Enqueuer(Intake[_Request]):
    """Queues posts through the store."""

    def __init__(
        self,
        store: Store,
        backlog: Backlog,
        shards: int,
        limits: EnqueueLimits,
        observer: EnqueueObserver,
        *,
        now_us: Callable[[], int],
        appended: Callable[[], None] = lambda: None,
    ) -> None:
        """`appended` is called after each transaction: who applies posts here need not look for them."""
        super().__init__("enqueuer", wait_s_max=limits.post_wait_s_max)
        self._store, self._backlog, self._shards = store, backlog, shards
        self._limits, self._observer, self._now_us, self._appended = limits, observer, now_us, appended
        self._queue = ingest_queue(store.dialect)
        self._waiting: deque[_Request] = deque()
        self._posts_waiting = 0

    async def submit(self, posts: Sequence[Post]) -> None:
        """Return once the posts are durable in the queue, all of them.

        Raises:
            QueueFull, Overloaded: nothing was queued.
            OutcomeUnknown: they may be queued.
            WaitTooLong, StoreBusy: nothing was queued.
            BoardChanged: nothing was queued; a board or a family is not what it was.
        """
        if self._closing:
            self._observer.queueing_refused("stopping", len(posts))
            raise QueueFull("shutting down")
        if self._posts_waiting + len(posts) > max(self._limits.queue_posts_max, len(posts)):
            self._observer.queueing_refused("queue_full", len(posts))
            raise QueueFull(f"{self._posts_waiting} posts are waiting to be queued")
        try:
            await self._backlog.admit(self._posts_waiting + len(posts))
        except StorageError as error:
            reason = "queue_full" if isinstance(error, QueueFull) else "overloaded"
            self._observer.queueing_refused(reason, len(posts))
            raise
        request = _Request(posts, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._posts_waiting += len(posts)
        self._wake.set()
        self._expiry.add(request, request.done)
        await request.done

    def _expire(self, request: _Request) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
            self._posts_waiting -= len(request.posts)
            self._observer.queueing_refused("expired", len(request.posts))
            _fail(request, WaitTooLong())
        else:
            _fail(request, OutcomeUnknown())

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
            if not request.done.done():  # who gave up before their turn need not be queued
                group.append(request)
                posts += len(request.posts)
        return group

    async def _append(self, group: list[_Request]) -> None:
        posts = [post for request in group for post in request.posts]
        blocks, targets = self._blocks(posts), _targets(posts)

        def program() -> Program[None]:
            yield from targets.check(self._store.dialect)
            yield from self._queue.append(blocks)

        try:
            await self._store.write(program)
        except _Gone as gone:
            still = [request for request in group if _targets(request.posts).isdisjoint(gone)]
            for request in group:
                if request not in still:
                    _fail(request, BoardChanged())
            if still:
                await self._append(still)
            return
        except StorageError as error:  # one by one they would meet the same
            for request in group:
                _fail(request, type(error)(error.detail))
            return
        except Exception as error:
            if len(group) > 1:  # one poisonous request does not fail its neighbours
                for request in group:
                    await self._append([request])
                return
            failure = StoreBusy("the posts could not be queued")
            failure.__cause__ = error
            _fail(group[0], failure)
            return
        self._backlog.queued(len(posts))
        self._observer.posts_queued(len(posts))
        for request in group:
            if not request.done.done():
                request.done.set_result(None)
        self._appended()

    def _blocks(self, posts: Sequence[Post]) -> list[Appended]:
        now_us, most = self._now_us(), self._limits.ingest_block_posts_max
        by_shard: dict[int, list[Post]] = defaultdict(list)
        for post in posts:
            by_shard[shard_of(post.owner, self._shards)].append(post)
        return [
            Appended(shard, now_us, len(block), block_text(block, now_us))
            for shard, theirs in sorted(by_shard.items())
            for block in (theirs[at : at + most] for at in range(0, len(theirs), most))
        ]


class _Gone(Exception):
    """boards or families are no longer what they were"""

    def __init__(self, boards: set[int], families: set[int]) -> None:
        super().__init__(self.__doc__)
        self.boards, self.families = boards, families


@dataclass(frozen=True, slots=True)
class _Targets:
    """Where posts go: this process may not have noticed yet that others deleted or emptied it."""

    epochs: dict[int, int]  # by the key of each board that goes by itself
    families: set[int]

    def check(self, dialect: Dialect) -> Program[None]:
        """Raises _Gone where one of them is not what it was."""
        gone: set[int] = set()
        families: set[int] = set()
        if self.epochs:
            found = yield from live_epochs(dialect, sorted(self.epochs))
            gone = {key for key, epoch in self.epochs.items() if found.get(key) != epoch}
        if self.families:
            families = self.families - (yield from families_by_key(dialect, sorted(self.families))).keys()
        if gone or families:
            raise _Gone(gone, families)

    def isdisjoint(self, gone: _Gone) -> bool:
        """Whether all of them are."""
        return gone.boards.isdisjoint(self.epochs) and gone.families.isdisjoint(self.families)


def _targets(posts: Sequence[Post]) -> _Targets:
    alone = [part.board for post in posts if post.family is None for part in post.parts]
    families = {post.family.key for post in posts if post.family is not None}
    return _Targets({board.key: board.epoch for board in alone}, families)


def _fail(request: _Request, error: Exception) -> None:
    if not request.done.done():
        request.done.set_exception(error)
