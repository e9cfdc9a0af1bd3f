"""Queues posts durably, many requests in one transaction, and answers each request once its posts are durable.

    submit ──> waiting ──> one transaction at a time ──> accepted
       └──> refused, without waiting, if the queue is too deep or its oldest post too old

A transaction for each request would spend most of its time on the commit. So a process takes the waiting requests as
one group, oldest first, and queues them before it takes the next group. This also keeps the requests of one process in
the order of their arrival.

All posts of a request are queued in one transaction. If any request in a group has posts for the queues of several
partitions, the whole group is queued in one transaction, otherwise in one transaction for each partition.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain

from config.settings import QueueSettings, Settings
from storage.coalesce import Coalescer
from storage.errors import (
    BoardChangedError,
    OverloadedError,
    QueueFullError,
    StorageError,
    StoreAwayError,
    StoreBusyError,
    WaitTooLongError,
)
from storage.leaves.catalog_rows import find_families_by_key
from storage.leaves.gates import read_gates_of
from storage.meter import Meter
from storage.records import Gate, Leaf, Place, Post
from storage.store import Program, Store, in_partition, read_single

from . import ingest_queue
from .ingest_queue import NewBlock, Shard, ShardBacklog, find_queue, list_queues
from .post_blocks import encode_posts, shard_of

RETRY_S_MIN = 1.0  # a refusal asks its caller to wait at least this long


class Enqueuer:
    def __init__(
        self,
        store: Store,
        backlog: QueueBacklog,
        shards: int,
        limits: Settings,
        meter: Meter,
        *,
        now_us: Callable[[], int],
        appended: Callable[[], None] = lambda: None,
    ) -> None:
        """Create an enqueuer. It calls `appended` after each transaction, so workers of this process need not poll."""
        self._store, self._backlog, self._shards = store, backlog, shards
        self._limits, self._meter, self._now_us, self._appended = limits, meter, now_us, appended
        self._waiting = 0  # posts whose callers wait
        self._closing = False
        self._requests: Coalescer[Sequence[Post], StorageError | None] = Coalescer(
            self._append_group,
            batch_max=limits.ingest_group_posts_max,
            waiting_max=limits.queue_posts_max,
            tasks_max=1,
            size_of=len,
        )

    async def submit(self, posts: Sequence[Post]) -> None:
        """Wait until all of the posts are durable in the queue.

        Raises:
            QueueFullError, OverloadedError, StoreBusyError: nothing was queued.
            WaitTooLongError, OutcomeUnknownError: the posts may be queued.
            BoardChangedError: nothing was queued; a board was deleted, emptied or moved, or a family was deleted.
        """
        if self._closing:
            self._meter.add("rankcurve_ingest_refused_posts", len(posts), "stopping")
            raise QueueFullError("the service is shutting down")
        if self._waiting and self._waiting + len(posts) > self._limits.queue_posts_max:
            self._meter.add("rankcurve_ingest_refused_posts", len(posts), "queue_full")
            raise QueueFullError(f"{self._waiting} posts are waiting to be queued")
        try:
            await self._backlog.admit_posts(self._waiting + len(posts))
        except StorageError as error:
            reason = "queue_full" if isinstance(error, QueueFullError) else "overloaded"
            self._meter.add("rankcurve_ingest_refused_posts", len(posts), reason)
            raise
        self._waiting += len(posts)
        try:
            async with asyncio.timeout(self._limits.post_wait_s_max):
                refused = await self._requests.ask(None, posts)
        except TimeoutError as error:
            self._meter.add("rankcurve_ingest_refused_posts", len(posts), "expired")
            raise WaitTooLongError from error
        finally:
            self._waiting -= len(posts)
        if refused is not None:
            raise refused

    async def close(self) -> None:
        self._closing = True
        await self._requests.finish_questions()

    async def _append_group(self, group: list[Sequence[Post]]) -> list[StorageError | None]:
        refused: list[StorageError | None] = [None] * len(group)

        async def append(numbers: list[int]) -> None:
            try:
                changed = await self._append([group[number] for number in numbers])
            except StorageError as error:  # each request would also fail in a transaction of its own
                for number in numbers:
                    refused[number] = type(error)(error.detail)
            except Exception as error:
                if len(numbers) > 1:  # try the requests one by one: a bad request must not make the others fail
                    for number in numbers:
                        await append([number])
                    return
                failure = StoreBusyError("the posts could not be queued")
                failure.__cause__, refused[numbers[0]] = error, failure
            else:
                for at in changed:
                    refused[numbers[at]] = BoardChangedError()

        await asyncio.gather(*map(append, self._split(group)))
        return refused

    def _split(self, group: list[Sequence[Post]]) -> list[list[int]]:
        """Group the indexes of requests by queue, or put all into one group if a request has posts for several."""
        by_queue: dict[int, list[int]] = defaultdict(list)
        for number, posts in enumerate(group):
            queues = {find_queue(post, self._store.dialect) for post in posts}
            if len(queues) > 1:
                return [list(range(len(group)))]
            by_queue[queues.pop()].append(number)
        return list(by_queue.values())

    async def _append(self, group: list[Sequence[Post]]) -> list[int]:
        blocks = self._blocks(group)

        def program() -> Program[tuple[list[int], int]]:
            changed = yield from _find_changed(group)
            left = [posts for index, posts in enumerate(group) if index not in changed]
            for partition, theirs in self._blocks(left) if changed else blocks:
                yield from in_partition(partition, ingest_queue.append_blocks(theirs))
            return changed, sum(map(len, left))

        store = self._store.at(blocks[0][0]) if len(blocks) == 1 else self._store
        changed, queued = await store.write(program)
        if queued:
            self._backlog.count_queued(queued)
            self._meter.add("rankcurve_ingest_queued_posts", queued)
            self._appended()
        return changed

    def _blocks(self, group: list[Sequence[Post]]) -> list[tuple[int, list[NewBlock]]]:
        now_us, most = self._now_us(), self._limits.ingest_block_posts_max
        by_shard: dict[Shard, list[Post]] = defaultdict(list)
        for post in chain.from_iterable(group):
            shard = Shard(find_queue(post, self._store.dialect), shard_of(post.owner, self._shards))
            by_shard[shard].append(post)
        by_queue: dict[int, list[NewBlock]] = defaultdict(list)
        for shard, theirs in sorted(by_shard.items()):
            for at in range(0, len(theirs), most):
                block = theirs[at : at + most]
                made = NewBlock(shard.number, now_us, len(block), encode_posts(block, now_us))
                by_queue[shard.partition].append(made)
        return list(by_queue.items())


def _find_changed(group: list[Sequence[Post]]) -> Program[list[int]]:
    # (leaf key, (place, gate)) as when a post was checked. A key occurs twice if its leaf changed between two checks.
    copies: set[tuple[int, tuple[Place, Gate]]] = set()
    leaves: dict[int, Leaf] = {}
    families: set[int] = set()
    for post in chain.from_iterable(group):
        if post.scope is not None:
            families.add(post.scope.key)
        else:
            copies.update([(part.leaf.key, (part.leaf.place, part.leaf.gate)) for part in post.parts])
            leaves.update([(part.leaf.key, part.leaf) for part in post.parts])
    gates = (yield from read_gates_of(leaves.values())) if leaves else {}
    found = (yield from find_families_by_key(sorted(families))) if families else {}
    if gates.items() == copies and found.keys() == families:
        return []

    def is_changed(post: Post) -> bool:
        if post.scope is not None:
            return post.scope.key not in found
        return any(gates.get(part.leaf.key) != (part.leaf.place, part.leaf.gate) for part in post.parts)

    return [index for index, theirs in enumerate(group) if any(map(is_changed, theirs))]


async def read_backlog(store: Store) -> dict[Shard, ShardBacklog]:
    """Read the backlog of each shard that has posts, in all partitions that this process knows.

    If there are several partitions, leave out those that do not respond, because the others still take posts.
    """
    found: dict[Shard, ShardBacklog] = {}
    queues = list_queues(store.dialect, store.partitions)
    for partition in queues:
        try:
            backlog = await read_single(store.at(partition), ingest_queue.read_backlog)
        except StoreAwayError:
            if len(queues) == 1:
                raise
        else:
            found |= {Shard(partition, number): each for number, each in backlog.items()}
    return found


class QueueBacklog:
    """Refuses posts if too many posts wait in all partitions together, or if the oldest has waited too long.

    The number of waiting posts and the age of the oldest one are read from the store, unless the last read was less
    than `ingest_look_s` ago. Between two reads, only the posts that this process queues are added.
    """

    def __init__(
        self, store: Store, limits: QueueSettings, *, now_us: Callable[[], int], monotonic: Callable[[], float]
    ) -> None:
        self._store, self._limits, self._now_us, self._monotonic = store, limits, now_us, monotonic
        self._looked_s: float | None = None
        self._posts, self._oldest_us = 0, 0  # number of posts and time of the oldest, as last read from the store
        self._since = 0  # posts that this process has queued since the last read
        self._rate: float | None = None  # posts applied per second between the last two reads; None: unknown
        self._looking: asyncio.Task[None] | None = None

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
        waiting = self._posts + self._since
        over = waiting + posts - self._limits.ingest_posts_max
        if waiting and over > 0:
            raise QueueFullError(f"{waiting} posts wait in the queue", retry_after_s=self._takes_s(over))
        age_s = (self._now_us() - self._oldest_us) / 1e6 if self._posts else 0
        if age_s > self._limits.ingest_age_s_max:
            detail = f"the oldest post in the queue has waited for {age_s:.0f} s"
            raise OverloadedError(detail, retry_after_s=self._takes_s(waiting // 2))

    async def read_queue(self) -> None:
        """Read the backlog from the store. Calls made during a read wait for that read."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        began_s, since = self._monotonic(), self._since
        by_shard = await read_backlog(self._store)
        posts = sum(shard.posts for shard in by_shard.values())
        if self._looked_s is not None and began_s > self._looked_s and self._posts:
            self._rate = max(0.0, self._posts + since - posts) / (began_s - self._looked_s)
        self._posts, self._since = posts, self._since - since
        self._oldest_us = min((shard.oldest_us for shard in by_shard.values()), default=0)
        self._looked_s = began_s

    def _takes_s(self, posts: int) -> float:
        return max(RETRY_S_MIN, posts / self._rate) if self._rate else RETRY_S_MIN
