"""Posts in, durable outcomes out. Grouping without a timer: what is queued when a commit ends is the next transaction.

    submit ──> queue (bounded: QueueFull) ──> group ──> one transaction ──> outcomes
                                               ^                │
                                               └── LostRace: read again after a jittered pause, so many times

A caller that waits too long gets `WaitTooLong`; where its posts were not taken yet they never will be, otherwise their
outcome is settled by sending the same post ids again. A group that fails for another reason is run again request by
request, so that one poisonous request does not fail its neighbours.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .applying import Group, GroupResult
from .boards import ChangeCounts, OpenBoards
from .entries import Entries
from .errors import (
    LostRace,
    OutcomeUnknown,
    QueueFull,
    RacesLost,
    StorageError,
    StoreAway,
    StoreBusy,
    UnknownBoard,
    WaitTooLong,
)
from .merging import Merger
from .post_ids import PostIds
from .records import Board, PartOutcome, Post
from .store import Program, Store


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """The writer's bounds; each is a setting of the same name."""

    queue_posts_max: int
    group_posts_max: int
    write_attempts_max: int
    write_backoff_base_s: float
    write_backoff_s_max: float
    post_wait_s_max: float
    grouping: bool  # False: one request a transaction


# Turns of the event loop before a group is taken: each reads every socket that has a post, so those who were just
# answered and post again come along. It is no delay: an idle loop turns at once.
GATHER_TURNS = 4


class WriterObserver(Protocol):
    """What the writer tells its operators."""

    def group_written(self, *, posts: int, rows: int, seconds: float) -> None:
        """A transaction was committed."""

    def race_lost(self) -> None:
        """A conditional write found another version."""

    def queue_depth(self, posts: int) -> None:
        """Posts waiting, each counted once a board, after a change."""


@dataclass(slots=True, eq=False)
class _Waiting:
    posts: Sequence[Post]
    parts: int  # what a transaction has to do: the posts, each counted once a board
    done: asyncio.Future[list[list[PartOutcome]]]


class Writer:
    """Groups posts and applies them through the store."""

    def __init__(
        self,
        store: Store,
        boards: OpenBoards,
        post_ids: PostIds,
        limits: WriterLimits,
        observer: WriterObserver,
        change_counts: ChangeCounts,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._store, self._boards, self._post_ids = store, boards, post_ids
        self._limits, self._observer = limits, observer
        self._change_counts = change_counts
        self._now_us, self._monotonic, self._rng = now_us, monotonic, rng
        self._queue: deque[_Waiting] = deque()
        self._queued_parts = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to take from the queue."""
        self._task = asyncio.create_task(self._run(), name="writer")

    @property
    def alive(self) -> bool:
        """Whether posts are taken from the queue."""
        return self._task is not None and not self._task.done()

    async def close(self) -> None:
        """Apply what was accepted, then stop."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task

    async def submit(self, posts: Sequence[Post]) -> list[list[PartOutcome]]:
        """Apply posts in order; answers, once durable, an outcome a part of each post.

        Raises:
            QueueFull: nothing was taken.
            WaitTooLong: the outcome is not known yet, or nothing was taken.
            StoreBusy: nothing was applied.
        """
        parts = sum(len(post.parts) for post in posts)
        if self._closing or self._queued_parts + parts > max(self._limits.queue_posts_max, parts):
            raise QueueFull("shutting down" if self._closing else f"{self._queued_parts} posts are waiting")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(posts, parts, loop.create_future())
        self._queue.append(waiting)
        self._count(parts)
        self._wake.set()
        # A timer and a bare future: asyncio's timeout and shield together cost a single post a tenth of its time.
        expiry = loop.call_later(self._limits.post_wait_s_max, self._expire, waiting)
        try:
            return await waiting.done
        except asyncio.CancelledError:
            self._withdraw(waiting)
            raise
        finally:
            expiry.cancel()

    def _expire(self, waiting: _Waiting) -> None:
        self._withdraw(waiting)
        if not waiting.done.done():
            waiting.done.set_exception(WaitTooLong())

    def _withdraw(self, waiting: _Waiting) -> None:
        # What was taken already is applied all the same, and nobody is told.
        if waiting in self._queue:
            self._queue.remove(waiting)
            self._count(-waiting.parts)

    def _count(self, parts: int) -> None:
        self._queued_parts += parts
        self._observer.queue_depth(self._queued_parts)

    async def _run(self) -> None:
        while True:
            if not self._queue:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            for _ in range(GATHER_TURNS):
                await asyncio.sleep(0)
            if self._queue:  # who waited may have gone in those turns
                await self._settle(self._take_group())

    def _take_group(self) -> list[_Waiting]:
        group = [self._queue.popleft()]
        parts = group[0].parts
        while self._limits.grouping and self._queue and parts + self._queue[0].parts <= self._limits.group_posts_max:
            group.append(self._queue.popleft())
            parts += group[-1].parts
        self._count(-parts)
        return group

    async def _settle(self, group: list[_Waiting], *, unknown: bool = False) -> None:
        # `unknown`: they may have been applied before.
        started = self._monotonic()
        try:
            posts = [post for waiting in group for post in waiting.posts]
            result = await self._apply(posts, check_boards=not self._store.sole_writer)
        except (RacesLost, StoreAway, OutcomeUnknown) as error:  # one by one they would meet the same
            if isinstance(error, OutcomeUnknown) and not unknown:
                await self._settle_unknown(group)
            else:
                _refuse(group, OutcomeUnknown() if unknown else error)
            return
        except Exception as error:
            if len(group) > 1:
                for waiting in group:
                    await self._settle([waiting], unknown=unknown)
                return
            failure = error if isinstance(error, StorageError) else StoreBusy("the posts could not be applied")
            failure.__cause__ = error if failure is not error else error.__cause__
            if not group[0].done.done():
                group[0].done.set_exception(failure)
            return
        start = 0
        for waiting in group:
            if not waiting.done.done():
                waiting.done.set_result(result.outcomes[start : start + len(waiting.posts)])
            start += len(waiting.posts)
        # Last: what is committed is committed, whatever becomes of the figures.
        rows = sum(result.rows_written.values())
        self._observer.group_written(posts=start, rows=rows, seconds=self._monotonic() - started)

    async def _settle_unknown(self, group: list[_Waiting]) -> None:
        """Run again, once, what carries post ids, which tell what was applied; the rest could be applied twice."""
        again = [waiting for waiting in group if all(post.post_hash is not None for post in waiting.posts)]
        _refuse([waiting for waiting in group if waiting not in again], OutcomeUnknown())
        if again:
            await self._settle(again, unknown=True)

    async def _apply(self, posts: list[Post], *, check_boards: bool) -> GroupResult:
        opened = self._open_boards(posts)

        def program() -> Program[GroupResult]:
            return Group(opened, self._post_ids, self._now_us(), check_boards=check_boards).run(posts)

        for attempt in range(self._limits.write_attempts_max):
            if attempt > 0:
                await asyncio.sleep(self._pause_s(attempt - 1))
            try:
                result = await self._store.write(program)
            except LostRace:
                self._observer.race_lost()
                continue
            except UnknownBoard:
                if check_boards:
                    raise
                return await self._apply(posts, check_boards=True)  # only the posts to that board are rejected
            for board_key, rows in result.rows_written.items():
                self._change_counts.add(board_key, rows)
            return result
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


def _refuse(group: Sequence[_Waiting], error: StorageError) -> None:
    for waiting in group:
        if not waiting.done.done():
            waiting.done.set_exception(type(error)(error.detail))
