"""Puts the jobs of one process together and starts them, so that a caller holds one thing: the desk and how to stop.

The one rule: time, sleep and chance come in here; nothing below has its own.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from config import Settings
from storage.boards import OpenBoards
from storage.curves import CurveBook
from storage.leaderboards import Catalog
from storage.post_ids import PostIds
from storage.store import Store

from .desk import RefreshDesk
from .prune import PruneJob, PruneLimits
from .refresh import RefreshJob, RefreshLimits, RefreshObserver
from .runner import Runner, RunnerLimits, Sleep
from .watch import WatchJob


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The bounds of all jobs; those named here are settings of the same name."""

    runner: RunnerLimits
    refresh: RefreshLimits
    prune: PruneLimits
    curve_poll_s: float
    refresh_queue_max: int
    refresh_wait_s_max: float

    @classmethod
    def of(cls, settings: Settings) -> JobLimits:
        """The jobs' part of the settings."""
        return cls(
            runner=RunnerLimits(
                job_backoff_base_s=settings.job_backoff_base_s,
                job_backoff_s_max=settings.job_backoff_s_max,
                shutdown_s=settings.shutdown_s,
            ),
            refresh=RefreshLimits(
                refresh_jitter_ratio=settings.refresh_jitter_ratio,
                refresh_concurrency=settings.refresh_concurrency,
                refresh_tick_s=settings.refresh_tick_s,
                refresh_tick_boards_max=settings.refresh_tick_boards_max,
                refresh_queue_max=settings.refresh_queue_max,
            ),
            prune=PruneLimits(
                post_id_retention_s=settings.post_id_retention_s,
                prune_interval_s=settings.prune_interval_s,
                prune_rows_max=settings.prune_rows_max,
                prune_steps_max=settings.prune_steps_max,
            ),
            curve_poll_s=settings.curve_poll_s,
            refresh_queue_max=settings.refresh_queue_max,
            refresh_wait_s_max=settings.refresh_wait_s_max,
        )


def _now_us() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class JobParts:
    """What jobs work with."""

    store: Store
    catalog: Catalog
    boards: OpenBoards
    book: CurveBook
    post_ids: PostIds
    observer: RefreshObserver
    now_us: Callable[[], int] = _now_us  # called on the store's threads too
    monotonic: Callable[[], float] = time.monotonic
    sleep: Sleep = asyncio.sleep
    rng: random.Random = field(default_factory=random.Random)


class Jobs:
    """The running jobs of this process."""

    def __init__(self, runner: Runner, desk: RefreshDesk) -> None:
        self._runner = runner
        self.desk = desk

    @property
    def running(self) -> list[str]:
        """Names of the jobs that have not ended."""
        return self._runner.running

    async def stop(self) -> list[str]:
        """Refuse demands, then end every job within the runner's bound; answers the names of those that would not."""
        self.desk.leave()
        return await self._runner.stop()


def start_jobs(parts: JobParts, limits: JobLimits, *, embedded: bool = True) -> Jobs:
    """Run the jobs in this process; not `embedded`: only notice what the jobs of other processes did.

    The desk takes demands from now on where they are embedded, and refuses them otherwise.
    """
    runner = Runner(limits.runner, monotonic=parts.monotonic, sleep=parts.sleep, rng=parts.rng)
    desk = RefreshDesk(demands_max=limits.refresh_queue_max, wait_s_max=limits.refresh_wait_s_max)
    runner.start("watch", WatchJob(parts.book, curve_poll_s=limits.curve_poll_s, sleep=parts.sleep).run)
    if embedded:
        _start_refreshing(parts, limits.refresh, desk, runner)
        prune = PruneJob(
            parts.store,
            parts.post_ids,
            limits.prune,
            now_us=parts.now_us,
            monotonic=parts.monotonic,
            sleep=parts.sleep,
        )
        runner.start("prune", prune.run)
    return Jobs(runner, desk)


def _start_refreshing(parts: JobParts, limits: RefreshLimits, desk: RefreshDesk, runner: Runner) -> None:
    job = RefreshJob(
        parts.store,
        parts.catalog,
        parts.boards,
        parts.book,
        desk,
        limits,
        parts.observer,
        now_us=parts.now_us,
        monotonic=parts.monotonic,
        sleep=parts.sleep,
        rng=parts.rng,
    )
    desk.attend(job.wake)
    runner.start("refresh schedule", job.schedule)
    for number in range(limits.refresh_concurrency):
        runner.start(f"refresh worker {number + 1}", job.work)
