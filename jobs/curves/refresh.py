"""Replaces curves of ranked columns: when the schedule finds a changed column due, or when an operator requests it.

    schedule ──> due columns, the neediest first ───┐
    refresh queue ──> requests, before due columns ─┴──> refresh_concurrency workers: claim, fit in a snapshot,
                                                         store and release in one transaction, use the new curve

If two refreshes of one column overlapped, a curve with a later version could come from an earlier snapshot. So a
refresh begins with a lease on the column, and the curve is stored only if the lease is still held. Lease and curve are
in the board's partition.

The load is limited: after a scheduled refresh a worker pauses, so that scheduled refreshes take only
`refresh_load_ratio` of its time. Requests of operators don't wait for the end of the pause.
"""

import asyncio

import structlog

from jobs.controls import sleep_until_set
from jobs.errors import NoJobProcessError, describe_failure
from jobs.job_context import JobContext
from jobs.ownership import HeldLease, Ownership
from predictor import Curve
from storage.boards.boards import REFRESH_WORK, refresh_resource
from storage.curves.stored_curves import CurveBook, ServedCurve, curve_version, store_curve
from storage.errors import LeaseLostError, LeaseTakenError, UnknownBoardError
from storage.records import Board
from storage.store import Program, Store

from .fitting import FitSnapshot, Fitting
from .refresh_requests import Refreshed, RefreshQueue, RefreshRequest
from .schedule import DueColumn, Schedule

log = structlog.get_logger(__name__)

JOB = "refresh"


class _SupersededError(Exception):
    """Another process refreshed the column after this one found it due."""


class RefreshJob:
    """Refreshes curves. Run `schedule` in one task and `work` in `refresh_concurrency` tasks."""

    def __init__(self, context: JobContext, refresh_queue: RefreshQueue) -> None:
        self._context, self._store, self._book = context, context.store, context.book
        self._limits, self._monotonic = context.limits, context.monotonic
        self._refresh_queue, self._ownership, self._meter = refresh_queue, Ownership(context), context.meter
        self._fitting = Fitting(context)
        self._schedule = Schedule(context, self._fitting)
        self._busy: set[tuple[int, int]] = set()
        # Requested columns whose lease another process has. The workers try to refresh them again at each tick.
        self._elsewhere: set[tuple[int, int]] = set()
        self._wake = asyncio.Event()

    @property
    def waiting(self) -> int:
        return self._schedule.waiting

    def open(self) -> None:
        """Accept requests from now on. A request that comes before the workers run waits until they run."""
        self._refresh_queue.accept_requests(self._wake.set)

    async def schedule(self) -> None:
        sleep = self._context.make_sleep(JOB)
        while True:
            await self.find_due()
            await sleep(self._limits.refresh_tick_s)

    async def find_due(self) -> None:
        """Wake the workers if columns are due, or if columns that other processes had leased may be free now."""
        if self._elsewhere:
            self._elsewhere.clear()
            self._wake.set()
        if await self._schedule.find_due():
            self._wake.set()

    async def work(self) -> None:
        """Refresh one column at a time, for ever: requested columns first, then due ones."""
        sleep, pause_ends_s = self._context.make_sleep(JOB), self._monotonic()
        while True:
            request = self._refresh_queue.take_next(self._busy | self._elsewhere)
            if request is not None:
                with request.origin.restored():
                    await self._answer(request)
                continue
            pause_s = pause_ends_s - self._monotonic()
            due = self._schedule.take_next(self._busy) if pause_s <= 0 else None
            if due is not None:
                started = self._monotonic()
                await self._refresh_due(due)
                took_s = self._monotonic() - started
                pause_ends_s = self._monotonic() + took_s * (1 / self._limits.refresh_load_ratio - 1)
                continue
            self._wake.clear()
            if pause_s > 0 and self._schedule.waiting:
                await sleep_until_set(self._wake, sleep(pause_s))
            else:
                await self._wake.wait()

    async def _answer(self, request: RefreshRequest) -> None:
        try:
            refreshed = await self._refresh(request.board, request.column_index, due=None)
            assert refreshed is not None
            request.answer_callers(refreshed)
            log.info("refreshed_on_demand", board=request.board.id, seconds=round(refreshed.seconds, 6))
        except (LeaseTakenError, LeaseLostError) as error:
            if isinstance(error, LeaseLostError):
                self._report(request.board, request.column_index, error)
            # The curve of the other process may lack the newest writes. So this process refreshes the column, too.
            self._elsewhere.add((request.board.key, request.column_index))
            self._refresh_queue.requeue(request)
        except asyncio.CancelledError:
            request.answer_callers(NoJobProcessError("the job process stopped"))
            raise
        except Exception as error:
            self._report(request.board, request.column_index, error)
            request.answer_callers(error)

    async def _refresh_due(self, due: DueColumn) -> None:
        try:
            await self._refresh(due.board, due.column_index, due=due)
        except LeaseTakenError as taken:
            self._schedule.reschedule(due, in_s=taken.free_in_us / 1e6)
        except _SupersededError:
            return
        except Exception as error:
            self._report(due.board, due.column_index, error)

    def _report(self, board: Board, column_index: int, error: Exception) -> None:
        if isinstance(error, UnknownBoardError):
            return  # the board was deleted or emptied meanwhile, so nothing is left to refresh
        if isinstance(error, LeaseLostError):
            self._meter.add("rankcurve_refreshes_fenced")
            log.warning("refresh_fenced", board=board.id, column_index=column_index, detail=error.detail)
            return
        self._meter.add("rankcurve_refresh_failures")
        log.error("refresh_failed", board=board.id, column_index=column_index, **describe_failure(error))

    async def _refresh(self, board: Board, column_index: int, *, due: DueColumn | None) -> Refreshed | None:
        """Fit a curve of one column, store it, and use it from then on.

        If nobody requested the refresh, and the column is empty and has no curve, store nothing and return None.
        """
        slot = (board.key, column_index)

        def still_wanted() -> Program[None]:
            if due is not None and (yield from curve_version(*slot)) > due.seen_version:
                raise _SupersededError

        self._busy.add(slot)
        try:
            return await self._ownership.run_owned(
                REFRESH_WORK,
                refresh_resource(*slot),
                lambda held: self._replace(held, board, column_index, requested=due is None),
                partition=board.partition,
                still_wanted=still_wanted,
            )
        finally:
            self._busy.discard(slot)
            self._wake.set()  # a request may be waiting for this column

    async def _replace(self, held: HeldLease, board: Board, column_index: int, *, requested: bool) -> Refreshed | None:
        started = self._monotonic()
        present = self._book.find_part_curve(board, column_index)
        curve, seen = await self._fitting.fit_curve(board, column_index, present)
        if not requested and curve.total == 0 and present is None:
            return None
        served = await store_and_serve(self._store, self._book, held, (board, column_index), curve, seen)
        refreshed = Refreshed(curve, self._monotonic() - started, served.version)
        self._meter.observe("rankcurve_refresh_seconds", refreshed.seconds)
        if self._context.record_span is not None:
            self._context.record_span("refresh", refreshed.seconds)
        await self._book.share_curve(served)
        return refreshed


async def store_and_serve(
    store: Store, book: CurveBook, held: HeldLease, column: tuple[Board, int], curve: Curve, seen: FitSnapshot
) -> ServedCurve:
    """Store a fitted curve and release the lease on its column in one transaction; then use the curve.

    Raises:
        LeaseLostError: nothing was stored.
        UnknownBoardError: the board was deleted, emptied or moved since the fit; nothing was stored.
    """
    board, column_index = column

    def stored() -> Program[int]:
        owned = held.release()
        return store_curve(board, column_index, curve, changes=seen.changes, mark=seen.mark, owned=owned)

    with book.remember_forgotten():
        version = await store.at(board.partition).write(stored)
        held.is_released = True
        marks = seen.mark, seen.changes
        served = ServedCurve(board.key, column_index, board.epoch, version, curve, *marks, partition=board.partition)
        book.serve_curve(served)
    return served
