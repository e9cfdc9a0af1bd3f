"""Applies the posts that wait in the ingest queue. A worker leases a permit to work, and shards (parts of the queue).

    posts wait ──> claim a permit and shards ──> rounds on these shards ──> renew leases before they end ──> rounds …

A round applies some waiting posts of one partition. A worker may have shards of several partitions, and each turn runs
one round in each of them. A partition whose round fails does not stop the rounds of the others.

A transaction costs nearly the same for few posts as for many. So if a round emptied the queue, the worker waits a
moment before the next round, so that more posts gather.

If no posts wait, nothing is written, and a worker looks for new posts at each poll interval, but less often after a
quiet time. If a suspended worker lost its shards to others, the store rejects its writes.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from jobs.controls import Sleep, sleep_until_set
from jobs.errors import describe_failure, level_of
from jobs.job_context import JobContext
from storage.errors import LeaseLostError, RacesLostError, StorageError, StoreAwayError, StoreDamagedError
from storage.leases.work_leases import WorkLeases
from storage.queue import ingest_queue
from storage.queue.ingest_queue import Shard, ShardBacklog
from storage.queue.intake import read_backlog
from storage.queue.queue_application import DrainedRound, Drainer
from storage.queue.workers import Semaphore, ShardLeases, Share
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

        `make_drainer` receives the number of a partition, and returns the `Drainer` that applies its queued posts.
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
                    await self._sleep(pause_s)  # meanwhile more posts gather for the next transaction
        finally:
            await self._give_back()

    async def turn(self) -> bool:
        """Renew or claim leases if it is time, then apply posts. Return False if there are no shards or no posts."""
        try:
            ready = await self._renew()
        except Exception as error:
            await self._back_off(error)
            return True
        if not ready:
            self._failures = 0
        return ready and await self._run_rounds()

    async def _renew(self) -> bool:
        """Renew or claim leases if it is time. Return whether the worker has shards."""
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
        """Run a round in each partition with shards of this worker. Return False if no posts wait in these shards."""
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
        """Return whether no posts wait in the partitions that answer."""
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
        """Wait until posts are queued in this process, but at most until the next poll."""
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
