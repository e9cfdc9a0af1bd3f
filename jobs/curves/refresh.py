"""Replaces a ranked column's curve when `Schedule` says that it is due, or when an operator requests it.

    schedule ──> due columns, the neediest first ───┐
    stored requests of operators, before due columns ┴─> refresh_concurrency workers: claim, fit in a snapshot,
                                                         store and release in one transaction, use the new curve

If two refreshes of one column overlapped, a curve with a later version could come from an earlier snapshot. A refresh
therefore begins by leasing the column, and stores the curve only if the lease is still held. Lease and curve are in the
board's partition.

To limit the load, a worker pauses after each scheduled refresh, so that scheduled refreshes take only
`refresh_load_ratio` of its time. Operators' requests don't wait for the end of the pause.

    Refresher.refresh_now ──row──> a job process: RefreshJob ──> the new curve ──row──> Refresher ──> the operator

A request is answered by a refresh that started after the request was made, so the new curve counts every write
acknowledged before the request. A process answers the operator once it uses the new curve itself. If a job process
shuts down or is killed, another one carries out its requests.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from functools import partial

import structlog

from config.settings import JobSettings
from jobs.controls import Sleep, sleep_until_set
from jobs.errors import NoJobProcessError, describe_failure, level_of
from jobs.job_context import JobContext
from jobs.ownership import JOB_WORK, HeldLease, Ownership
from jobs.request_origin import describe_origin, working_for
from predictor import AnyCurve, Curve, SummedCurve
from storage.boards.boards import REFRESH_WORK, refresh_resource
from storage.curves.curve_book import CurveBook, ServedCurve
from storage.curves.live_counts import Slot
from storage.curves.refresh_requests import (
    RefreshAnswer,
    answer_refresh_request,
    find_refresh_request,
    find_requested_leaf,
    list_open_refresh_requests,
    store_refresh_request,
)
from storage.curves.stored_curves import find_listed_curves, store_curve
from storage.errors import (
    LeaseLostError,
    LeaseTakenError,
    StorageError,
    StoreBusyError,
    StoreFullError,
    UnknownBoardError,
)
from storage.leases.work_leases import WorkLeases
from storage.log.bundles import ChangeKind
from storage.log.change_log import BoardEvent, log_board_events
from storage.records import Board, Leaf
from storage.store import Program, Store

from .fitting import FitSnapshot, Fitting
from .fold import RESOURCE as FOLDING
from .schedule import DueColumn, Schedule

log = structlog.get_logger(__name__)

JOB = "refresh"
REQUESTS = "demands"  # the name by which operators know the job that looks for refresh requests


async def store_and_serve(
    store: Store,
    book: CurveBook,
    held: HeldLease,
    column: tuple[Leaf, int],
    curve: Curve,
    seen: FitSnapshot,
    now_us: int,
) -> ServedCurve:
    """Store a fitted curve and release its column's lease in one transaction, then use the curve and return it.

    Raises:
        LeaseLostError: another process has taken over the lease; nothing was stored.
        UnknownBoardError: the board was deleted, emptied or moved since the fit; nothing was stored.
    """
    leaf, column_index = column

    def storing() -> Program[int]:
        version = yield from store_curve(
            leaf, column_index, curve, changes=seen.changes, mark=seen.mark, owned=held.release
        )
        event = BoardEvent(ChangeKind.SERVED, leaf.id, leaf.key, leaf.partition, column_index)
        yield from log_board_events([event], now_us=now_us)
        return version

    with book.remember_forgotten():
        version = await store.at(leaf.partition).write(storing)
        held.is_released = True
        marks = seen.mark, seen.changes
        served = ServedCurve(leaf.key, column_index, leaf.epoch, version, curve, *marks, partition=leaf.partition)
        book.serve_curve(served)
    return served


LOOK_BASE_S = 0.05  # the first pause between two reads of a request's state; it doubles each time, up to `curve_poll_s`


@dataclass(frozen=True, slots=True)
class Refreshed:
    curve: Curve
    seconds: float  # time from the start of the refresh to the commit of its curve
    version: int  # grows with every stored curve of the board's partition


class Refresher:
    """Stores the refresh requests made in this process, and waits until the refresh job of any process answers them."""

    def __init__(self, store: Store, book: CurveBook, leases: WorkLeases, limits: JobSettings, *, sleep: Sleep) -> None:
        self._store, self._book, self._leases, self._limits, self._sleep = store, book, leases, limits, sleep
        self.asked = asyncio.Event()  # set after a request is stored here, so that this process's job reads it at once
        self.answered = asyncio.Event()  # set by a job in this process that has answered a request
        self._runs_job = self._stopped = False
        self._awaited = Counter[Slot]()  # how many requests of this process wait for each column
        self._failures: dict[Slot, StorageError] = {}  # why a job in this process could not store an awaited answer

    def accept_requests(self) -> None:
        self._runs_job = True

    def refuse_requests(self) -> None:
        self._stopped = True
        self.answered.set()

    def report_failure(self, slot: Slot, error: StorageError) -> None:
        """Tell callers in this process who wait for this column's new curve that the job could not store its answer."""
        if slot in self._awaited:
            self._failures[slot] = error

    async def refresh_now(self, leaf: Leaf, column_index: int) -> Refreshed:
        """Refresh a column. Return its new curve, which is in use and counts every write acknowledged before this call.

        Raises:
            NoJobProcessError: no job process is alive, or this process is shutting down.
            TimeoutError: the refresh takes longer than callers may wait; the refresh itself continues.
            UnknownBoardError: the board was deleted or emptied during the refresh.
            StoreFullError: the disk of the store is full.
            StoreBusyError: too many requests are waiting already; or the store or the refresh failed; or this process
                could not read the new curve.
        """
        if self._stopped or (self._store.sole_writer and not self._runs_job):
            raise NoJobProcessError
        if self._awaited.total() >= self._limits.refresh_demands_max:
            raise StoreBusyError(f"{self._awaited.total()} refresh requests are waiting")
        slot = (leaf.key, column_index)
        self._awaited[slot] += 1
        self._failures.pop(slot, None)
        try:
            number = await self._store.write(partial(store_refresh_request, slot, describe_origin()))
            self.asked.set()
            async with asyncio.timeout(self._limits.refresh_wait_s_max):
                answer = await self._await_answer(slot, number)
        except TimeoutError:
            # If any job process is alive, one of them has the lease of `FoldJob` for this partition.
            folding = await self._store.at(leaf.partition).read(lambda: self._leases.find_held(JOB_WORK))
            if FOLDING in folding:
                raise
            waited_s = self._limits.refresh_wait_s_max
            raise NoJobProcessError(f"no job process answered the refresh request in {waited_s:.15g} s") from None
        finally:
            self._awaited[slot] -= 1
            if not self._awaited[slot]:
                del self._awaited[slot]
                self._failures.pop(slot, None)
        if answer is not None and answer.failure == "no room":
            raise StoreFullError
        if answer is not None and answer.failure is not None:
            raise StoreBusyError("the refresh failed; the log of the job process says why")
        await self._book.poll(leaf.partition)
        served = self._book.find_served(leaf, column_index)
        if answer is None or answer.version is None or served is None:
            raise UnknownBoardError(f"leaderboard {leaf.id!r} was deleted or emptied meanwhile")
        if served.version < answer.version:
            raise StoreBusyError("the new curve could not be read")
        return Refreshed(served.fit, answer.took_us / 1e6, served.version)

    async def _await_answer(self, slot: Slot, number: int) -> RefreshAnswer | None:
        pause_s = min(LOOK_BASE_S, self._limits.curve_poll_s)
        while True:
            if self._stopped:
                raise NoJobProcessError("the job process stopped")
            self.answered.clear()
            request = await self._store.read(partial(find_refresh_request, slot))
            if request is None:
                return None
            if request.answered >= number:
                return request.answer
            if slot in self._failures:
                raise self._failures[slot]
            await sleep_until_set(self.answered, self._sleep(pause_s))
            pause_s = min(2 * pause_s, self._limits.curve_poll_s)


async def refresh_board(refresher: Refresher, board: Board, column_index: int) -> tuple[AnyCurve, float]:
    """Refresh a board's column in all segments at the same time.

    Return the new curve, and how many seconds the longest refresh took. See `Refresher.refresh_now` for the errors.
    """
    done = await asyncio.gather(*[refresher.refresh_now(leaf, column_index) for leaf in board.leaves])
    curve = SummedCurve([each.curve for each in done]) if board.is_spread else done[0].curve
    return curve, max(each.seconds for each in done)


class RefreshJob:
    """Refreshes curves. Run `schedule` and `look` in one task each, and `work` in `refresh_concurrency` tasks."""

    def __init__(self, context: JobContext, refresher: Refresher) -> None:
        self._context, self._store, self._book = context, context.store, context.book
        self._limits, self._monotonic = context.limits, context.monotonic
        self._refresher, self._ownership, self._meter = refresher, Ownership(context), context.meter
        self._fitting = Fitting(context)
        self._schedule = Schedule(context, self._fitting)
        self._busy: set[Slot] = set()
        self._requested: list[Slot] = []  # columns with an open request, the oldest request first
        self._wake = asyncio.Event()

    @property
    def waiting(self) -> int:
        return self._schedule.waiting

    async def schedule(self) -> None:
        sleep = self._context.make_sleep(JOB)
        while True:
            await self.find_due()
            await sleep(self._limits.refresh_tick_s)

    async def find_due(self) -> None:
        if await self._schedule.find_due():
            self._wake.set()

    async def look(self) -> None:
        """Keep looking for refresh requests: at intervals, and at once after a request made in this process."""
        sleep = self._context.make_sleep(REQUESTS)
        while True:
            self._refresher.asked.clear()
            try:
                await self.find_requests()
            except StorageError as error:
                log.error("refresh_requests_failed", detail=error.detail)
            await sleep_until_set(self._refresher.asked, sleep(self._limits.curve_poll_s))

    async def find_requests(self) -> None:
        listing = partial(list_open_refresh_requests, self._limits.refresh_demands_max)
        self._requested = await self._store.read(listing)
        if self._requested:
            self._wake.set()

    async def work(self) -> None:
        """Refresh one column at a time, for ever: requested columns first, then due ones."""
        sleep, pause_ends_s = self._context.make_sleep(JOB), self._monotonic()
        while True:
            requested = next((slot for slot in self._requested if slot not in self._busy), None)
            if requested is not None:
                self._requested.remove(requested)
                await self._answer(requested)
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

    async def _answer(self, slot: Slot) -> None:
        """Refresh a requested column and store the answer. If another process refreshes it, the request stays open."""
        try:
            found = await self._store.write(partial(find_requested_leaf, slot))
            if found is None:
                return
            request, leaf = found
            answer = RefreshAnswer(failure="failed")
            with working_for(request.origin):
                try:
                    refreshed = await self._refresh(leaf, slot[1], due=None)
                    assert refreshed is not None, "an operator asked for it"
                    answer = RefreshAnswer(refreshed.version, took_us=round(refreshed.seconds * 1e6))
                    log.info("refreshed_on_demand", board=leaf.id, seconds=round(refreshed.seconds, 6))
                except (LeaseTakenError, LeaseLostError, UnknownBoardError):
                    # The other process's curve may lack the newest writes, so the request stays open.
                    return
                except Exception as error:  # `_refresh` has logged it
                    if isinstance(error, StoreFullError):
                        answer = RefreshAnswer(failure="no room")
            await self._store.write(partial(answer_refresh_request, slot, request.number, answer))
        except StorageError as error:
            self._refresher.report_failure(slot, error)
            place = {"leaf_key": slot[0], "column_index": slot[1]}
            log.log(level_of(error), "refresh_request_not_answered", **place, detail=error.detail)
        finally:
            self._refresher.answered.set()

    async def _refresh_due(self, due: DueColumn) -> None:
        try:
            await self._refresh(due.leaf, due.column_index, due=due)
        except LeaseTakenError as taken:
            self._schedule.reschedule(due, in_s=taken.free_in_us / 1e6)
        except Exception:
            return  # either `_refresh` has logged the error, or the error only says that no refresh is needed

    async def _refresh(self, leaf: Leaf, column_index: int, *, due: DueColumn | None) -> Refreshed | None:
        """Fit a column's new curve, store it, and use it in this process. Log a failure before raising it.

        If no operator asked for it (`due` is given), store nothing and return None if the column is empty and has no
        curve, or if another process has refreshed it since this process found it due.
        """
        slot = (leaf.key, column_index)
        self._busy.add(slot)
        try:
            return await self._ownership.run_owned(
                REFRESH_WORK,
                refresh_resource(*slot),
                partial(self._replace, leaf, column_index, due),
                partition=leaf.partition,
            )
        except (LeaseTakenError, UnknownBoardError):
            raise  # another process refreshes the column, or the board has been deleted or emptied
        except LeaseLostError as error:
            self._meter.add("rankcurve_refreshes_fenced")
            log.warning("refresh_fenced", board=leaf.id, column_index=column_index, detail=error.detail)
            raise
        except Exception as error:
            self._meter.add("rankcurve_refresh_failures")
            log.log(
                level_of(error), "refresh_failed", board=leaf.id, column_index=column_index, **describe_failure(error)
            )
            raise
        finally:
            self._busy.discard(slot)
            self._wake.set()  # a request may be waiting for this column

    async def _replace(self, leaf: Leaf, column_index: int, due: DueColumn | None, held: HeldLease) -> Refreshed | None:
        started = self._monotonic()
        if due is not None:
            listed = await self._store.at(leaf.partition).read(partial(find_listed_curves, [leaf.key]))
            stored = listed.get((leaf.key, column_index))
            if stored is not None and stored.version > due.seen_version:
                return None
        using = self._book.find_served(leaf, column_index)
        present = None if using is None else using.curve
        curve, seen = await self._fitting.fit_curve(leaf, column_index, present)
        if due is not None and curve.total == 0 and present is None:
            return None
        served = await store_and_serve(
            self._store, self._book, held, (leaf, column_index), curve, seen, self._context.now_us()
        )
        refreshed = Refreshed(curve, self._monotonic() - started, served.version)
        self._meter.observe("rankcurve_refresh_seconds", refreshed.seconds)
        if self._context.record_span is not None:
            self._context.record_span("refresh", refreshed.seconds)
        await self._book.share_curve(served)
        return refreshed
