"""Run the closing job in a series of simulated processes, each of which may die at any call of the store.

A new process knows only what earlier processes stored. A process dies before a call of the store, or after the call but
before the job receives the result.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from jobs.boards.close_periods import RESOURCE, CloseJob
from jobs.ownership import JOB_WORK, HeldLease
from querybuilder import Bound
from service.context import Context
from storage.boards.catalog import Catalog
from storage.curves.curve_book import CurveBook
from storage.leases.work_leases import WorkLeases
from storage.reads.open_boards import OpenBoards
from storage.store import Program, Rows, Store
from tests.service.closing import close_job, make_job_context
from tests.storage.passing import PassingStore

T = TypeVar("T")

CALLS_MAX = 40  # a process dies at one of its first CALLS_MAX calls of the store
LEASE_US = 10_000_000
PROCESSES_MAX = 1_000  # the closing must be complete after at most this many processes


class KilledError(Exception):
    """Simulates the death of a process at a call of the store."""


class MortalStore(PassingStore):
    """The store of a process that dies at call number `calls`.

    If `done` is set, it dies after the call, otherwise before.
    """

    def __init__(self, store: Store, calls: int, *, done: bool) -> None:
        super().__init__(store)
        self._calls, self._done = calls, done

    async def _called(self, call: Callable[[], Awaitable[T]]) -> T:
        self._calls -= 1
        if self._calls > 0:
            return await call()
        if self._calls == 0 and self._done:
            await call()
        raise KilledError

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        return await self._called(lambda: self._store.read(program, heavy=heavy))

    async def read_query(self, query: Bound) -> Rows:
        return await self._called(lambda: self._store.read_query(query))

    async def write(self, program: Callable[[], Program[T]]) -> T:
        return await self._called(lambda: self._store.write(program))


class KilledClosing:
    """Run the closing job in processes that die, until the boards that are due by `clock` are closed."""

    def __init__(self, context: Context, clock: Callable[[], int], rng: random.Random) -> None:
        self._context, self._clock, self._rng = context, clock, rng
        # The clock of leases; it passes the end of the last process's lease before the next process starts.
        self._leases_us = 0
        self.deaths = 0

    async def close_all(self) -> None:
        """Start one process after another, until one process closes all due boards without dying."""
        for _ in range(PROCESSES_MAX):
            self._leases_us += 10 * LEASE_US
            calls = self._rng.randint(1, CALLS_MAX)
            try:
                await self._live(MortalStore(self._context.store, calls, done=self._rng.random() < 0.5))
                return
            except KilledError:
                self.deaths += 1
        raise AssertionError("closing never ends")

    async def _live(self, store: MortalStore) -> None:
        leases = WorkLeases(self._lease_clock, margin_us=0)
        lease = await self._context.store.write(
            lambda: leases.claim(JOB_WORK, RESOURCE, holder=f"process {self.deaths}", lease_us=LEASE_US)
        )
        book = CurveBook(store, None, poll_rows_max=self._context.settings.curve_poll_rows_max)
        await book.poll()
        job = self._job(store, book, leases)
        while await job.close_due(HeldLease(lease, leases, LEASE_US)):
            pass

    def _job(self, store: MortalStore, book: CurveBook, leases: WorkLeases) -> CloseJob:
        own = replace(
            make_job_context(self._context),
            store=store,
            catalog=Catalog(store),
            book=book,
            open_boards=OpenBoards(open_boards_max=self._context.settings.open_boards_max),
            leases=leases,
            now_us=self._clock,
            sleep=_for_ever,
        )
        return close_job(own)

    def _lease_clock(self) -> Program[int]:
        yield from ()
        return self._leases_us


async def _for_ever(_seconds: float) -> None:
    await asyncio.Event().wait()
