"""Applies queued posts, with workers that each lease a permit to work and some shards (parts of the ingest queue).

    queued posts, in shards ──> DrainWorker: leases a permit and shards ──> rounds: posts applied in few transactions
                                                 ^
    SizeWorkersJob: work that was done ──> WorkerCount ──> how many workers may hold a permit (a stored semaphore)

A shard has at most one worker, so its posts are applied in order. If a worker dies, the others take over its shards
when its leases end. If a suspended worker has lost its shards to others, the store rejects its writes.

A round applies some of one partition's waiting posts. A worker may have shards from several partitions, and each turn
runs one round in each of them. If one partition's round fails, the others' rounds still run.

A transaction costs nearly the same for a few posts as for many. After a round that emptied the queue, the worker
therefore waits a moment, so that more posts gather for the next one. While no posts are waiting, nothing is written,
and a worker looks for new posts at each poll interval, but less often after a quiet time.

Every job process may change the stored number of workers. This needs no lease, because a write takes effect only if
nobody has changed the number since this process read it. If no posts were applied since the last measurement, nothing
is written.

The number of workers is the store's capacity divided by the speed of one worker:

    a capacity of 2,100 posts a second ÷ a speed of 700 posts a second = 3 workers

A worker's speed is the number of posts that it applies in a second of work. The capacity can be measured only while all
workers are busy and posts are waiting:

- If all workers together are as fast as the sum of their speeds, the capacity has not been reached, so one more worker
  is tried.
- If the workers together are slower than that sum, their total speed is the capacity. Fewer workers would reach the
  same capacity and slow each other down less.

A window is the time between two measurements. If workers slow each other down in `SLOW_WINDOWS` windows in a row, the
number is lowered (a single such window may be chance). After that, no worker is added for `REST_WINDOWS` windows.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import structlog

from jobs.controls import Sleep, sleep_until_set
from jobs.errors import describe_failure, level_of
from jobs.job_context import JobContext
from storage.errors import LeaseLostError, RacesLostError, StorageError, StoreAwayError, StoreDamagedError
from storage.leases.work_leases import WorkLeases
from storage.queue import ingest_queue
from storage.queue.ingest_queue import Shard, ShardBacklog, list_queues
from storage.queue.intake import read_backlog
from storage.queue.queue_application import DrainedRound, Drainer
from storage.queue.workers import Semaphore, ShardLeases, Share, Sizing, read_queue_state
from storage.store import read_single

log = structlog.get_logger(__name__)
_DOUBLINGS_MAX = 20
# After `QUIET_AFTER_S` without posts, a worker polls `QUIET_POLLS` times less often, because polls cost CPU time.
QUIET_AFTER_S = 10.0
QUIET_POLLS = 5


@dataclass(frozen=True, slots=True)
class QueueParts:
    shards: int  # number of shards in each partition
    leases: WorkLeases
    wake: asyncio.Event  # set when posts are queued in this process
    semaphore: Semaphore  # limits how many workers of the whole store work at the same time


class DrainWorker:
    def __init__(
        self,
        context: JobContext,
        make_drainer: Callable[[int], Drainer],
        leases: ShardLeases,
        *,
        wake: asyncio.Event,
        sleep: Sleep,
    ) -> None:
        """Create a worker. The caller must set `wake` whenever posts are queued in this process.

        `make_drainer` takes a partition's number and returns the `Drainer` that applies its queued posts.
        """
        self._store, self._leases, self._limits = context.store, leases, context.limits
        self._make_drainer = make_drainer
        self._drainers: dict[int, Drainer] = {}
        self._meter, self._wake, self._now_us = context.meter, wake, context.now_us
        self._monotonic, self._sleep = context.monotonic, sleep
        self._share = Share()
        self._renewed_s: float | None = None
        self._measures_at_s = self._monotonic()  # monotonic time at which the waiting posts are counted again
        self._failures = 0
        self._worked_s = self._monotonic()  # monotonic time at which this worker last applied posts
        self._next_round_s = self._worked_s

    async def run_forever(self) -> None:
        """Work for ever. When cancelled, release the permit and the shards, so that other workers need not wait."""
        try:
            while True:
                if not await self.turn():
                    await self._idle()
                elif (pause_s := self._next_round_s - self._monotonic()) > 0:
                    await self._sleep(pause_s)  # so that more posts gather for the next transaction
        finally:
            await self._give_back()

    async def turn(self) -> bool:
        """Renew or claim leases if it is time, then apply posts. Return False if there were no shards or no posts."""
        try:
            ready = await self._renew()
        except Exception as error:
            await self._back_off(error)
            return True
        if not ready:
            self._failures = 0
        return ready and await self._run_rounds()

    async def _renew(self) -> bool:
        if self._renewed_s is None or self._monotonic() - self._renewed_s >= self._renewal_s:
            if await self._is_empty():
                self._report_backlog({})
                return False
            self._share = await self._leases.update_share(self._store, self._share)
            self._renewed_s = self._monotonic()
        if self._share.permit is None:  # only workers with a permit report how many posts wait
            self._meter.clear("rankcurve_ingest_posts")
            self._meter.clear("rankcurve_ingest_age_seconds")
        elif self._monotonic() >= self._measures_at_s:
            self._measures_at_s = self._monotonic() + self._limits.ingest_look_s
            self._report_backlog(await read_backlog(self._store))
        return bool(self._share.shards)

    async def _run_rounds(self) -> bool:
        began_s, worked, more = self._monotonic(), False, False
        failure: Exception | None = None
        for partition, shards in self._share.by_partition():
            if partition not in self._drainers:
                self._drainers[partition] = self._make_drainer(partition)
            try:
                drained = await self._drainers[partition].drain_round(shards)
            except (LeaseLostError, RacesLostError) as error:
                if isinstance(error, LeaseLostError):
                    self._meter.add("rankcurve_ingest_fenced")
                    self._share = self._share.without(partition)
                self._renewed_s = None
                worked = more = True
            except Exception as error:
                failure = error
            else:
                if drained is not None:
                    self._worked_s, worked = self._monotonic(), True
                    more |= drained.more
                    self._report_round(drained)
        if failure is not None:
            await self._back_off(failure)
            return True
        self._failures = 0
        if worked and not more:
            self._next_round_s = began_s + min(self._limits.ingest_gather_s, self._renewal_s)
        return worked

    def _report_round(self, drained: DrainedRound) -> None:
        for partition, applied in drained.applied.items():
            self._meter.add("rankcurve_partition_posts_applied", applied, str(partition))
        for outcome, count in drained.statuses.items():
            self._meter.add("rankcurve_ingest_outcomes", count, outcome)
        self._meter.observe("rankcurve_ingest_round_posts", sum(drained.posts.values()))
        age_s = max(0.0, (self._now_us() - drained.oldest_us) / 1e6)
        self._meter.observe("rankcurve_ingest_applied_age_seconds", age_s)

    async def _back_off(self, error: Exception) -> None:
        self._failures = min(self._failures + 1, _DOUBLINGS_MAX)
        pause_s = min(self._limits.ingest_backoff_s_max, self._limits.job_backoff_base_s * 2**self._failures)
        level = logging.WARNING if self._failures == 1 else logging.DEBUG  # the tries that follow say the same
        log.log(level_of(error, level), "drain_failed", pause_s=pause_s, **describe_failure(error))
        self._renewed_s = None
        await self._sleep(pause_s)

    async def _is_empty(self) -> bool:
        queues = self._leases.queues()
        for partition in queues:
            try:
                if not await read_single(self._store.at(partition), ingest_queue.is_empty):
                    return False
            except StoreAwayError:
                if partition == queues[0]:  # no worker can work without the first partition, which has the permits
                    raise
        return True

    @property
    def _renewal_s(self) -> float:
        return self._limits.ingest_lease_s * self._limits.lease_renewal_ratio

    def _report_backlog(self, found: dict[Shard, ShardBacklog]) -> None:
        now_us = self._now_us()
        oldest_us = min((each.oldest_us for each in found.values()), default=now_us)
        self._meter.set("rankcurve_ingest_posts", sum(each.posts for each in found.values()))
        self._meter.set("rankcurve_ingest_age_seconds", max(0.0, (now_us - oldest_us) / 1e6))

    async def _idle(self) -> None:
        quiet = self._monotonic() - self._worked_s > QUIET_AFTER_S
        pause_s = self._limits.ingest_poll_s * (QUIET_POLLS if quiet else 1)
        self._wake.clear()
        if await sleep_until_set(self._wake, self._sleep(pause_s)) and not self._share.shards:
            self._renewed_s = None

    async def _give_back(self) -> None:
        if self._share == Share():
            return
        try:
            await self._store.write(lambda: self._leases.release_share(self._share))
        except StoreDamagedError:  # no worker claims leases of a damaged store
            return
        except StorageError as error:  # the leases expire by themselves
            log.warning("shards_not_released", detail=error.detail)


JOB = "size workers"
WAITING_US = 1_000_000  # a post waits this long only if the workers don't keep up, or a worker died
BUSY_RATIO = 0.8  # workers that are busy for at least this fraction of the time are not short of posts
ADDS_UP_RATIO = 0.87  # workers that reach this fraction of the sum of their speeds do not slow each other down
CEILING_SLACK = 0.1  # if the estimate exceeds a whole number by at most this, the excess is ignored as noise
SLOW_WINDOWS = 2  # the number is lowered after this many windows in a row in which workers slowed each other down
REST_WINDOWS = 4  # after the number is lowered, no worker is added for this many windows
SPEED_UP_SHARE = 0.3  # the weight of a window's speed in the moving average, if this speed is above the average
SPEED_DOWN_SHARE = 0.01  # the same if the speed is below the average; small, because workers may slow each other down


def workers_for(capacity: float, speed: float, *, most: int) -> int:
    """Compute how many workers of this `speed` reach the `capacity` (both in posts a second), from 1 to `most`."""
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
        """Record a window in which `size` workers were allowed, and return how many to allow from now on."""
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
        """Measure the work since the last measurement, and store the best number of workers if it has changed."""
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
