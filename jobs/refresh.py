"""Replaces curves: every changed ranked column on its board's schedule, and at once where an operator asks at the desk.

    tick ──> due columns (bounded) ──┐
    desk ──> demands, first ─────────┴──> refresh_concurrency workers: sample in a snapshot, store, serve

The one rule: two refreshes of one column never overlap, since the later version could then hold the earlier snapshot.

A column is settled while its board's count of written rows is the one from before its last sampling. Counts start with
the process, so what was written before is unknown: each column is refreshed once after a start. An empty column that
has no curve gets none.
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
from storage.leaderboards import Catalog
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
    refresh_queue_max: int  # due columns that wait for a worker; others are found due again by a later tick


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
    settled: dict[int, int] = field(default_factory=dict)  # column index -> count of written rows before its sampling


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
        changes: Callable[[int], int],
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        sleep: Sleep,
        rng: random.Random,
        sampled: Store | None = None,  # where curves are sampled from; the store where it is not given
    ) -> None:
        self._sampled = sampled or store
        self._store, self._catalog, self._open_boards = store, catalog, open_boards
        self._book, self._desk = book, desk
        self._limits, self._observer = limits, observer
        self._changes = changes
        self._now_us, self._monotonic, self._sleep, self._rng = now_us, monotonic, sleep, rng
        self._schedules: dict[int, _Schedule] = {}
        self._position = 0  # in the catalog, of the next tick's first board
        self._due: deque[tuple[_Schedule, int]] = deque()
        self._busy: set[tuple[int, int]] = set()
        self._wake = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Due columns that wait for a worker."""
        return len(self._due)

    def open(self) -> None:
        """Attend the desk. A demand may come before the workers run: it waits for them."""
        self._desk.attend(self._wake.set)

    def close(self) -> None:
        """Leave the desk."""
        self._desk.leave()

    async def schedule(self) -> None:
        """Find due columns, tick after tick, for ever."""
        while True:
            self.tick()
            await self._sleep(self._limits.refresh_tick_s)

    def tick(self) -> None:
        """Hand the changed columns of boards that are due to the workers. Idle boards cost a look-up each."""
        boards = self._catalog.boards()
        start = self._position if self._position < len(boards) else 0
        end = min(start + self._limits.refresh_tick_boards_max, len(boards))
        now_s = self._monotonic()
        schedules = self._schedules
        for board in islice(boards, start, end):
            schedule = schedules.get(board.key)
            if schedule is None or schedule.board is not board:
                self._plan(board, schedule, now_s)
            elif schedule.due_s <= now_s:
                self._list_due(schedule, now_s)
        self._position = end
        if len(schedules) > len(boards):
            known = {board.key for board in boards}
            self._schedules = {key: schedule for key, schedule in schedules.items() if key in known}

    def _plan(self, board: Board, known: _Schedule | None, now_s: float) -> None:
        """Begin a board's schedule, or go on with what the catalog says now."""
        refresh_s = board.spec.predictor.refresh_seconds
        if known is None or known.board.epoch != board.epoch:
            # A random phase: boards that were loaded together don't come due together.
            self._schedules[board.key] = _Schedule(board, now_s + refresh_s * self._rng.random())
        else:
            if known.board.spec.predictor != board.spec.predictor:
                known.settled.clear()  # the curve was made by other rules
            known.board = board
            known.due_s = min(known.due_s, now_s + refresh_s)

    def _list_due(self, schedule: _Schedule, now_s: float) -> None:
        if len(self._due) >= self._limits.refresh_queue_max:
            return
        board = schedule.board
        # Jitter only shortens, so that refresh_seconds is the longest that a change waits for its turn.
        jitter = self._limits.refresh_jitter_ratio * self._rng.random()
        schedule.due_s = now_s + board.spec.predictor.refresh_seconds * (1 - jitter)
        changes = self._changes(board.key)
        for index in board.sorted_indexes:
            if schedule.settled.get(index) != changes:
                self._due.append((schedule, index))
                self._wake.set()

    async def work(self) -> None:
        """Refresh what is demanded, then what is due, one column at a time, for ever."""
        while True:
            demand = self._desk.take(self._busy)
            if demand is not None:
                await self._answer(demand)
            elif self._due:
                await self._refresh_due(*self._due.popleft())
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _answer(self, demand: Demand) -> None:
        try:
            refreshed = await self._refresh(demand.board, demand.column_index, demanded=True)
            assert refreshed is not None
            demand.settle(refreshed)
        except asyncio.CancelledError:
            demand.settle(NoJobProcess("the job process stopped"))
            raise
        except Exception as error:
            self._report(demand.board, demand.column_index, error)
            demand.settle(error)

    async def _refresh_due(self, schedule: _Schedule, column_index: int) -> None:
        board = schedule.board
        if (board.key, column_index) in self._busy or schedule.settled.get(column_index) == self._changes(board.key):
            return  # an operator asked meanwhile
        try:
            await self._refresh(board, column_index, demanded=False)
        except Exception as error:
            self._report(board, column_index, error)

    def _report(self, board: Board, column_index: int, error: Exception) -> None:
        if isinstance(error, UnknownBoard):
            return  # deleted or emptied meanwhile: there is nothing left to refresh
        self._observer.refresh_failed()
        log.error("refresh_failed", board=board.id, column_index=column_index, exc_info=error)

    async def _refresh(self, board: Board, column_index: int, *, demanded: bool) -> Refreshed | None:
        """Fit, store and serve one column's curve; None where it is empty, has no curve and nobody asked for one."""
        slot = (board.key, column_index)
        self._busy.add(slot)
        try:
            changes = self._changes(board.key)  # before the snapshot: what comes between is refreshed again
            started = self._monotonic()
            curve = await self._fit(board, column_index)
            if demanded or curve.total > 0 or self._book.find(board, column_index) is not None:
                served = await self._store_curve(board, column_index, curve)
                refreshed = Refreshed(curve, self._monotonic() - started, served.version)
                self._observer.refreshed(refreshed.seconds)
                await self._book.share(served)
            else:
                refreshed = None
            schedule = self._schedules.get(board.key)
            if schedule is not None and schedule.board.epoch == board.epoch:
                schedule.settled[column_index] = changes
            return refreshed
        finally:
            self._busy.discard(slot)
            self._wake.set()  # a demand may have waited for this column

    async def _store_curve(self, board: Board, column_index: int, curve: Curve) -> Served:
        with self._book.expecting():
            version = await self._store.of(board.id).write(
                lambda: store_curve(self._store.dialect, board, column_index, curve)
            )
            served = Served(board.key, column_index, board.epoch, version, curve)
            self._book.serve(served)
        return served

    async def _fit(self, board: Board, column_index: int) -> Curve:
        fit = fitter(board.spec.predictor.method)
        entries, _ = self._open_boards.open(board)
        # Before the snapshot, which may be a replica's: no write acknowledged before `as_of` is missing from the curve.
        now_us = self._now_us()
        return await self._sampled.of(board.id).read(
            lambda: fit(self._store.dialect, entries, column_index, now_us=now_us), heavy=True
        )
