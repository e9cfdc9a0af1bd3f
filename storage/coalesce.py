"""Answers many concurrent questions with few statements, by letting questions that arrive during a read share the next.

A question is what one request asks of the store, such as an owner's row. A question never joins a read that has already
begun, so its answer shows every write that was acknowledged before the question.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import Context
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeVar

from .errors import StoreBusyError
from .store import Store

Q = TypeVar("Q")
A = TypeVar("A")
GATHER_TURNS = 2  # for how many turns of the event loop a batch waits for more questions
CROWD_QUESTIONS = 200  # if this many questions arrive together, a `Crowd`'s average moves halfway to the new number
CROWD_MEMORY_S = 0.25  # a crowd is over after this time without a question
CROWD_ENDS = 0.2


class Crowd:
    """Tells whether many questions are being answered at the same time. Several coalescers can share a `Crowd`.

    New questions and the passing of time update a moving average of how many questions are being answered. A crowd
    begins when the average reaches `crowd_min`, and ends when the average is below `crowd_min * (1 - CROWD_ENDS)`.
    """

    def __init__(self, crowd_min: int, *, clock: Callable[[], float] = monotonic) -> None:
        self._crowd_min, self._clock = crowd_min, clock
        self._crowded = False
        self._present, self._average, self._entered_s = 0, 0.0, clock()

    def enter(self, questions: int) -> None:
        now_s = self._clock()
        self._average += min(1.0, (now_s - self._entered_s) / CROWD_MEMORY_S) * (self._present - self._average)
        self._entered_s = now_s
        self._present += questions
        self._average += questions / (questions + CROWD_QUESTIONS) * (self._present - self._average)
        if self._average >= self._crowd_min:
            self._crowded = True
        elif self._average < self._crowd_min * (1 - CROWD_ENDS):
            self._crowded = False

    def leave(self, questions: int) -> None:
        self._present -= questions

    def is_crowded(self) -> bool:
        return self._crowded and (self._present > 0 or self._clock() - self._entered_s < CROWD_MEMORY_S)


class Coalescer(Generic[Q, A]):
    """Groups questions of the same kind, and answers those of a group together.

    `answer` receives at most `batch_max` questions of one kind, and returns the answers in the same order. With
    `size_of`, which returns the size of a question, `batch_max` bounds the sum of sizes instead. A larger question is
    answered alone. At most `tasks_max` tasks answer at the same time. While tasks are answering N questions, a further
    task starts only if N or more are waiting. This keeps groups large, because a few large groups cost less than many
    small ones.
    """

    def __init__(
        self,
        answer: Callable[[list[Q]], Awaitable[Sequence[A]]],
        *,
        batch_max: int,
        waiting_max: int,
        tasks_max: int,
        crowd: Crowd | None = None,
        gather_turns: int = GATHER_TURNS,
        size_of: Callable[[Q], int] | None = None,
    ) -> None:
        self._answer, self._crowd, self._gather_turns, self._size_of = answer, crowd, gather_turns, size_of
        self._batch_max, self._waiting_max, self._idle_tasks = batch_max, waiting_max, tasks_max
        self._under_way = 0  # number of questions that are currently being answered
        self._gathering = False  # whether a task is waiting for more questions before it answers a batch
        self._asked: deque[tuple[Hashable, Q, asyncio.Future[A]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, kind: Hashable, question: Q) -> asyncio.Future[A]:
        """Return a future for the answer. Raise `StoreBusyError` if too many questions are waiting."""
        if len(self._asked) >= self._waiting_max:
            raise StoreBusyError(f"{len(self._asked)} reads are waiting")
        future: asyncio.Future[A] = self._loop.create_future()
        self._asked.append((kind, question, future))
        if self._idle_tasks and not self._gathering and len(self._asked) >= self._under_way:
            self._idle_tasks -= 1
            self._gathering = True
            # The task serves many callers, so it gets an empty context: its log events belong to no single request.
            task = asyncio.create_task(self._drain(), name="coalesced-reads", context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return future

    async def finish_questions(self) -> None:
        # A task that has just ended stays in `_tasks` until the next turn. Waiting for it might not even take a turn.
        while tasks := [task for task in self._tasks if not task.done()]:
            await asyncio.gather(*tasks)

    async def _drain(self) -> None:
        try:
            while True:
                # In each turn, the event loop reads all sockets, so requests that have already arrived join this batch.
                # Waiting pays off, because handing a batch to a store's thread costs as much as ten point reads.
                for _ in range(self._gather_turns):
                    await asyncio.sleep(0)
                self._gathering = False
                await self._answer_batch()
                if self._gathering or not self._asked:
                    break
                self._gathering = True
        finally:
            self._idle_tasks += 1

    async def _answer_batch(self) -> None:
        batch: dict[Hashable, list[tuple[Q, asyncio.Future[A]]]] = {}
        taken = min(len(self._asked), self._batch_max) if self._size_of is None else self._count_fitting(self._size_of)
        for _ in range(taken):
            kind, question, future = self._asked.popleft()
            if not future.done():  # if it is done, the caller has given up
                batch.setdefault(kind, []).append((question, future))
        self._under_way += taken
        if self._crowd is not None:
            self._crowd.enter(taken)
        try:
            for group in batch.values():
                questions, futures = map(list, zip(*group, strict=True))
                try:
                    outcomes: Sequence[Any] = await self._answer(questions)
                except Exception as error:
                    for future in futures:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for future, outcome in zip(futures, outcomes, strict=True):
                    if not future.done():
                        future.set_result(outcome)
        finally:
            self._under_way -= taken
            if self._crowd is not None:
                self._crowd.leave(taken)

    def _count_fitting(self, size_of: Callable[[Q], int]) -> int:
        size = 0
        for count, (_, question, _) in enumerate(self._asked):
            size += size_of(question)
            if size > self._batch_max:
                return max(1, count)
        return len(self._asked)


class StoreCoalescers(dict[Store, Coalescer[Q, A]]):
    """A `Coalescer` for each result of `Store.at`, so that an unresponsive partition delays only its own reads."""

    def __init__(self, answer: Callable[[list[Q]], Awaitable[Sequence[A]]], **options: Any) -> None:
        self._make_coalescer = partial(Coalescer, answer, **options)

    def __missing__(self, store: Store) -> Coalescer[Q, A]:
        made = self[store] = self._make_coalescer()
        return made
