"""Answers many concurrent questions with few statements: questions that arrive during a read share the next read.

The most important rule: a question never joins a read that began before the question. So the answer shows every write
that was acknowledged before the question.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import Context
from typing import Any, Generic, TypeVar

from .errors import StoreBusyError
from .store import Store

Q = TypeVar("Q")
A = TypeVar("A")
GATHER_TURNS = 2  # number of turns of the event loop that a batch waits for more questions


class Coalescer(Generic[Q, A]):
    """Groups questions of the same kind and answers the questions of a group together.

    `answer` receives at most `batch_max` questions of one kind, and returns the answers in the same order. At most
    `lanes` tasks answer at the same time. A further task starts only if at least as many questions wait as are
    currently being answered. This keeps the groups large, and a few large groups cost less than many small ones.
    """

    def __init__(
        self, answer: Callable[[list[Q]], Awaitable[Sequence[A]]], *, batch_max: int, waiting_max: int, lanes: int
    ) -> None:
        self._answer = answer
        self._batch_max, self._waiting_max, self._idle_lanes = batch_max, waiting_max, lanes
        self._under_way = 0  # how many questions are currently being answered
        self._asked: deque[tuple[Hashable, Q, asyncio.Future[A]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._unanswered = 0
        self._unanswered_s = 0.0  # the number of unanswered questions, summed up over time until `_summed_up_s`
        self._summed_up_s = self._loop.time()
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, kind: Hashable, question: Q) -> asyncio.Future[A]:
        """Return a future for the answer. Raise `StoreBusyError` if too many questions are waiting."""
        if len(self._asked) >= self._waiting_max:
            raise StoreBusyError(f"{len(self._asked)} reads are waiting")
        future: asyncio.Future[A] = self._loop.create_future()
        self._add_unanswered(1)
        self._asked.append((kind, question, future))
        if self._idle_lanes and len(self._asked) >= self._under_way:
            self._idle_lanes -= 1
            # The task serves many callers, so it gets an empty context: its log events belong to no single request.
            task = asyncio.create_task(self._drain(), name="coalesced-reads", context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return future

    def read_unanswered_s(self) -> float:
        """Return the times that the questions so far have waited for their answers, summed up, in seconds."""
        self._add_unanswered(0)
        return self._unanswered_s

    def _add_unanswered(self, number: int) -> None:
        now_s = self._loop.time()
        self._unanswered_s += self._unanswered * (now_s - self._summed_up_s)
        self._unanswered += number
        self._summed_up_s = now_s

    async def _drain(self) -> None:
        try:
            while self._asked:
                # In each turn, the event loop reads all sockets, so requests that have already arrived join this batch.
                # This wait pays off, because a hop to a store's thread costs as much as ten point reads.
                for _ in range(GATHER_TURNS):
                    await asyncio.sleep(0)
                batch: dict[Hashable, list[tuple[Q, asyncio.Future[A]]]] = {}
                taken = min(len(self._asked), self._batch_max)
                for _ in range(taken):
                    kind, question, future = self._asked.popleft()
                    batch.setdefault(kind, []).append((question, future))
                self._under_way += taken
                try:
                    for group in batch.values():
                        await self._settle(group)
                finally:
                    self._under_way -= taken
                    self._add_unanswered(-taken)
        finally:
            self._idle_lanes += 1

    async def _settle(self, group: list[tuple[Q, asyncio.Future[A]]]) -> None:
        outcome: Any
        try:
            answers = await self._answer([question for question, _ in group])
        except Exception as error:
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), outcome in zip(group, answers, strict=True):
            if not future.done():
                future.set_result(outcome)


class StoreCoalescers(Generic[Q, A]):
    """One `Coalescer` for each store. If one connection pool is exhausted, only the reads that use that pool wait."""

    def __init__(self, answer: Callable[[list[Q]], Awaitable[Sequence[A]]], **limits: int) -> None:
        self._answer, self._limits = answer, limits
        self._by_store: dict[Store, Coalescer[Q, A]] = {}

    def ask(self, store: Store, kind: Hashable, question: Q) -> asyncio.Future[A]:
        coalescer = self._by_store.get(store)
        if coalescer is None:
            coalescer = self._by_store[store] = Coalescer(self._answer, **self._limits)
        return coalescer.ask(kind, question)

    def read_unanswered_s(self) -> float:
        """Return the sum of what `Coalescer.read_unanswered_s` returns for each store."""
        return sum(each.read_unanswered_s() for each in self._by_store.values())
