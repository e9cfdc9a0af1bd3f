"""Replaces curves: every changed ranked column when the schedule finds it due, at once where an operator asks.

    schedule ──> due columns, the neediest first ──┐
    desk ──> demands, before them ─────────────────┴──> refresh_concurrency workers: claim, fit in a snapshot,
                                                        store and release in one transaction, serve

The one rule: two refreshes of one column never overlap, in this process or another one, since the later version could
then hold the earlier snapshot. A refresh begins with the column's lease and is stored on the condition that it is still
held; one that was fenced off is counted and forgotten.

The load is capped: after a scheduled refresh a worker rests for as long as refresh_load_ratio wants. Demands don't
wait for that.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from predictor import Curve
from storage.boards import OpenBoards
from storage.catalog import Catalog
from storage.curve_marks import CurveMark, curve_version
from storage.curves import CurveBook, Served, store_curve
from storage.errors import LeaseLost, LeaseTaken, StorageError, UnknownBoard
from storage.leaderboards import CHANGES, REFRESH_POOL, refresh_resource
from storage.records import Board
from storage.store import Program, Store

from .desk import Demand, RefreshDesk, Refreshed
from .drift import DriftLimits, Drifts
from .errors import NoJobProcess
from .fitting import Fitting, FittingLimits, FittingObserver, Look, Seen
from .ownership import Held, Ownership
from .runner import Sleep
from .schedule import Due, Schedule, ScheduleLimits

__all__ = ["RefreshDesk", "RefreshJob", "RefreshLimits", "RefreshObserver", "Refreshed"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RefreshLimits:
    """The job's bounds; each is a setting of the same name."""

    schedule: ScheduleLimits
    drift: DriftLimits
    fitting: FittingLimits
    refresh_concurrency: int
    refresh_tick_s: float
    refresh_load_ratio: float  # of a worker's time that scheduled refreshes take


class RefreshObserver(FittingObserver, Protocol):
    """What the job tells its operators."""

    def refreshed(self, seconds: float) -> None:
        """A curve was refreshed."""

    def refresh_failed(self) -> None:
        """A refresh ended in an error."""

    def refresh_fenced(self) -> None:
        """A curve was not stored, because another process had taken its column over."""


class _Superseded(Exception):
    """another process refreshed the column after it was found due"""


class RefreshJob:
    """Run `schedule` once and `work` as often as `refresh_concurrency` says."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        open_boards: OpenBoards,
        book: CurveBook,
        desk: RefreshDesk,
        ownership: Ownership,
        limits: RefreshLimits,
        observer: RefreshObserver,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        sleep: Sleep,
        rng: random.Random,
        sampled: Store | None = None,  # where curves are sampled from; the store where it is not given
    ) -> None:
        self._store, self._book = store, book
        self._fitting = Fitting(
            store, sampled or store, open_boards, limits.fitting, observer, now_us=now_us, monotonic=monotonic
        )
        self._desk, self._ownership = desk, ownership
        self._limits, self._observer = limits, observer
        self._monotonic, self._sleep = monotonic, sleep
        drifts = Drifts(book, limits.drift, now_us=now_us)
        self._schedule = Schedule(
            store,
            catalog,
            limits.schedule,
            now_us=now_us,
            monotonic=monotonic,
            rng=rng,
            drifted=drifts.of,
            certifies=self._certifies,
        )
        self._busy: set[tuple[int, int]] = set()
        self._elsewhere: set[tuple[int, int]] = set()  # demanded, but another process has them: asked for at each tick
        self._wake = asyncio.Event()

    def _certifies(self, board: Board, column_index: int, mark: CurveMark, totals: Mapping[int, int]) -> bool:
        look = Look(totals.get(column_index, 0), totals.get(CHANGES, 0), mark)
        return self._fitting.certifies(board, self._book.find(board, column_index), look)

    @property
    def waiting(self) -> int:
        """Due columns that wait for a worker."""
        return self._schedule.waiting

    def open(self) -> None:
        """Attend the desk. A demand may come before the workers run: it waits for them."""
        self._desk.attend(self._wake.set)

    def close(self) -> None:
        """Leave the desk."""
        self._desk.leave()

    async def schedule(self) -> None:
        """Find due columns, tick after tick, for ever."""
        while True:
            try:
                await self.tick()
            except StorageError as error:
                log.error("refresh_schedule_failed", detail=error.detail)
            await self._sleep(self._limits.refresh_tick_s)

    async def tick(self) -> None:
        """Hand what is due, and what may be free again elsewhere, to the workers."""
        if self._elsewhere:
            self._elsewhere.clear()
            self._wake.set()
        if await self._schedule.tick():
            self._wake.set()

    async def work(self) -> None:
        """Refresh what is demanded, then what is due, one column at a time, for ever."""
        rested_s = self._monotonic()
        while True:
            demand = self._desk.take(self._busy | self._elsewhere)
            if demand is not None:
                with demand.origin.restored():
                    await self._answer(demand)
                continue
            rest_s = rested_s - self._monotonic()
            due = self._schedule.take(self._busy) if rest_s <= 0 else None
            if due is not None:
                started = self._monotonic()
                await self._refresh_due(due)
                took_s = self._monotonic() - started
                rested_s = self._monotonic() + took_s * (1 / self._limits.refresh_load_ratio - 1)
                continue
            self._wake.clear()
            await self._woken(rest_s if self._schedule.waiting else 0)

    async def _woken(self, rest_s: float) -> None:
        """Until there may be something to do: at the latest, where something waits, when the rest is over."""
        if rest_s <= 0:
            await self._wake.wait()
            return
        tasks = [asyncio.ensure_future(self._wake.wait()), asyncio.ensure_future(self._sleep(rest_s))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _answer(self, demand: Demand) -> None:
        try:
            refreshed = await self._refresh(demand.board, demand.column_index, due=None)
            assert refreshed is not None
            demand.settle(refreshed)
            log.info("refreshed_on_demand", board=demand.board.id, seconds=round(refreshed.seconds, 6))
        except (LeaseTaken, LeaseLost) as error:
            if isinstance(error, LeaseLost):
                self._report(demand.board, demand.column_index, error)
            # The other process may have sampled before this demand was made: a refresh of this one's comes after it.
            self._elsewhere.add((demand.board.key, demand.column_index))
            self._desk.put_back(demand)
        except asyncio.CancelledError:
            demand.settle(NoJobProcess("the job process stopped"))
            raise
        except Exception as error:
            self._report(demand.board, demand.column_index, error)
            demand.settle(error)

    async def _refresh_due(self, due: Due) -> None:
        try:
            await self._refresh(due.board, due.column_index, due=due)
        except LeaseTaken as taken:
            self._schedule.look_again(due, in_s=taken.free_in_us / 1e6)
        except _Superseded:
            return
        except Exception as error:
            self._report(due.board, due.column_index, error)

    def _report(self, board: Board, column_index: int, error: Exception) -> None:
        if isinstance(error, UnknownBoard):
            return  # deleted or emptied meanwhile: there is nothing left to refresh
        if isinstance(error, LeaseLost):
            self._observer.refresh_fenced()
            log.warning("refresh_fenced", board=board.id, column_index=column_index, detail=error.detail)
            return
        self._observer.refresh_failed()
        log.error("refresh_failed", board=board.id, column_index=column_index, exc_info=error)

    async def _refresh(self, board: Board, column_index: int, *, due: Due | None) -> Refreshed | None:
        """Fit, store and serve one column's curve; None where it is empty, has no curve and nobody asked for one."""
        slot = (board.key, column_index)

        def still_wanted() -> Program[None]:
            if due is not None and (yield from curve_version(self._store.dialect, *slot)) > due.seen_version:
                raise _Superseded

        self._busy.add(slot)
        try:
            return await self._ownership.run(
                REFRESH_POOL,
                refresh_resource(*slot),
                lambda held: self._replace(held, board, column_index, demanded=due is None),
                still_wanted=still_wanted,
            )
        finally:
            self._busy.discard(slot)
            self._wake.set()  # a demand may have waited for this column

    async def _replace(self, held: Held, board: Board, column_index: int, *, demanded: bool) -> Refreshed | None:
        started = self._monotonic()
        present = self._book.find(board, column_index)
        curve, seen = await self._fitting.fit(board, column_index, present)
        if not demanded and curve.total == 0 and present is None:
            return None
        served = await store_and_serve(self._store, self._book, held, (board, column_index), curve, seen)
        refreshed = Refreshed(curve, self._monotonic() - started, served.version)
        self._observer.refreshed(refreshed.seconds)
        await self._book.share(served)
        return refreshed


async def store_and_serve(
    store: Store, book: CurveBook, held: Held, column: tuple[Board, int], curve: Curve, seen: Seen
) -> Served:
    """Store a fitted curve, release the lease on its column in the same transaction, and serve it.

    Raises:
        LeaseLost: nothing was stored.
        UnknownBoard: the board is gone, or what the curve describes is.
    """
    board, column_index = column

    def stored() -> Program[int]:
        owned = held.release()
        return store_curve(store.dialect, board, column_index, curve, changes=seen.changes, mark=seen.mark, owned=owned)

    with book.expecting():
        version = await store.of(board.id).write(stored)
        held.stored = True
        served = Served(board.key, column_index, board.epoch, version, curve, seen.mark)
        book.serve(served)
    return served
