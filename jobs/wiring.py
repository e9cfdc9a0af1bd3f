"""Puts the jobs of one process together and starts them, so that a caller holds one thing: the desk and how to stop.

The one rule: time, sleep and chance come in here and nowhere below.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from storage.archiving import ArchiveLimits
from storage.boards import OpenBoards
from storage.catalog import Catalog
from storage.curves import CurveBook
from storage.folding import FoldLimits
from storage.leases import Leases
from storage.live_counts import unread_from
from storage.post_ids import PostIds
from storage.store import Store

from .archive import Archiver
from .audit import AuditJob, Auditor
from .close_periods import CloseJob, CloseLimits, CloseObserver
from .controls import JobControls
from .demands import DemandJob, DemandLimits
from .desk import RefreshDesk
from .fitting import Fitting
from .fold import FoldJob, FoldObserver
from .ownership import LeaseLimits, Ownership
from .prune import PruneJob, PruneLimits
from .refresh import RefreshJob, RefreshLimits, RefreshObserver
from .runner import Runner, RunnerLimits, Sleep
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
class JobParts:
    """What jobs work with."""

    store: Store
    catalog: Catalog
    open_boards: OpenBoards
    book: CurveBook
    post_ids: PostIds
    desk: RefreshDesk
    leases: Leases
    holder: str  # this process, told from every other one that ever worked on the store
    limits: JobLimits
    observer: RefreshObserver
    folds: FoldObserver
    closings: CloseObserver
    now_us: Callable[[], int]
    monotonic: Callable[[], float]
    sleep: Sleep
    rng: random.Random
    auditor: Auditor | None = None  # None: curves are not audited
    audit_interval_s: float = 0  # 0: only where an operator asks
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
        parts.closings,
        clock=parts.leases.clock,
        monotonic=parts.monotonic,
        sleep=parts.sleep,
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
