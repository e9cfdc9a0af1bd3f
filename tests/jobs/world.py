"""A simulated job process with a real store. Its clock moves only when a test advances it.

A test waits for an event, such as a refresh or a call of the store, and never for real time to pass.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from config.settings import Settings
from jobs.boards.prune import PruneJob
from jobs.controls import Sleep
from jobs.curves.fold import FoldJob
from jobs.curves.refresh import Refresher, RefreshJob
from jobs.job_context import JobContext
from jobs.ownership import JOB_WORK, HeldLease, Ownership
from jobs.wiring import JobParts, Jobs, start_jobs
from storage.boards.catalog import Catalog
from storage.curves.curve_book import CurveBook, ServedCurve
from storage.leases.work_leases import WorkLeases
from storage.records import Board, PredictorSpec, RefreshMethod
from storage.store import CONTROL, Program, Store
from tests.meter import RecordingMeter
from tests.storage.deployment import Deployment, counter, part, ranked
from tests.storage.passing import PassingStore

T = TypeVar("T")

WAIT_S = 10  # a test fails after waiting this long
REFRESH_S = 60
TICK_S = 1.0
LEASE_S = 10.0
MARGIN_S = 1.0
PREDICTOR = PredictorSpec(samples=20, exact_top=10, refresh_seconds=REFRESH_S, method=RefreshMethod.AUTO)
LIMITS = Settings().model_copy(
    update={
        "job_stop_s_max": 5, "curve_poll_s": 2, "drift_ratio": 0.02, "scan_entries_max": 400,
        "gap_rows_max": 100, "refresh_concurrency": 1, "refresh_load_ratio": 0.5, "post_id_retention_s": 1_000,
        "change_log_retention_s": 500, "rejected_post_retention_s": 700, "lease_s": LEASE_S,
        "refresh_wait_s_max": WAIT_S, "fold_interval_s": 0.5, "archive_top_rows": 10,
        "job_backoff_base_s": 1, "job_backoff_s_max": 8, "refresh_jitter_ratio": 0.1,
        "refresh_tick_boards_max": 1_000, "refresh_queue_max": 100, "refresh_patience_intervals": 10,
        "scan_page_values": 10, "scan_bound_ratio": 0.01, "scan_changes_ratio": 0.01, "scan_rows_per_s": 1_000,
        "refresh_tick_s": TICK_S, "erased_cells_s": 100, "prune_interval_s": 60, "prune_rows_max": 10,
        "prune_steps_max": 5, "rejected_posts_max": 20, "lease_renewal_ratio": 0.3, "refresh_demands_max": 3,
        "fold_rows_max": 7, "fold_lag_rows_max": 20_000, "fold_curves_max": 50, "close_interval_s": 1,
        "close_load_ratio": 0.5, "close_boards_max": 3, "close_retry_s": 30, "archive_block_rows": 4,
        "archive_step_rows": 16, "grant_rows": 5, "grant_step_rows": 2,
        "live_poll_s": 0.5,
    }
)  # fmt: skip


class ManualTime:
    """A monotonic clock that the test advances.

    A task that sleeps by this clock wakes when the clock reaches its time.
    """

    def __init__(self) -> None:
        self.now_s = 1_000.0
        # Each sleeping task has a time to wake, the length of its sleep in seconds, and an event that wakes it.
        self._sleepers: list[tuple[float, float, asyncio.Event]] = []
        self._changed = asyncio.Event()

    def monotonic(self) -> float:
        return self.now_s

    async def elapse(self, seconds: float) -> None:
        """Sleep until the test has advanced the clock by `seconds`."""
        sleeper = (self.now_s + seconds, seconds, asyncio.Event())
        self._sleepers.append(sleeper)
        self._changed.set()
        try:
            await sleeper[2].wait()
        finally:
            self._sleepers.remove(sleeper)

    async def wait_for_sleeper(self, seconds: float | None = None) -> float:
        """Wait until a task sleeps, or sleeps for exactly `seconds` if that is given.

        Return the length of its sleep.
        """
        return (await self.wait_for_sleepers(seconds, count=1))[0]

    async def end_sleep(self, seconds: float | None = None) -> float:
        """Wait until a task sleeps, as `wait_for_sleeper` does. Advance the clock so that this task wakes."""
        duration_s = await self.wait_for_sleeper(seconds)
        self.advance(duration_s)
        return duration_s

    async def wait_for_sleepers(self, seconds: float | None, *, count: int) -> list[float]:
        async with asyncio.timeout(WAIT_S):
            while True:
                asleep = [duration for _, duration, woken in self._sleepers if not woken.is_set()]
                found = [duration for duration in asleep if seconds in (None, duration)]
                if len(found) >= count:
                    return found
                self._changed.clear()
                await self._changed.wait()

    def advance(self, seconds: float) -> None:
        """Advance the clock, and wake the tasks whose time has come."""
        self.now_s += seconds
        for wakes_at, _, woken in self._sleepers:
            if wakes_at <= self.now_s:
                woken.set()


class HeldStore(PassingStore):
    """A store whose heavy reads block between `hold` and `release`. Its reads raise the errors in `failures`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.heavy_reads = 0
        self._read = asyncio.Condition()
        self.failures: list[Exception] = []
        self.refused: asyncio.Queue[Exception] = asyncio.Queue()  # the error of each write that was rolled back
        self.entered = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._holds_after = False

    def hold(self, *, after: bool = False) -> None:
        """Block heavy reads before they take their snapshot. If `after` is set, block heavy reads after the read."""
        self._holds_after = after
        self.entered.clear()
        self._free.clear()

    async def wait_for_heavy_reads(self, count: int) -> None:
        async with self._read:
            await self._read.wait_for(lambda: self.heavy_reads >= count)

    def release(self) -> None:
        """Let the blocked heavy reads continue."""
        self._free.set()

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        if heavy:
            async with self._read:
                self.heavy_reads += 1
                self._read.notify_all()
            if not self._holds_after:
                await self._held()
        if self.failures:
            raise self.failures.pop()
        answer = await self._store.read(program, heavy=heavy)
        if heavy and self._holds_after:
            await self._held()
        return answer

    async def _held(self) -> None:
        self.entered.set()
        await self._free.wait()

    async def write(self, program: Callable[[], Program[T]]) -> T:
        try:
            return await self._store.write(program)
        except Exception as error:
            self.refused.put_nowait(error)
            raise


class World:
    """One job process: a deployment, and everything that jobs need."""

    def __init__(self, deployment: Deployment, *, beside: World | None = None) -> None:
        """Create a process. If `beside` is given, share the deployment and the clock of that process."""
        self.deployment = deployment
        self.store = HeldStore(deployment.store)
        self.time: ManualTime = ManualTime() if beside is None else beside.time
        self.meter = RecordingMeter()
        self.catalog = Catalog(self.store)
        self.book = CurveBook(self.store, None, poll_rows_max=100)
        self.leases = WorkLeases(deployment.clock.read, margin_us=round(MARGIN_S * 1e6))
        self.desk = self.refresher()
        self.desk.accept_requests()
        self.holder: str = "first" if beside is None else beside.holder + " and another"

    @asynccontextmanager
    async def hold_job_lease(
        self, resource: str, lease_us: int, *, partition: int = CONTROL
    ) -> AsyncIterator[HeldLease]:
        """Claim the lease on a job, and release the lease at the end."""
        lease = await self.store.at(partition).write(
            lambda: self.leases.claim(JOB_WORK, resource, holder=self.holder, lease_us=lease_us)
        )
        held = HeldLease(lease, self.leases, lease_us, partition)
        try:
            yield held
        finally:
            await self.store.write(held.release)

    def beside(self) -> World:
        """Return another process on the same store, with an empty catalog and an empty curve book."""
        return World(self.deployment, beside=self)

    def served(self, board: Board, column_index: int = 0) -> ServedCurve:
        """Return the curve that readers get. Fail if there is none."""
        served = self.book.find_served(board.leaf, column_index)
        assert served is not None
        start = self.book.find_count_start(board, column_index, 0, 0)
        assert (start and start.mark) == served.mark
        assert start is None or start.curve is served.curve
        return served

    async def end_sleep(self, seconds: float) -> None:
        """Wait until a task sleeps for exactly `seconds`. Then advance every clock by that time."""
        await self.time.wait_for_sleeper(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.deployment.clock.now_us += round(seconds * 1e6)
        self.time.advance(seconds)

    def ownership(self) -> Ownership:
        return Ownership(self.context())

    def context(self, limits: Settings = LIMITS) -> JobContext:
        return JobContext(
            store=self.store,
            catalog=self.catalog,
            book=self.book,
            open_boards=self.deployment.boards,
            leases=self.leases,
            holder=self.holder,
            limits=limits,
            meter=self.meter,
            now_us=self.deployment.clock,
            monotonic=self.time.monotonic,
            sleep=self.time.elapse,
            rng=random.Random(3),
        )

    def control_context(self, limits: Settings = LIMITS) -> JobContext:
        """Return a context whose store runs programs for the control partition, as the service makes it."""
        return replace(self.context(limits), store=self.store.at(CONTROL))

    def refresher(self, limits: Settings = LIMITS, sleep: Sleep | None = None) -> Refresher:
        """Create what stores the refresh requests of a process."""
        sleep = self.time.elapse if sleep is None else sleep
        return Refresher(self.store.at(CONTROL), self.book, self.leases, limits, sleep=sleep)

    def refresh_job(self, *, load_ratio: float = 0.5, **schedule: float) -> RefreshJob:
        """Create a refresh job that is not started. `schedule` sets limits of its schedule."""
        limits = LIMITS.model_copy(update={**schedule, "refresh_load_ratio": load_ratio})
        return RefreshJob(self.control_context(limits), self.desk)

    def fold_job(self, partition: int | None = None, **limits: int) -> FoldJob:
        """Create a folding job that is not started, for the partition of the deployment or for the given one.

        `limits` sets the job's limits.
        """
        chosen = self.deployment.partition if partition is None else partition
        return FoldJob(self.control_context(LIMITS.model_copy(update=limits)), chosen)

    def prune_job(self, *, partition: int | None = None) -> PruneJob:
        chosen = self.deployment.partition if partition is None else partition
        return PruneJob(self.control_context(), chosen)

    def start(self) -> Jobs:
        context = self.control_context()
        fields = {each.name: getattr(context, each.name) for each in dataclasses.fields(context)}
        return start_jobs(JobParts(**fields, refresher=self.desk))

    async def create(self, board_id: str, *, columns: int = 1, predictor: PredictorSpec = PREDICTOR) -> Board:
        """Create a board in store and catalog.

        The columns `xp0`, `xp1` and so on are ranked, and `shots` is not ranked.
        """
        ranked_columns = [ranked(f"xp{index}") for index in range(columns)]
        board = await self.deployment.create(board_id, *ranked_columns, counter("shots"), predictor=predictor)
        self.catalog.keep_board(board)
        return board

    async def change(self, board: Board, **predictor: int) -> Board:
        """Change a board's predictor settings in the store, as another process would do."""
        wanted = replace(board.spec, predictor=replace(board.spec.predictor, **predictor))  # type: ignore[arg-type]  # no method
        return await self.deployment.change(board.id, wanted)

    async def post(self, board: Board, values: dict[str, int], column: str = "xp0") -> None:
        posts = [self.deployment.post(owner, part(board, {column: value})) for owner, value in values.items()]
        await self.deployment.apply(*posts)

    async def wait_for_refreshes(self, count: int = 1) -> None:
        for _ in range(count):
            await within(self.meter.events["rankcurve_refresh_seconds"].get())

    async def finish_due_work(self, job: RefreshJob) -> None:
        """Wait until a job with one worker has refreshed everything that is due.

        To wait, request refreshes of another board until the job's queue is empty.
        """
        fence = await self.create("fence")
        self.catalog.forget_board(fence.id)
        while job.waiting:
            await self.desk.refresh_now(fence.leaf, 0)
            self.meter.events["rankcurve_refresh_seconds"].get_nowait()
        await self.desk.refresh_now(fence.leaf, 0)


async def within(awaitable: Awaitable[T]) -> T:
    """Return the result of an awaitable. Raises TimeoutError if it takes longer than WAIT_S seconds."""
    async with asyncio.timeout(WAIT_S):
        return await awaitable
