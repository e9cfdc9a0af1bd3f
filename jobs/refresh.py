"""Replaces curves: every changed ranked column on its board's schedule, and at once where an operator asks at the desk.

    tick ──> due columns (bounded) ──┐
    desk ──> demands, first ─────────┴──> refresh_concurrency workers: sample in a snapshot, store, serve

The one rule: two refreshes of one column never overlap, since the later version could then hold the earlier snapshot.

A column is settled while its board's count of changes, which the store keeps with the rows, is the one that its last
sampling saw. What a process has not sampled itself is not settled: each column is refreshed once after a start. An empty
column that has no curve gets none until it is asked for.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import structlog

from predictor import Curve
from querybuilder import Dialect
from storage.boards import OpenBoards
from storage.curves import CurveBook, Served, store_curve
from storage.entries import Entries
from storage.errors import UnknownBoard
from storage.leaderboards import CHANGES, Catalog, count_entries
from storage.records import Board, Method
from storage.sampling import sample_curve
from storage.store import Program, Store

from .desk import Demand, RefreshDesk, Refreshed
from .errors import MethodUnsupported, NoJobProcess
from .runner import Sleep

__all__ = ["RefreshDesk", "RefreshJob", "RefreshLimits", "RefreshObserver", "Refreshed", "fitter"]

log = structlog.get_logger(__name__)


class Fitter(Protocol):
    """Makes the curve of one column in one snapshot."""

    def __call__(self, dialect: Dialect, entries: Entries, column_index: int, *, now_us: int) -> Program[Curve]: ...


_FITTERS: dict[Method, Fitter] = {Method.SKIP: sample_curve, Method.AUTO: sample_curve}


def fitter(method: Method) -> Fitter:
    """How a board's curves are made. Raises MethodUnsupported."""
    if method not in _FITTERS:
        raise MethodUnsupported(f"this version cannot fit a curve by {method.value!r}")
    return _FITTERS[method]


@dataclass(frozen=True, slots=True)
class RefreshLimits:
    """The job's bounds; each is a setting of the same name."""

    refresh_jitter_ratio: float
    refresh_concurrency: int
    refresh_tick_s: float
    refresh_tick_boards_max: int  # looked at in one tick; the next goes on from there
    refresh_queue_max: int  # due boards a tick, and due columns that wait; others are found due again by a later tick


class RefreshObserver(Protocol):
    """What the job tells its operators."""

    def refreshed(self, seconds: float) -> None:
        """A curve was refreshed."""

    def refresh_failed(self) -> None:
        """A refresh ended in an error."""


@dataclass(slots=True)
class _Schedule:
    board: Board
    due_s: float  # on the monotonic clock
    settled: dict[int, int] = field(default_factory=dict)  # column index -> changes that its last sampling saw


class RefreshJob:
    """Run `schedule` once and `work` as often as `refresh_concurrency` says."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        open_boards: OpenBoards,
        book: CurveBook,
        desk: RefreshDesk,
        limits: RefreshLimits,
        observer: RefreshObserver,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        sleep: Sleep,
        rng: random.Random,
    ) -> None:
        self._store, self._catalog, self._open_boards = store, catalog, open_boards
        self._book, self._desk = book, desk
        self._limits, self._observer = limits, observer
        self._now_us, self._monotonic, self._sleep, self._rng = now_us, monotonic, sleep, rng
        self._schedules: dict[int, _Schedule] = {}  # by board key
        self._position = 0  # in the catalog, of the next tick's first board
        self._due: deque[tuple[_Schedule, int, int]] = deque()  # schedule, column index, changes when found due
        self._busy: set[tuple[int, int]] = set()  # board key, column index
        self._work = asyncio.Event()

    def wake(self) -> None:
        """There is something to do."""
        self._work.set()

    async def schedule(self) -> None:
        """Find due columns, tick after tick, for ever."""
        while True:
            await self.tick()
            await self._sleep(self._limits.refresh_tick_s)

    async def tick(self) -> None:
        """Hand the changed columns of boards that are due to the workers.

        A board that is not due costs a look-up; all that are cost one read of their counts.
        """
        due = self._take_due()
        if not due:
            return
        keys = [schedule.board.key for schedule in due]
        totals = await self._store.read(lambda: count_entries(self._store.dialect, keys))
        for schedule in due:
            self._list_changed(schedule, totals[schedule.board.key])

    def _take_due(self) -> list[_Schedule]:
        boards = self._catalog.boards()
        start = self._position if self._position < len(boards) else 0
        self._position = min(start + self._limits.refresh_tick_boards_max, len(boards))
        now_s = self._monotonic()
        schedules = self._schedules
        due = []
        for board in islice(boards, start, self._position):
            schedule = schedules.get(board.key)
            if schedule is None or schedule.board is not board:
                self._plan(board, schedule, now_s)
            elif schedule.due_s <= now_s:
                due.append(schedule)
        if len(schedules) > len(boards):
            known = {board.key for board in boards}
            self._schedules = {key: schedule for key, schedule in schedules.items() if key in known}
        room = max(0, self._limits.refresh_queue_max - len(self._due))
        for schedule in due[:room]:
            # Jitter only shortens, so that refresh_seconds is the longest that a change waits for its turn.
            jitter = self._limits.refresh_jitter_ratio * self._rng.random()
            schedule.due_s = now_s + schedule.board.spec.predictor.refresh_seconds * (1 - jitter)
        return due[:room]

    def _plan(self, board: Board, known: _Schedule | None, now_s: float) -> None:
        """Begin a board's schedule, or go on with what the catalog says now."""
        refresh_s = board.spec.predictor.refresh_seconds
        if known is None or known.board.epoch != board.epoch:
            # A random phase: boards that were loaded together don't come due together.
            self._schedules[board.key] = _Schedule(board, now_s + refresh_s * self._rng.random())
            return
        if known.board.spec.predictor != board.spec.predictor:
            known.settled.clear()  # its curves were made by other rules
        known.board = board
        known.due_s = min(known.due_s, now_s + refresh_s)

    def _list_changed(self, schedule: _Schedule, totals: dict[int, int]) -> None:
        changes = totals.get(CHANGES, 0)
        for index in schedule.board.sorted_indexes:
            empty = not totals.get(index) and self._book.find(schedule.board, index) is None
            if not empty and schedule.settled.get(index) != changes:
                self._due.append((schedule, index, changes))
                self.wake()

    async def work(self) -> None:
        """Refresh what is demanded, then what is due, one column at a time, for ever."""
        while True:
            demand = self._desk.take(self._busy)
            if demand is not None:
                await self._answer(demand)
            elif self._due:
                await self._refresh_due(*self._due.popleft())
            else:
                self._work.clear()
                await self._work.wait()

    async def _answer(self, demand: Demand) -> None:
        try:
            demand.settle(await self._refresh(demand.board, demand.column_index))
        except asyncio.CancelledError:
            demand.settle(NoJobProcess("the job process stopped"))
            raise
        except Exception as error:
            self._report(demand.board, demand.column_index, error)
            demand.settle(error)

    async def _refresh_due(self, schedule: _Schedule, column_index: int, changes: int) -> None:
        if (schedule.board.key, column_index) in self._busy or schedule.settled.get(column_index, -1) >= changes:
            return  # an operator asked meanwhile
        try:
            await self._refresh(schedule.board, column_index)
        except Exception as error:
            self._report(schedule.board, column_index, error)

    def _report(self, board: Board, column_index: int, error: Exception) -> None:
        if isinstance(error, UnknownBoard):
            return  # deleted or emptied meanwhile: there is nothing left to refresh
        self._observer.refresh_failed()
        log.error("refresh_failed", board=board.id, column_index=column_index, exc_info=error)

    async def _refresh(self, board: Board, column_index: int) -> Refreshed:
        """Fit, store and serve one column's curve."""
        slot = (board.key, column_index)
        self._busy.add(slot)
        try:
            started = self._monotonic()
            curve, changes = await self._fit(board, column_index)
            version = await self._store.write(lambda: store_curve(self._store.dialect, board, column_index, curve))
            self._book.serve(Served(board.key, column_index, board.epoch, version, curve))
            refreshed = Refreshed(curve, self._monotonic() - started, version)
            schedule = self._schedules.get(board.key)
            if schedule is not None and schedule.board.epoch == board.epoch:
                schedule.settled[column_index] = changes
            self._observer.refreshed(refreshed.seconds)
            return refreshed
        finally:
            self._busy.discard(slot)
            self.wake()  # a demand may have waited for this column

    async def _fit(self, board: Board, column_index: int) -> tuple[Curve, int]:
        """The curve of a snapshot and the board's changes by then."""
        fit = fitter(board.spec.predictor.method)
        entries, _ = self._open_boards.open(board)
        dialect = self._store.dialect

        def program() -> Program[tuple[Curve, int]]:
            # Made when its snapshot begins: no write acknowledged before the curve's `as_of` is missing from it.
            now_us = self._now_us()
            totals = yield from count_entries(dialect, [board.key])
            curve = yield from fit(dialect, entries, column_index, now_us=now_us)
            return curve, totals[board.key].get(CHANGES, 0)

        return await self._store.read(program, heavy=True)
