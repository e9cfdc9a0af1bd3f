"""Decides how many workers of the ingest queue may work at the same time, by measuring the work of all of them.

Every job process may change the stored number. No lease is needed: a write has an effect only if nobody has changed
the number since this process read it. If no posts were applied since the last measurement, nothing is written.

The number is the capacity of the store divided by the speed of one worker:

    a capacity of 2,100 posts a second ÷ a speed of 700 posts a second = 3 workers

The speed of a worker is the number of posts that it applies in a second of work. The capacity can be measured only
while all workers are busy and posts wait:

- If all workers together are as fast as the sum of their speeds, the capacity is not reached. One more worker is tried.
- If the workers together are slower than that sum, their total speed is the capacity. Fewer workers would reach the
  same capacity and slow each other down less.

A window is the time between two measurements. If workers slow each other down in `SLOW_WINDOWS` windows in a row, the
number is lowered; one such window may be chance. Then no worker is added for `REST_WINDOWS` windows.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import structlog

from jobs.job_context import JobContext
from storage.errors import StorageError
from storage.queue.ingest_queue import list_queues
from storage.queue.workers import Semaphore, Sizing, read_queue_state

JOB = "size workers"
WAITING_US = 1_000_000  # a post waits this long only if the workers don't keep up, or a worker died
BUSY_RATIO = 0.8  # workers that are busy for at least this fraction of the time are not short of posts
ADDS_UP_RATIO = 0.87  # workers that reach this fraction of the sum of their speeds do not slow each other down
CEILING_SLACK = 0.1  # if the estimate exceeds a whole number by at most this, the excess is ignored as noise
SLOW_WINDOWS = 2  # the number is lowered after this many windows in a row in which workers slowed each other down
REST_WINDOWS = 4  # after the number is lowered, no worker is added for this many windows
SPEED_UP_SHARE = 0.3  # the weight of a window's speed in the moving average, if this speed is above the average
SPEED_DOWN_SHARE = 0.01  # the same if the speed is below the average; small, because workers may slow each other down
log = structlog.get_logger(__name__)


def workers_for(capacity: float, speed: float, *, most: int) -> int:
    """Return how many workers of this `speed` reach the `capacity` (both in posts a second), from 1 to `most`."""
    return max(1, min(most, math.ceil(capacity / speed - CEILING_SLACK)))


@dataclass(frozen=True, slots=True)
class Window:
    seconds: float
    posts: int
    busy_s: float  # the sum of the busy times of all workers
    workers: int
    waiting: bool  # whether posts always waited, so that the workers were never short of posts


class WorkerCount:
    def __init__(self, *, most: int) -> None:
        self._most = most
        self.speed = 0.0  # posts a second of one worker, as a moving average; 0: not measured yet
        self.capacity = 0.0  # posts a second that the store can apply, as last estimated; 0: not estimated yet
        self._slow_windows, self._rest_windows = 0, 0

    def record_window(self, window: Window, *, size: int) -> int:
        """Record a window in which `size` workers were allowed. Return how many workers to allow from now on."""
        if window.posts and window.busy_s > 0:
            speed = window.posts / window.busy_s
            share = SPEED_UP_SHARE if speed > self.speed else SPEED_DOWN_SHARE
            self.speed = speed if not self.speed else self.speed + (speed - self.speed) * share
        busy = window.busy_s >= BUSY_RATIO * window.workers * window.seconds
        if not self.speed or not busy or not window.waiting:
            return size
        done = window.posts / window.seconds
        adds_up = done >= ADDS_UP_RATIO * window.workers * self.speed
        if window.workers < size and (adds_up or window.workers == 1):  # fewer worked than are allowed: allow no more
            return size
        self.capacity = done
        self._rest_windows = max(0, self._rest_windows - 1)
        self._slow_windows = 0 if adds_up else self._slow_windows + 1
        if self._slow_windows == SLOW_WINDOWS:
            self._slow_windows, self._rest_windows = 0, REST_WINDOWS
            return min(size, workers_for(done, self.speed, most=self._most))
        return min(self._most, size + 1) if adds_up and not self._rest_windows else size


class _Seen(NamedTuple):
    at_s: float
    posts: int  # number of posts that all workers have ever applied
    busy_s: float  # how long all workers together have ever been busy
    waits: bool  # whether the oldest post has waited for at least WAITING_US


class SizeWorkersJob:
    def __init__(self, context: JobContext, semaphore: Semaphore) -> None:
        self._store, self._semaphore, self._limits = context.store, semaphore, context.limits
        self._now_us, self._monotonic, self._sleep = context.now_us, context.monotonic, context.make_sleep(JOB)
        self._count = WorkerCount(most=context.limits.ingest_workers_max)
        self._before: _Seen | None = None

    async def run_forever(self) -> None:
        while True:
            await self._sleep(self._limits.ingest_sizing_s)
            try:
                await self.measure()
            except StorageError as error:
                log.warning("worker_sizing_failed", detail=error.detail)

    async def measure(self) -> None:
        """Measure the work since the last measurement. If the best number of workers has changed, store it."""
        queues = list_queues(self._store.dialect, self._store.partitions)
        state = await self._store.read(partial(read_queue_state, self._semaphore, queues))
        waited_since_us = self._now_us() - WAITING_US
        seen = _Seen(
            self._monotonic(),
            sum(count.applied for count in state.counts.values()),
            sum(count.busy_us for count in state.counts.values()) / 1e6,
            any(shard.oldest_us <= waited_since_us for shard in state.backlog.values()),
        )
        before, self._before = self._before, seen
        if before is None or seen.posts == before.posts:
            return
        window = Window(
            seconds=seen.at_s - before.at_s,
            posts=seen.posts - before.posts,
            busy_s=seen.busy_s - before.busy_s,
            workers=max(1, state.holders),
            waiting=before.waits and seen.waits,
        )
        found = state.sizing
        size = self._count.record_window(window, size=found.size)
        if size == found.size:
            return
        capacity, speed = round(self._count.capacity), round(self._count.speed)
        sizing = Sizing(size, capacity, speed, max(self._now_us(), found.sized_at_us + 1))
        if await self._store.write(lambda: self._semaphore.resize(sizing, found=found)):
            log.info("workers_resized", workers=size, before=found.size, capacity=capacity, speed=speed)
