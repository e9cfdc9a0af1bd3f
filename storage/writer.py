"""Posts in, durable outcomes out. Grouping without a timer: what is queued when a commit ends is the next transaction.

    submit ──> queue (bounded: QueueFull, Overloaded) ──> groups, so many at once ──> a transaction each ──> outcomes
                                                           ^                                  │
                                                           └── LostRace: read again after a jittered pause

Posts are refused at the door when those before them would take longer than they may wait: what is accepted is answered
in time, however many are sent. How many groups are in flight is `WriteLimit`'s to say, and 1 where the store takes one.

A caller that waits too long gets `WaitTooLong`; where its posts were not taken yet they never will be, otherwise their
outcome is settled by sending the same post ids again. A group that fails for another reason is run again request by
request, so that one poisonous request does not fail its neighbours.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from .applying import Group, GroupResult
from .boards import OpenBoards
from .drain_rate import DrainRate
from .entries import Entries
from .errors import (
    LostRace,
    OutcomeUnknown,
    Overloaded,
    QueueFull,
    RacesLost,
    StorageError,
    StoreAway,
    StoreBusy,
    StoreDamaged,
    StoreFull,
    UnknownBoard,
    WaitTooLong,
)
from .intake import GATHER_TURNS, Intake
from .merging import Merger
from .post_ids import PostIds
from .post_queue import PostQueue, Waiting
from .records import Board, PartOutcome, Post
from .store import Program, Store
from .write_limit import WriteLimit


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """The writer's bounds; each is a setting of the same name."""

    queue_posts_max: int
    group_posts_max: int
    write_attempts_max: int
    write_backoff_base_s: float
    write_backoff_s_max: float
    post_wait_s_max: float
    writes_in_flight_max: int
    grouping: bool  # False: one request a transaction
    change_log: bool  # False: posts leave no trace in the log


# So many posts, counted once a board, are worth a transaction: what a transaction costs besides is little to them. To
# gather more of them, batches would be answered and read while the store has nothing to do; and large groups seldom
# have no owner in common, which keeps them from being in flight together.
BATCH_POSTS = 500
# To answer a batch takes the loop milliseconds: where another waits, the store is given that one first, unless it takes
# as long as this to begin.
ANSWER_DELAY_S_MAX = 0.002
# Of `post_wait_s_max`: those before a post may take so much. A store that becomes half as fast then still answers what
# waits; at the whole of it nearly every post is committed just after its caller was told that it took too long.
ADMITTED_WAIT_RATIO = 0.5


class WriterObserver(Protocol):
    """What the writer tells its operators."""

    def group_written(self, *, posts: int, rows: int, seconds: float) -> None:
        """A transaction was committed."""

    def race_lost(self) -> None:
        """A conditional write found another version."""

    def queue_depth(self, posts: int) -> None:
        """Posts waiting, each counted once a board, after a change."""

    def writes_in_flight(self, groups: int, *, limit: int) -> None:
        """Groups in flight and how many may be, after a change."""

    def posts_refused(self, reason: str, posts: int) -> None:
        """Posts, each counted once a board, not applied: "queue_full", "overloaded", "stopping", "expired" in line."""


class Writer(Intake[Waiting]):
    """Groups posts and applies them through the store."""

    def __init__(
        self,
        store: Store,
        boards: OpenBoards,
        post_ids: PostIds,
        limits: WriterLimits,
        observer: WriterObserver,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        rng: random.Random,
    ) -> None:
        super().__init__("writer", wait_s_max=limits.post_wait_s_max)
        self._store, self._boards, self._post_ids = store, boards, post_ids
        self._limits, self._observer = limits, observer
        self._now_us, self._monotonic, self._rng = now_us, monotonic, rng
        groups_max = min(limits.writes_in_flight_max, store.writes_at_once)
        self._queue = PostQueue(
            group_posts_max=limits.group_posts_max,
            grouping=limits.grouping,
            enough=BATCH_POSTS if groups_max > 1 else None,
        )
        self._limit = WriteLimit(groups_max=groups_max)
        self._drain = DrainRate()
        self._begun: asyncio.Event | None = None

    def start(self) -> None:
        """Begin to take from the queue."""
        self._tell_in_flight()
        super().start()

    async def submit(self, posts: Sequence[Post]) -> list[list[PartOutcome]]:
        """Apply posts in order; answers, once durable, an outcome a part of each post.

        Raises:
            QueueFull, Overloaded: nothing was taken.
            WaitTooLong: the outcome is not known yet, or nothing was taken.
            StoreBusy, StoreDamaged, StoreFull: nothing was applied.
        """
        parts = sum(len(post.parts) for post in posts)
        self._admit(parts)
        loop = asyncio.get_running_loop()
        waiting = Waiting(posts, parts, loop.create_future())
        self._queue.append(waiting)
        self._observer.queue_depth(self._queue.parts)
        self._wake.set()
        # A bare future: asyncio's timeout and shield together cost a single post a tenth of its time.
        self._expiry.add(waiting, waiting.done)
        try:
            return await waiting.done
        except asyncio.CancelledError:
            self._withdraw(waiting)
            raise

    def _admit(self, parts: int) -> None:
        if self._closing:
            self._turn_away("stopping", parts, QueueFull("shutting down"))
        waiting = self._queue.parts
        ahead_s = total_s = 0.0
        if self._drain.known and waiting:  # where nobody waits a post is taken, and the rate measured anew
            now_s, ahead = self._monotonic(), waiting + self._queue.parts_in_flight
            ahead_s = self._drain.wait_s(ahead, now_s=now_s)
            total_s = self._drain.wait_s(ahead + parts, now_s=now_s)
        if waiting + parts > max(self._limits.queue_posts_max, parts):
            self._turn_away("queue_full", parts, QueueFull(f"{waiting} posts are waiting", retry_after_s=ahead_s))
        wait_s_max = self._limits.post_wait_s_max
        if ahead_s > wait_s_max * ADMITTED_WAIT_RATIO or total_s > wait_s_max:
            detail = f"{waiting} posts are waiting, for longer than these may wait"
            self._turn_away("overloaded", parts, Overloaded(detail, retry_after_s=ahead_s))

    def _turn_away(self, reason: str, posts: int, error: StorageError) -> NoReturn:
        self._observer.posts_refused(reason, posts)
        raise error

    def _expire(self, waiting: Waiting) -> None:
        if self._withdraw(waiting):
            self._observer.posts_refused("expired", waiting.parts)
        waiting.fail(WaitTooLong())

    def _withdraw(self, waiting: Waiting) -> bool:
        # What was taken already is applied all the same, and nobody is told.
        withdrawn = self._queue.withdraw(waiting)
        if withdrawn:
            self._observer.queue_depth(self._queue.parts)
        return withdrawn

    async def _run(self) -> None:
        taken = False
        async with asyncio.TaskGroup() as groups:
            while self._queue or not self._closing:
                if self._queue and self._queue.groups_in_flight < self._limit.limit:
                    await self._gather()
                    group = self._queue.take_group()
                    self._drain.left_behind(self._queue.parts, now_s=self._monotonic())
                    if group:
                        self._observer.queue_depth(self._queue.parts)
                        groups.create_task(self._write(group))
                        taken = True
                        continue
                # Nobody waits, or who waits has to: for a group to end, or for an owner's earlier posts.
                if not taken:
                    self._let_answer()
                taken = False
                self._wake.clear()
                await self._wake.wait()

    async def _gather(self) -> None:
        for _ in range(GATHER_TURNS):
            if self._queue.parts >= BATCH_POSTS:
                return
            await asyncio.sleep(0)

    async def _write(self, group: list[Waiting]) -> None:
        self._tell_in_flight()
        result = None
        try:
            result = await self._settle(group)
        finally:
            self._queue.ended(group)
            self._tell_in_flight()
            self._wake.set()
        if result is not None:
            if self._queue.parts >= BATCH_POSTS:
                await self._next_begins()
            _answer(group, result)

    async def _next_begins(self) -> None:
        # Or none may, or not in time.
        if self._begun is None:
            self._begun = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_DELAY_S_MAX):
                await self._begun.wait()

    def _let_answer(self) -> None:
        if self._begun is not None:
            self._begun.set()
            self._begun = None

    def _tell_in_flight(self) -> None:
        self._observer.writes_in_flight(self._queue.groups_in_flight, limit=self._limit.limit)

    async def _settle(self, group: list[Waiting], *, unknown: bool = False) -> GroupResult | None:
        # What they are to be told, where they were not yet. `unknown`: they may have been applied before.
        started = self._monotonic()
        try:
            posts = [post for waiting in group for post in waiting.posts]
            result = await self._apply(posts, check_boards=False)
        except (
            RacesLost,
            StoreAway,
            StoreDamaged,
            StoreFull,
            OutcomeUnknown,
        ) as error:  # one by one they would meet the same
            self._limit.failed(now_s=self._monotonic())
            if isinstance(error, OutcomeUnknown) and not unknown:
                await self._settle_unknown(group)
            else:
                _refuse(group, OutcomeUnknown() if unknown else error)
            return None
        except Exception as error:
            if isinstance(error, StoreBusy):
                self._limit.failed(now_s=self._monotonic())
            if len(group) > 1:
                for waiting in group:
                    if not waiting.done.done():  # told that it took too long, or gone: not applied is as good to them
                        alone = await self._settle([waiting], unknown=unknown)
                        if alone is not None:
                            _answer([waiting], alone)
                return None
            failure = error if isinstance(error, StorageError) else StoreBusy("the posts could not be applied")
            failure.__cause__ = error if failure is not error else error.__cause__
            group[0].fail(failure)
            return None
        # What is committed is committed, whatever becomes of the figures.
        rows, now_s = sum(result.rows_written.values()), self._monotonic()
        self._observer.group_written(posts=len(posts), rows=rows, seconds=now_s - started)
        parts = sum(waiting.parts for waiting in group)
        self._drain.committed(parts, now_s=now_s)
        self._limit.committed(parts, seconds=now_s - started, now_s=now_s, waiting=bool(self._queue))
        return result

    async def _settle_unknown(self, group: list[Waiting]) -> None:
        """Run again, once, what carries post ids, which tell what was applied; the rest could be applied twice."""
        again = [waiting for waiting in group if all(post.post_hash is not None for post in waiting.posts)]
        _refuse([waiting for waiting in group if waiting not in again], OutcomeUnknown())
        if again:
            settled = await self._settle(again, unknown=True)
            if settled is not None:
                _answer(again, settled)

    async def _apply(self, posts: list[Post], *, check_boards: bool) -> GroupResult:
        opened = self._open_boards(posts)
        loop = asyncio.get_running_loop()

        def program() -> Program[GroupResult]:
            if self._begun is not None:
                loop.call_soon_threadsafe(self._let_answer)  # once the first statement is on its way
            group = Group(
                opened,
                self._post_ids,
                self._now_us(),
                check_boards=check_boards,
                logged=self._limits.change_log,
            )
            return group.run(posts)

        for attempt in range(self._limits.write_attempts_max):
            if attempt > 0:
                await asyncio.sleep(self._pause_s(attempt - 1))
            try:
                return await self._store.write(program)
            except LostRace:
                self._observer.race_lost()
                continue
            except UnknownBoard:
                if check_boards:
                    raise
                return await self._apply(posts, check_boards=True)  # only the posts to that board are rejected
        raise RacesLost(f"rows kept changing during {self._limits.write_attempts_max} attempts")

    def _open_boards(self, posts: list[Post]) -> list[tuple[Entries, Merger]]:
        # Posts that were parsed before and after a column was added may meet in one group: the wider board serves both.
        boards: dict[int, Board] = {}
        for post in posts:
            for part in post.parts:
                known = boards.get(part.board.key)
                if known is None or len(known.spec.columns) < len(part.board.spec.columns):
                    boards[part.board.key] = part.board
        return [self._boards.open(board) for board in boards.values()]

    def _pause_s(self, pauses_before: int) -> float:
        # Full jitter: losers of one race don't meet again at the same moment.
        longest = min(self._limits.write_backoff_s_max, self._limits.write_backoff_base_s * 2**pauses_before)
        return self._rng.uniform(0, longest)


def _answer(group: Sequence[Waiting], result: GroupResult) -> None:
    start = 0
    for waiting in group:
        if not waiting.done.done():
            waiting.done.set_result(result.outcomes[start : start + len(waiting.posts)])
        start += len(waiting.posts)


def _refuse(group: Sequence[Waiting], error: StorageError) -> None:
    for waiting in group:
        waiting.fail(type(error)(error.detail))
