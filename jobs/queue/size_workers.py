"""Decides how many workers of the ingest queue may work at the same time, by measuring the work of all of them.

Every job process may change this number without a lease, because a process that has read an older number changes
nothing. If no posts were applied, nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from config.settings import QueueSettings
from jobs.controls import Sleep
from storage.errors import StorageError
from storage.queue.ingest_queue import ShardCount, ingest_queue
from storage.queue.workers import Semaphore, Sizing
from storage.store import Program, Store

from .worker_estimate import Window, WorkerCount

WAITING_US = 1_000_000  # while workers keep up, no post waits this long, unless a worker died
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    counts: dict[int, ShardCount]
    holders: int
    sizing: Sizing
    oldest_for_us: int | None  # how long the oldest post has waited, in microseconds; None: no post waits

    @property
    def waits(self) -> bool:
        return self.oldest_for_us is not None and self.oldest_for_us >= WAITING_US

    @property
    def posts(self) -> int:
        return sum(count.applied for count in self.counts.values())

    @property
    def busy_s(self) -> float:
        return sum(count.busy_us for count in self.counts.values()) / 1e6


class SizeWorkersJob:
    def __init__(
        self,
        store: Store,
        semaphore: Semaphore,
        limits: QueueSettings,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        sleep: Sleep,
    ) -> None:
        self._store, self._semaphore, self._limits = store, semaphore, limits
        self._now_us, self._monotonic, self._sleep = now_us, monotonic, sleep
        self._count = WorkerCount(most=limits.ingest_workers_max)
        self._before: tuple[float, _Seen] | None = None

    async def run_forever(self) -> None:
        while True:
            await self._sleep(self._limits.ingest_sizing_s)
            try:
                await self.measure()
            except StorageError as error:
                log.warning("worker_sizing_failed", detail=error.detail)

    async def measure(self) -> None:
        """Measure the work since the last measurement, and resize the semaphore if the estimate has changed."""
        seen, now_s = await self._store.read(self._look), self._monotonic()
        before, self._before = self._before, (now_s, seen)
        if before is None or seen.posts == before[1].posts:
            return
        window = Window(
            seconds=now_s - before[0],
            posts=seen.posts - before[1].posts,
            busy_s=seen.busy_s - before[1].busy_s,
            workers=max(1, seen.holders),
            waiting=before[1].waits and seen.waits,
        )
        size = self._count.record_window(window, size=seen.sizing.size)
        if size == seen.sizing.size:
            return
        capacity, speed = round(self._count.capacity), round(self._count.speed)
        sizing = Sizing(size, capacity, speed, max(self._now_us(), seen.sizing.sized_at_us + 1))
        if await self._store.write(lambda: self._semaphore.resize(sizing, found=seen.sizing)):
            log.info("workers_resized", workers=size, before=seen.sizing.size, capacity=capacity, speed=speed)

    def _look(self) -> Program[_Seen]:
        counts = yield from ingest_queue.counts()
        backlog = yield from ingest_queue.backlog()
        holders = yield from self._semaphore.holders()
        sizing = yield from self._semaphore.sizing()
        oldest_us = min((shard.oldest_us for shard in backlog.values()), default=None)
        return _Seen(counts, holders, sizing, None if oldest_us is None else self._now_us() - oldest_us)
