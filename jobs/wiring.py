"""Assembles one process's jobs and starts them.

Jobs that work on board tables run once for each partition, so that a partition that does not answer delays only its own
jobs. A process without jobs calls only `start_watch`, which loads the curves that other processes store. Jobs use only
the clocks, sleep functions and random numbers that the caller passes in.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from config.kinds import parse_peers
from jobs.boards.close_periods import CloseJob
from jobs.boards.prune import PruneJob
from jobs.curves.audit import AuditJob, Auditor
from jobs.curves.fold import FoldJob
from jobs.curves.refresh import JOB, REQUESTS, Refresher, RefreshJob
from jobs.events.deliver import DeliverJob, SendEvent
from jobs.events.tops import TopsJob
from jobs.leases.liberate import LiberateJob
from jobs.leases.peer_journals import ExchangeJob, ReadPeer
from jobs.leases.rebalance import BalanceJob
from jobs.queue import JOB as SIZE_JOB
from jobs.queue import DrainWorker, QueueParts, SizeWorkersJob
from storage.errors import StoreAwayError
from storage.events import event_log
from storage.leases.peers import LeaseExchange
from storage.queue.ingest_queue import list_queues
from storage.queue.queue_application import Drainer
from storage.queue.workers import ShardLeases
from storage.schema.creation import is_apart
from storage.store import CONTROL

from .controls import Runner, Sleep
from .job_context import JobContext
from .ownership import Ownership

log = structlog.get_logger(__name__)
PARTITIONS_LOOK_S = 10  # seconds between two checks whether partitions were added


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts(JobContext):
    refresher: Refresher
    runs_pools: bool = False
    read_peer: ReadPeer | None = None  # reads lease journals of other stores; None: no other store is configured
    send_event: SendEvent | None = None  # sends events to webhooks; None: this process lists and delivers none
    auditor: Auditor | None = None  # None: curves are not audited
    queue: QueueParts | None = None  # None: this process applies no queued posts


class Jobs:
    def __init__(self, runner: Runner, refresher: Refresher) -> None:
        self._runner, self._refresher = runner, refresher

    async def stop(self) -> list[str]:
        """Refuse refresh requests, cancel every job, and return the names of those that did not end in time."""
        self._refresher.refuse_requests()
        return await self._runner.stop()


def start_jobs(parts: JobParts) -> Jobs:
    """Start every job of this process. From then on, `parts.refresher` accepts refresh requests."""
    refresh = RefreshJob(parts, parts.refresher)
    runner = start_watch(parts)
    parts.refresher.accept_requests()
    runner.start("refresh schedule", refresh.schedule, job=JOB)
    runner.start(REQUESTS, refresh.look)
    for number in range(parts.limits.refresh_concurrency):
        runner.start(f"refresh worker {number + 1}", refresh.work, job=JOB)
    start_by_partition(runner, parts, partial(_start_partition_jobs, runner, parts))
    if is_apart(parts.store.dialect):
        runner.start("prune control", PruneJob(parts, CONTROL).run_forever, job="prune")
    if parts.auditor is not None and parts.limits.audit_interval_s:
        runner.start("audit", AuditJob(parts, parts.auditor).run_forever)
    runner.start("close", CloseJob(parts, clock=parts.leases.clock).run_forever)
    if parts.send_event is not None:
        runner.start("deliver", DeliverJob(parts, parts.send_event).run_forever)
        runner.start("tops", TopsJob(parts).run_forever)
    if parts.runs_pools:
        _start_pool_jobs(runner, parts)
    if parts.queue is not None:
        _start_queue(runner, parts.queue, parts)
    return Jobs(runner, parts.refresher)


def _start_partition_jobs(runner: Runner, parts: JobParts, partition: int) -> None:
    runner.start(f"prune {partition}", PruneJob(parts, partition).run_forever, job="prune")
    runner.start(f"fold {partition}", FoldJob(parts, partition).run_forever, job="fold")
    if parts.send_event is not None:
        follower, sleep = event_log.make_follower(partition), parts.make_sleep("events")
        following = partial(Ownership(parts).run_follower, follower, sleep=sleep)
        runner.start(f"events {partition}", following, job="events")


def _start_pool_jobs(runner: Runner, parts: JobParts) -> None:
    runner.start("liberate", LiberateJob(parts).run_forever)
    runner.start("balance", BalanceJob(parts).run_forever)
    if parts.read_peer is None:
        return
    limits = parts.limits
    exchange = LeaseExchange(
        parts.leases.clock,
        store_name=limits.lease_store_name,
        attempts_max=limits.write_attempts_max,
        rng=parts.rng,
    )
    for name in parse_peers(limits.lease_peers):
        job = ExchangeJob(parts, exchange, parts.read_peer, peer=name)
        runner.start(job.name, job.run_forever)


def _start_queue(runner: Runner, parts: QueueParts, context: JobContext) -> None:
    workers = context.limits.ingest_workers
    for number in range(1, workers + 1):
        worker = _make_drain_worker(parts, context, holder=f"{context.holder}/{number}")
        runner.start(f"drain worker {number}", worker.run_forever, job="drain")
    # If this process is the sole writer of the store, no other process has workers, so their number needs no limit.
    if workers and not context.store.sole_writer:
        runner.start(SIZE_JOB, SizeWorkersJob(context, parts.semaphore).run_forever)


def _make_drain_worker(parts: QueueParts, context: JobContext, *, holder: str) -> DrainWorker:
    sleep = context.make_sleep("drain")

    def make_drainer(partition: int) -> Drainer:
        return Drainer(
            context.store.at(partition),
            context.open_boards,
            parts.leases,
            context.limits,
            monotonic=context.monotonic,
            sleep=sleep,
            rng=context.rng,
        )

    leases = ShardLeases(
        parts.leases,
        parts.semaphore,
        shards=parts.shards,
        queues=lambda: list_queues(context.store.dialect, context.store.partitions),
        holder=holder,
        lease_us=round(context.limits.ingest_lease_s * 1e6),
        rng=context.rng,
    )
    return DrainWorker(context, make_drainer, leases, wake=parts.wake, sleep=sleep)


def start_watch(context: JobContext) -> Runner:
    """Start to load the curves that other processes store. Every process needs this, even if it runs no other job."""
    runner = Runner(
        context.limits, monotonic=context.monotonic, sleep=context.sleep, rng=context.rng, controls=context.controls
    )
    start_by_partition(runner, context, partial(_start_polls, runner, context))
    return runner


def _start_polls(runner: Runner, context: JobContext, partition: int) -> None:
    poll, sleep = partial(context.book.poll, partition), context.make_sleep("watch")
    runner.start(f"watch {partition}", partial(watch_curves, poll, context.limits.live_poll_s, sleep), job="watch")


def start_by_partition(runner: Runner, context: JobContext, start: Callable[[int], None]) -> None:
    """Start a job that calls `start` with each partition's number, including partitions that are added later."""
    started = 0

    async def follow() -> None:
        nonlocal started
        while True:
            while started < context.store.partitions:
                start(started)
                started += 1
            await context.sleep(PARTITIONS_LOOK_S)

    runner.start("partitions", follow)


async def watch_curves(poll: Callable[[], Awaitable[int]], interval_s: float, sleep: Sleep) -> None:
    """Call `poll`, which loads new curves, every `interval_s` seconds, for ever. Errors are logged."""
    while True:
        await sleep(interval_s)
        try:
            await poll()
        except StoreAwayError as error:  # the next poll may find the partition again
            log.warning("curves_not_polled", detail=error.detail)
        except Exception as error:
            log.error("curve_poll_failed", exc_info=error)
