"""Applies posts in groups, one transaction for each group, and returns their outcomes once they are durable.

Posts are grouped without a timer: the posts that wait when a commit ends form the next transaction. After a lost race,
the writer pauses for a random time before it runs the group again. The docstring of `storage.posting` draws this.

The writer refuses new posts when those ahead of them would take too long. So callers get the outcomes of accepted posts
within `post_wait_s_max` seconds, even if all callers together send more posts than the store can handle.

A caller that waits too long gets `WaitTooLongError`. If its posts are still queued, they are withdrawn and never
applied. Otherwise the caller learns the outcome by sending the posts again with the same post ids. If a group fails
with an error outside `FAULTS_OF_STORE`, its requests run again one by one, so that a bad request fails alone.

`Writers` keeps one writer per partition, so that an unresponsive partition delays only the posts to its own boards.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from typing import NoReturn

from config.settings import PostingSettings
from storage.errors import (
    LostRaceError,
    OutcomeUnknownError,
    OutdatedFactsError,
    OverloadedError,
    QueueFullError,
    RacesLostError,
    StorageError,
    StoreAwayError,
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
    UnknownBoardError,
    WaitTooLongError,
)
from storage.meter import Meter
from storage.reads.open_boards import OpenBoards
from storage.records import PartOutcome, Post
from storage.store import Program, Store

from .group_facts import KnownFacts
from .transaction import TransactionResult, apply_posts, open_boards_of
from .waiting_posts import GATHER_TURNS, PARTS_OF, DrainRate, RequestQueue, WaitingRequest, WaitTimer, refuse_group

# Errors caused by the store itself. Every other group of posts would currently get the same error.
FAULTS_OF_STORE = (RacesLostError, StoreAwayError, StoreDamagedError, StoreFullError, OutcomeUnknownError)
# With this many posts, each counted once per board, the fixed cost of a transaction is small compared with the cost of
# the posts. If batches were larger, the store would be idle while the event loop answers a batch and reads the next.
BATCH_POSTS = 500
# The event loop needs milliseconds to answer a batch. So if another batch is waiting, the writer first lets this many
# turns of the event loop pass, in which it hands the waiting batch to the store. Then it answers.
HANDOVER_TURNS = 3
# A new post is accepted if the posts before it are expected to take at most this share of `post_wait_s_max`. Then the
# wait stays within that limit even if the store becomes half as fast. With a share of 1, an overloaded writer would
# commit nearly every post just after its caller got `WaitTooLongError`.
ADMITTED_WAIT_RATIO = 0.5
# On a machine with this many cores, the service and a database on the same machine need all cores for one group of
# posts. A second group in flight made batches of 1,000 posts 9 % slower (benchmarks/against_commit.py, 2 cores).
FEW_CORES = 2


def draw_pause_s(limits: PostingSettings, races_lost: int, rng: random.Random) -> float:
    """Draw the pause after a lost race. It is random, so that the losers of a race do not all retry at once."""
    longest_s = min(limits.write_backoff_s_max, limits.write_backoff_base_s * 2 ** (races_lost - 1))
    return rng.uniform(0, longest_s)


class Writer:
    def __init__(
        self,
        store: Store,
        boards: OpenBoards,
        limits: PostingSettings,
        meter: Meter,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        rng: random.Random,
        siblings: list[Writer] | None = None,
    ) -> None:
        """Create a writer and add it to `siblings`. The metrics show the sums over all writers in this list."""
        self._store, self._boards, self._limits, self._meter = store, boards, limits, meter
        self._known_facts = KnownFacts()
        self._now_us, self._monotonic, self._rng = now_us, monotonic, rng
        groups_max = limits.writes_in_flight or (1 if (os.cpu_count() or 1) <= FEW_CORES else 2)
        self._groups_max = min(groups_max, store.writes_at_once)
        enough = BATCH_POSTS if self._groups_max > 1 else None
        self._queue = RequestQueue(group_posts_max=limits.group_posts_max, enough=enough)
        self._drain = DrainRate()
        self.gather_turns = GATHER_TURNS
        self._siblings = [] if siblings is None else siblings
        self._siblings.append(self)
        self._expiry = WaitTimer(limits.post_wait_s_max, self._expire)
        self._wake = asyncio.Event()  # set when a request was added, a group has ended, or the writer closes
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._tell_state()
        self._task = asyncio.create_task(self._run(), name="writer")

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    async def close(self) -> None:
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._expiry.close()

    async def submit(self, posts: Sequence[Post]) -> list[list[PartOutcome]]:
        """Apply posts in order. Once they are durable, return each post's outcome on each of its boards.

        Raises:
            QueueFullError, OverloadedError: no post was accepted.
            WaitTooLongError: the outcome was not known in time; posts that were still queued are not applied.
            StoreBusyError, StoreDamagedError, StoreFullError: nothing was applied.
        """
        waiting = self.enqueue(posts)
        try:
            return await waiting.done  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            self._withdraw(waiting)
            raise

    def enqueue(self, posts: Sequence[Post]) -> WaitingRequest:
        """Queue posts as `submit` does, without waiting. The outcomes or the error are in `WaitingRequest.done`."""
        parts = sum([len(post.parts) for post in posts])
        self._admit(parts)
        waiting = WaitingRequest(posts, parts, asyncio.get_running_loop().create_future())
        self._queue.append_request(waiting)
        self._wake.set()  # wakes `_run`, which also sets the metric of the queue's length, once for many requests
        # The caller waits for a bare future, and one timer for all callers ends the wait. asyncio's timeout and shield
        # together would make a single post 10 % slower.
        self._expiry.add_waiting(waiting)
        return waiting

    def _admit(self, parts: int) -> None:
        if self._closing:
            self._turn_away("stopping", parts, QueueFullError("the service is shutting down"))
        waiting = self._queue.parts
        ahead_s = total_s = 0.0
        if waiting:  # if no post waits, accept the new posts, because only accepted posts can correct a wrong rate
            now_s, ahead = self._monotonic(), waiting + self._queue.parts_in_flight
            ahead_s = self._drain.estimate_wait_s(ahead, now_s=now_s)
            total_s = self._drain.estimate_wait_s(ahead + parts, now_s=now_s)
        if waiting + parts > max(self._limits.queue_posts_max, parts):
            self._turn_away("queue_full", parts, QueueFullError(f"{waiting} posts are waiting", retry_after_s=ahead_s))
        wait_s_max = self._limits.post_wait_s_max
        if ahead_s > wait_s_max * ADMITTED_WAIT_RATIO or total_s > wait_s_max:
            detail = f"{waiting} posts are waiting, so new posts would wait longer than they may"
            self._turn_away("overloaded", parts, OverloadedError(detail, retry_after_s=ahead_s))

    def _turn_away(self, reason: str, posts: int, error: StorageError) -> NoReturn:
        self._meter.add("rankcurve_write_refused_posts", posts, reason)
        raise error

    def _expire(self, waiting: WaitingRequest) -> None:
        if self._withdraw(waiting):
            self._meter.add("rankcurve_write_refused_posts", waiting.parts, "expired")
        waiting.fail(WaitTooLongError())

    def _withdraw(self, waiting: WaitingRequest) -> bool:
        # Posts that a group has already taken from the queue are still applied, but nobody gets their outcome.
        withdrawn = self._queue.withdraw_request(waiting)
        if withdrawn:
            self._tell_state()
        return withdrawn

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as groups:
            while self._queue.requests or not self._closing:
                if self._queue.requests and len(self._queue.in_flight) < self._groups_max:
                    await self._gather()
                    group = self._queue.take_group()
                    self._drain.record_left_behind(self._queue.parts, now_s=self._monotonic())
                    if group:
                        self._tell_state()
                        groups.create_task(self._write(group))
                        del group  # while this method waits, it keeps no posts in memory
                        continue
                # Either no request waits, or every waiting request must wait until a group in flight ends.
                if self._queue.requests:
                    self._tell_state()
                self._wake.clear()
                await self._wake.wait()

    async def _gather(self) -> None:
        for _ in range(self.gather_turns):
            if self._queue.parts >= BATCH_POSTS:
                return
            await asyncio.sleep(0)

    async def _write(self, group: list[WaitingRequest]) -> None:
        result = None
        try:
            result = await self._settle(group)
        finally:
            self._queue.release_group(group)
            self._tell_state()
            self._wake.set()
        if result is not None:
            for _ in range(HANDOVER_TURNS if self._queue.parts >= BATCH_POSTS else 0):
                await asyncio.sleep(0)
            _answer(group, result)

    def _tell_state(self) -> None:
        parts = groups = 0
        for writer in self._siblings:
            parts += writer._queue.parts
            groups += len(writer._queue.in_flight)
        self._meter.set("rankcurve_write_queue_posts", parts)
        self._meter.set("rankcurve_writes_in_flight", groups)

    async def _settle(self, group: list[WaitingRequest], *, unknown: bool = False) -> TransactionResult | None:
        # This applies a group. It returns the result, from which `_answer` must answer the callers, or None if every
        # caller has got an answer or an error here. `unknown`: whether an earlier run may have applied the posts.
        started = self._monotonic()
        try:
            posts = [post for waiting in group for post in waiting.posts]
            result = await self._apply(posts, check_boards=False)
        except Exception as error:
            await self._settle_failed(group, error, unknown=unknown)
            return None
        # The transaction is committed, so nothing below may make the group fail.
        now_s = self._monotonic()
        self._meter.observe("rankcurve_write_seconds", now_s - started)
        self._meter.observe("rankcurve_write_batch_posts", len(posts))
        for partition, applied in result.applied.items():
            self._meter.add("rankcurve_partition_posts_applied", applied, str(partition))
        self._drain.record_commit(sum(map(PARTS_OF, group)), now_s=now_s)
        return result

    async def _settle_failed(self, group: list[WaitingRequest], error: Exception, *, unknown: bool) -> None:
        if isinstance(error, OutcomeUnknownError) and not unknown:
            await self._settle_unknown(group)
        elif isinstance(error, FAULTS_OF_STORE):  # each request of the group would get the same error if it ran alone
            refuse_group(group, OutcomeUnknownError() if unknown else error)
        elif len(group) > 1:
            for waiting in group:
                # If the future is done, the caller got `WaitTooLongError` or has left: do not apply the posts.
                if not waiting.done.done():
                    await self._settle_and_answer([waiting], unknown=unknown)
        elif isinstance(error, StorageError):
            group[0].fail(error)
        else:
            failure = StoreBusyError("the posts could not be applied")
            failure.__cause__ = error
            group[0].fail(failure)

    async def _settle_unknown(self, group: list[WaitingRequest]) -> None:
        """Run those requests again in which every post has an id, because such posts are never applied twice.

        A post without an id could be applied twice, so the other requests get `OutcomeUnknownError`.
        """
        again = [waiting for waiting in group if all(post.post_hash is not None for post in waiting.posts)]
        refuse_group([waiting for waiting in group if waiting not in again], OutcomeUnknownError())
        if again:
            await self._settle_and_answer(again, unknown=True)

    async def _settle_and_answer(self, group: list[WaitingRequest], *, unknown: bool) -> None:
        result = await self._settle(group, unknown=unknown)
        if result is not None:
            _answer(group, result)

    async def _apply(self, posts: list[Post], *, check_boards: bool) -> TransactionResult:
        opened = open_boards_of(posts, self._boards)

        def program() -> Program[TransactionResult]:
            known, now_us = self._known_facts, self._now_us()
            return apply_posts(self._store, opened, posts, known, now_us, check_boards=check_boards)

        races, is_lost = 0, False
        for _ in range(self._limits.write_attempts_max):
            if is_lost:
                races += 1
                await asyncio.sleep(draw_pause_s(self._limits, races, self._rng))
            try:
                result = await self._store.write(program)
                self._known_facts.keep(result.learned)
                return result
            except OutdatedFactsError as error:
                self._known_facts.keep(error.learned)
                is_lost = False  # so there is no pause before the next run
            except LostRaceError:
                is_lost = True
                self._meter.add("rankcurve_write_conflicts")
            except UnknownBoardError:
                if check_boards:
                    raise
                # A board is missing. Check each board in the next run, to reject only the posts to the missing board.
                return await self._apply(posts, check_boards=True)
        raise RacesLostError(f"rows kept changing during {self._limits.write_attempts_max} attempts")


def _answer(group: Sequence[WaitingRequest], result: TransactionResult) -> None:
    start = 0
    for waiting in group:
        if not waiting.done.done():
            waiting.done.set_result(result.outcomes[start : start + len(waiting.posts)])
        start += len(waiting.posts)


class Writers:
    """Passes posts to the writers of their partitions. A partition's writer starts when it gets its first posts.

    A request needs one transaction for each partition that its posts go to, and these run at the same time. If a single
    post goes to several partitions, a common writer for all partitions applies the whole request in one transaction.
    """

    def __init__(self, store: Store, make: Callable[[Store, list[Writer]], Writer]) -> None:
        """Start the common writer. `make(store, writers)` creates a writer and adds it to the list `writers`."""
        self._store, self._make = store, make
        self._all: list[Writer] = []
        self._writers: dict[Store, Writer] = {}
        self.find_writer(store)

    def find_writer(self, store: Store) -> Writer:
        """Return the writer for one partition (a result of `Store.at`) or the common one. Start it on first use."""
        writer = self._writers.get(store)
        if writer is None:
            writer = self._writers[store] = self._make(store, self._all)
            writer.start()
        return writer

    @property
    def alive(self) -> bool:
        return all(writer.alive for writer in self._all)

    async def submit(self, posts: Sequence[Post]) -> list[list[PartOutcome]]:
        """Apply posts and return their outcomes, as `Writer.submit` does.

        Raises:
            OutcomeUnknownError: the posts to some partitions were applied, but those to other partitions failed.
        """
        places: set[int] = set()
        for post in posts:
            for part in post.parts:
                places.add(part.leaf.partition)
            if post.scope is not None:
                places.add(post.scope.partition)
        if len(places) == 1:
            store = self._store.at(places.pop())
            return await (self._writers.get(store) or self.find_writer(store)).submit(posts)
        return await self._submit_apart(posts)

    async def _submit_apart(self, posts: Sequence[Post]) -> list[list[PartOutcome]]:
        apart: dict[int, list[Post]] = {}
        of_post: list[int] = []
        for post in posts:
            theirs = _list_partitions(post)
            if len(theirs) > 1:
                return await self.find_writer(self._store).submit(posts)
            of_post += theirs
            apart.setdefault(of_post[-1], []).append(post)
        submitting = [self.find_writer(self._store.at(place)).submit(theirs) for place, theirs in apart.items()]
        done = await asyncio.gather(*submitting, return_exceptions=True)
        errors = [found for found in done if isinstance(found, BaseException)]
        if errors and len(errors) == len(done):
            raise errors[0]
        if errors:
            raise OutcomeUnknownError("only the posts to some partitions were applied") from errors[0]
        outcomes = {place: iter(found) for place, found in zip(apart, done, strict=True)}  # type: ignore[arg-type]
        return [next(outcomes[place]) for place in of_post]

    async def close(self) -> None:
        await asyncio.gather(*(writer.close() for writer in self._all))


def _list_partitions(post: Post) -> set[int]:
    return {part.leaf.partition for part in post.parts} if post.scope is None else {post.scope.partition}
