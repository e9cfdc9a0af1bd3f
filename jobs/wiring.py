"""Puts the jobs of one process together and starts them.

A process without jobs calls only `start_watch`, which loads the curves that other processes store. Clocks, sleep
functions and random numbers come in as arguments. Jobs get them only from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from config.settings import LeaseSettings, Settings
from jobs.boards.archive import Archiver
from jobs.boards.close_periods import CloseJob, CloseObserver
from jobs.boards.prune import PruneJob, PruneObserver
from jobs.curves.audit import AuditJob, Auditor
from jobs.curves.fitting import Fitting
from jobs.curves.fold import FoldJob, FoldObserver
from jobs.curves.refresh import RefreshJob, RefreshObserver
from jobs.curves.refresh_requests import RefreshQueue, RefreshRequestJob
from jobs.curves.watch import WatchJob
from jobs.leases.liberate import LiberateJob
from jobs.leases.peers import ExchangeJob, ExchangeObserver, ReadPeer
from jobs.leases.rebalance import BalanceJob, BalanceObserver
from jobs.queue.workers import QueueParts, start_queue
from storage.boards.catalog import Catalog
from storage.curves.live_counts import find_fold_position
from storage.curves.stored_curves import CurveBook
from storage.leases.claims import StoreClock
from storage.leases.peers.exchange import LeaseExchange
from storage.leases.work_leases import WorkLeases
from storage.store import Store

from .controls import JobControls, Sleep
from .job_context import JobTools
from .ownership import Ownership
from .runner import Runner


@dataclass(frozen=True, slots=True)
class PeerParts:
    names: Sequence[str]
    exchange: LeaseExchange
    read: ReadPeer
    limits: LeaseSettings
    observer: ExchangeObserver


@dataclass(frozen=True, slots=True)
class PoolParts:
    """The objects that the jobs for pools need."""

    liberate: LeaseSettings
    balance: LeaseSettings
    clock: StoreClock
    observer: BalanceObserver
    margin_us: int  # after a lease ends, no other holder gets its resource for this time
    expired_counted_max: int
    peers: PeerParts | None = None  # None: keys lease only in this store


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts(JobTools):
    catalog: Catalog
    book: CurveBook
    refresh_queue: RefreshQueue
    leases: WorkLeases
    limits: Settings
    observer: RefreshObserver
    folds: FoldObserver
    prunes: PruneObserver
    closings: CloseObserver
    pools: PoolParts | None = None  # None: this process runs no jobs for pools
    auditor: Auditor | None = None  # None: curves are not audited
    audit_interval_s: float = 0  # 0: curves are audited only when an operator asks
    queue: QueueParts | None = None  # None: other processes apply queued posts
    sampled: Store | None = None  # the store that curves are sampled from, such as a replica; None: `store`
    controls: JobControls | None = None  # lets operators pause jobs; `sleep` must then be `controls.sleep`

    @property
    def steady_sleep(self) -> Sleep:
        """Return a sleep function that operators can't pause, because leases are renewed even while a job is paused."""
        return self.sleep if self.controls is None else self.controls.steady_sleep


class Jobs:
    def __init__(self, runner: Runner, refresh: RefreshJob, refresh_queue: RefreshQueue) -> None:
        self._runner, self._refresh = runner, refresh
        self.refresh_queue = refresh_queue

    @property
    def running(self) -> list[str]:
        return self._runner.running

    async def stop(self) -> list[str]:
        """Refuse refresh requests, then cancel every job. Return the names of jobs that did not end in time."""
        self._refresh.close()
        return await self._runner.stop()


def start_jobs(parts: JobParts) -> Jobs:
    """Start every job of this process. `parts.refresh_queue` accepts refresh requests from now on."""
    limits = parts.limits
    ownership = Ownership(parts.store, parts.leases, limits, holder=parts.holder, sleep=parts.steady_sleep)
    refresh = RefreshJob(
        parts.store,
        parts.catalog,
        parts.open_boards,
        parts.book,
        parts.refresh_queue,
        ownership,
        limits,
        parts.observer,
        now_us=parts.now_us,
        monotonic=parts.monotonic,
        sleep=parts.sleep,
        rng=parts.rng,
        sampled=parts.sampled,
    )
    prune = PruneJob(
        parts.store,
        parts.post_ids,
        ownership,
        limits,
        parts.prunes,
        now_us=parts.now_us,
        monotonic=parts.monotonic,
        sleep=parts.sleep,
        unread_from=lambda: find_fold_position(),
    )
    runner = start_watch(parts)
    refresh.open()
    runner.start("refresh schedule", refresh.schedule)
    for number in range(limits.refresh_concurrency):
        runner.start(f"refresh worker {number + 1}", refresh.work)
    runner.start("prune", prune.run_forever)
    if parts.auditor is not None and parts.audit_interval_s:
        audit = AuditJob(
            parts.catalog,
            parts.book,
            parts.auditor,
            ownership,
            audit_interval_s=parts.audit_interval_s,
            sleep=parts.sleep,
            rng=parts.rng,
        )
        runner.start("audit", audit.run_forever)
    runner.start("fold", _fold_job(parts, ownership).run_forever)
    runner.start("close", _close_job(parts, ownership).run_forever)
    if parts.pools is not None:
        _start_pool_jobs(runner, parts, parts.pools, ownership)
    if parts.queue is not None:
        start_queue(runner, parts.queue, parts)
    if not parts.store.sole_writer:  # front ends without jobs write their operators' refresh requests to the store
        requests = RefreshRequestJob(parts.store, parts.catalog, parts.refresh_queue, limits, sleep=parts.sleep)
        runner.start("demands", requests.run_forever)
    return Jobs(runner, refresh, parts.refresh_queue)


def _fold_job(parts: JobParts, ownership: Ownership) -> FoldJob:
    return FoldJob(
        parts.store,
        parts.book,
        ownership,
        parts.limits,
        parts.folds,
        now_us=parts.now_us,
        monotonic=parts.monotonic,
        sleep=parts.sleep,
    )


def _close_job(parts: JobParts, ownership: Ownership) -> CloseJob:
    # Fit final curves from the store itself, because a replica may not have the last posts yet.
    fitting = Fitting(
        parts.store,
        parts.store,
        parts.open_boards,
        parts.limits,
        parts.observer,
        now_us=parts.now_us,
        monotonic=parts.monotonic,
    )
    archiver = Archiver(parts.store, parts.catalog, parts.open_boards, parts.limits, parts.closings)
    return CloseJob(
        parts.store,
        parts.book,
        fitting,
        archiver,
        ownership,
        parts.limits,
        parts.limits,
        parts.closings,
        clock=parts.leases.clock,
        monotonic=parts.monotonic,
        sleep=parts.sleep,
    )


def _start_pool_jobs(runner: Runner, parts: JobParts, pools: PoolParts, ownership: Ownership) -> None:
    runner.start("liberate", _liberate_job(parts, pools, ownership).run_forever)
    runner.start("balance", _balance_job(parts, pools, ownership).run_forever)
    peers = pools.peers
    if peers is not None:
        exchange = ExchangeJob(
            parts.store, ownership, peers.limits, peers.exchange, peers.read, peers.observer, sleep=parts.sleep
        )
        for name in peers.names:
            runner.start(f"exchange {name}", partial(exchange.follow_journal, name))


def _liberate_job(parts: JobParts, pools: PoolParts, ownership: Ownership) -> LiberateJob:
    return LiberateJob(
        parts.store,
        ownership,
        pools.liberate,
        pools.clock,
        margin_us=pools.margin_us,
        monotonic=parts.monotonic,
        sleep=parts.sleep,
        rng=parts.rng,
    )


def _balance_job(parts: JobParts, pools: PoolParts, ownership: Ownership) -> BalanceJob:
    return BalanceJob(
        parts.store,
        ownership,
        pools.balance,
        pools.clock,
        pools.observer,
        margin_us=pools.margin_us,
        expired_counted_max=pools.expired_counted_max,
        monotonic=parts.monotonic,
        sleep=parts.sleep,
        rng=parts.rng,
    )


def start_watch(parts: JobParts) -> Runner:
    """Start the watch, which loads the curves that other processes store. Every process needs it, even without jobs."""
    limits = parts.limits
    watch = WatchJob(parts.book, curve_poll_s=limits.curve_poll_s, live_poll_s=limits.live_poll_s, sleep=parts.sleep)
    runner = Runner(limits, monotonic=parts.monotonic, sleep=parts.steady_sleep, rng=parts.rng, controls=parts.controls)
    runner.start("watch", watch.run_forever)
    runner.start("live watch", watch.run_live)
    return runner
