"""Puts the jobs of one process together and starts them, so that a caller holds one thing: the desk and how to stop.

The one rule: time, sleep and chance come in here and nowhere below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from storage.archiving import ArchiveLimits
from storage.catalog import Catalog
from storage.claims import StoreClock
from storage.curves import CurveBook
from storage.folding import FoldLimits
from storage.lease_exchange import LeaseExchange
from storage.leases import Leases
from storage.live_counts import unread_from
from storage.store import Store

from .archive import Archiver
from .audit import AuditJob, Auditor
from .balance import BalanceJob, BalanceObserver
from .balancing import BalanceLimits
from .close_periods import CloseJob, CloseLimits, CloseObserver
from .controls import JobControls
from .demands import DemandJob, DemandLimits
from .desk import RefreshDesk
from .exchange import ExchangeJob, ExchangeLimits, ExchangeObserver, ReadPeer
from .fitting import Fitting
from .fold import FoldJob, FoldObserver
from .liberate import LiberateJob, LiberateLimits
from .ownership import LeaseLimits, Ownership
from .prune import PruneJob, PruneLimits, PruneObserver
from .queue import QueueParts, start_queue
from .refresh import RefreshJob, RefreshLimits, RefreshObserver
from .runner import Runner, RunnerLimits, Sleep
from .tools import JobTools
from .watch import WatchJob


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The bounds of all jobs."""

    runner: RunnerLimits
    refresh: RefreshLimits
    prune: PruneLimits
    lease: LeaseLimits
    demands: DemandLimits
    fold: FoldLimits
    close: CloseLimits
    archive: ArchiveLimits
    curve_poll_s: float
    live_poll_s: float


@dataclass(frozen=True, slots=True)
class PeerParts:
    """What the exchange of leases with other stores works with."""

    names: Sequence[str]
    exchange: LeaseExchange
    read: ReadPeer
    limits: ExchangeLimits
    observer: ExchangeObserver


@dataclass(frozen=True, slots=True)
class PoolParts:
    """What the jobs of pools work with."""

    liberate: LiberateLimits
    balance: BalanceLimits
    clock: StoreClock
    observer: BalanceObserver
    margin_us: int  # how long a lease that is over is nobody else's yet
    expired_counted_max: int
    peers: PeerParts | None = None  # None: keys lease in this store only


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts(JobTools):
    """What single jobs work with besides."""

    catalog: Catalog
    book: CurveBook
    desk: RefreshDesk
    leases: Leases
    limits: JobLimits
    observer: RefreshObserver
    folds: FoldObserver
    prunes: PruneObserver
    closings: CloseObserver
    pools: PoolParts | None = None  # None: nobody looks after pools
    auditor: Auditor | None = None  # None: curves are not audited
    audit_interval_s: float = 0  # 0: only where an operator asks
    queue: QueueParts | None = None  # None: queued posts are applied elsewhere
    sampled: Store | None = None  # where curves are sampled from: the store, or a replica of it
    controls: JobControls | None = None  # operators' hands on the jobs; `sleep` is theirs then

    @property
    def steady_sleep(self) -> Sleep:
        """A sleep that operators don't reach: leases are renewed, whatever job is paused."""
        return self.sleep if self.controls is None else self.controls.steady_sleep


class Jobs:
    """The running jobs of this process."""

    def __init__(self, runner: Runner, refresh: RefreshJob, desk: RefreshDesk) -> None:
        self._runner, self._refresh = runner, refresh
        self.desk = desk

    @property
    def running(self) -> list[str]:
        """Names of the jobs that have not ended."""
        return self._runner.running

    async def stop(self) -> list[str]:
        """Refuse demands, then end every job within the runner's bound; answers the names of those that would not."""
        self._refresh.close()
        return await self._runner.stop()


def start_jobs(parts: JobParts) -> Jobs:
    """Run every job. The desk takes demands from now on."""
    limits = parts.limits
    ownership = Ownership(parts.store, parts.leases, limits.lease, holder=parts.holder, sleep=parts.steady_sleep)
    refresh = RefreshJob(
        parts.store,
        parts.catalog,
        parts.open_boards,
        parts.book,
        parts.desk,
        ownership,
        limits.refresh,
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
        limits.prune,
        parts.prunes,
        now_us=parts.now_us,
        monotonic=parts.monotonic,
        sleep=parts.sleep,
        unread_from=lambda: unread_from(parts.store.dialect),
    )
    runner = start_watch(parts)
    refresh.open()
    runner.start("refresh schedule", refresh.schedule)
    for number in range(limits.refresh.refresh_concurrency):
        runner.start(f"refresh worker {number + 1}", refresh.work)
    runner.start("prune", prune.run)
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
        runner.start("audit", audit.run)
    runner.start("fold", _fold_job(parts, ownership).run)
    runner.start("close", _close_job(parts, ownership).run)
    if parts.pools is not None:
        _start_pool_jobs(runner, parts, parts.pools, ownership)
    if parts.queue is not None:
        start_queue(runner, parts.queue, parts)
    if not parts.store.sole_writer:  # front ends without jobs leave their operators' demands in the store
        demands = DemandJob(parts.store, parts.catalog, parts.desk, limits.demands, sleep=parts.sleep)
        runner.start("demands", demands.run)
    return Jobs(runner, refresh, parts.desk)


def _fold_job(parts: JobParts, ownership: Ownership) -> FoldJob:
    return FoldJob(
        parts.store,
        parts.book,
        ownership,
        parts.limits.fold,
        parts.folds,
        now_us=parts.now_us,
        monotonic=parts.monotonic,
        sleep=parts.sleep,
    )


def _close_job(parts: JobParts, ownership: Ownership) -> CloseJob:
    # Final curves are of the store itself: a replica may not have the last posts yet.
    fitting = Fitting(
        parts.store,
        parts.store,
        parts.open_boards,
        parts.limits.refresh.fitting,
        parts.observer,
        now_us=parts.now_us,
        monotonic=parts.monotonic,
    )
    archiver = Archiver(parts.store, parts.catalog, parts.open_boards, parts.limits.archive, parts.closings)
    return CloseJob(
        parts.store,
        parts.book,
        fitting,
        archiver,
        ownership,
        parts.limits.close,
        parts.limits.archive,
        parts.closings,
        clock=parts.leases.clock,
        monotonic=parts.monotonic,
        sleep=parts.sleep,
    )


def _start_pool_jobs(runner: Runner, parts: JobParts, pools: PoolParts, ownership: Ownership) -> None:
    runner.start("liberate", _liberate_job(parts, pools, ownership).run)
    runner.start("balance", _balance_job(parts, pools, ownership).run)
    peers = pools.peers
    if peers is not None:
        exchange = ExchangeJob(
            parts.store, ownership, peers.limits, peers.exchange, peers.read, peers.observer, sleep=parts.sleep
        )
        for name in peers.names:
            runner.start(f"exchange {name}", partial(exchange.follow, name))


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
    """Run what every process needs, the ones without jobs too: noticing the curves that others store."""
    limits = parts.limits
    watch = WatchJob(parts.book, curve_poll_s=limits.curve_poll_s, live_poll_s=limits.live_poll_s, sleep=parts.sleep)
    runner = Runner(
        limits.runner, monotonic=parts.monotonic, sleep=parts.steady_sleep, rng=parts.rng, controls=parts.controls
    )
    runner.start("watch", watch.run)
    runner.start("live watch", watch.run_live)
    return runner
