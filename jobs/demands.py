"""Refreshes on demand between processes: a front end without jobs leaves a demand in the store, a job process meets it.

    front end: StoreDesk.refresh_now ──row──> job process: DemandJob ──> its own desk ──> row ──> front end

The rule: a front end waits within a bound and answers once the new curve serves there; a job process that stops gives
back what it has not answered. One that is killed leaves its demands to time out: an operator asks again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from storage.catalog import Catalog
from storage.curves import CurveBook
from storage.demands import (
    DemandAnswer,
    DemandState,
    StoredDemand,
    answer_demand,
    demand_state,
    give_demand_back,
    make_demand,
    open_demands,
    take_demand,
)
from storage.errors import StorageError, StoreBusy, UnknownBoard
from storage.records import Board
from storage.store import Store

from .desk import RefreshDesk, Refreshed
from .errors import MethodUnsupported, NoJobProcess, TooManyDemands
from .origin import Origin
from .runner import Sleep

log = structlog.get_logger(__name__)
LOOK_BASE_S = 0.05  # a front end's first pause before it looks for its answer; doubles up to curve_poll_s


@dataclass(frozen=True, slots=True)
class DemandLimits:
    """The bounds; each is a setting of the same name."""

    refresh_demands_max: int
    refresh_wait_s_max: float
    curve_poll_s: float


class StoreDesk:
    """Where operators of a front end without jobs ask for a refresh and wait for it."""

    def __init__(self, store: Store, book: CurveBook, limits: DemandLimits, *, sleep: Sleep) -> None:
        self._store, self._book, self._limits, self._sleep = store, book, limits, sleep
        self._waiting = 0

    async def refresh_now(self, board: Board, column_index: int) -> Refreshed:
        """See `RefreshDesk.refresh_now`. NoJobProcess: none took the demand in time."""
        if self._waiting >= self._limits.refresh_demands_max:
            raise TooManyDemands(f"{self._waiting} refreshes are waiting")
        self._waiting += 1
        try:
            return await self._met(board, column_index)
        finally:
            self._waiting -= 1

    async def _met(self, board: Board, column_index: int) -> Refreshed:
        origin = Origin.current().text
        number = await self._store.write(lambda: make_demand(self._store.dialect, board, column_index, origin))
        try:
            async with asyncio.timeout(self._limits.refresh_wait_s_max):
                answer = await self._answered(board, column_index, number)
        except TimeoutError:
            # Looked at once more: a store that was slow may not have said yet that nobody took the demand.
            state = await self._state(board, column_index)
            if state is not None and state.taken < number:
                waited_s = self._limits.refresh_wait_s_max
                raise NoJobProcess(f"no job process took the demand in {waited_s:g} s") from None
            raise
        if answer.outcome == "unknown_board":
            raise UnknownBoard(f"leaderboard {board.id!r} was deleted or emptied meanwhile")
        if answer.outcome == "unsupported":  # by a job process of another version
            raise MethodUnsupported(answer.detail)
        if answer.outcome == "failed":
            raise StoreBusy("the refresh failed; the log of the job process says why")
        await self._book.poll()
        served = self._book.served(board, column_index)
        if served is None or served.version < answer.version:
            raise StoreBusy("the new curve could not be read")
        return Refreshed(served.fit, answer.took_us / 1e6, served.version)

    async def _answered(self, board: Board, column_index: int, number: int) -> DemandAnswer:
        pause_s = min(LOOK_BASE_S, self._limits.curve_poll_s)
        while True:
            await self._sleep(pause_s)
            pause_s = min(2 * pause_s, self._limits.curve_poll_s)
            state = await self._state(board, column_index)
            if state is None:
                return DemandAnswer("unknown_board")
            if state.answered >= number:
                return state.answer

    async def _state(self, board: Board, column_index: int) -> DemandState | None:
        return await self._store.read(lambda: demand_state(self._store.dialect, board.key, column_index))


class DemandJob:
    """Takes the demands of other processes to this one's desk."""

    def __init__(
        self, store: Store, catalog: Catalog, desk: RefreshDesk, limits: DemandLimits, *, sleep: Sleep
    ) -> None:
        self._store, self._catalog, self._desk = store, catalog, desk
        self._limits, self._sleep = limits, sleep
        self._answering: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Look for demands at every interval, for ever."""
        try:
            while True:
                await self._sleep(self._limits.curve_poll_s)
                try:
                    await self.take()
                except StorageError as error:
                    log.error("demands_failed", detail=error.detail)
        finally:
            # The desk has refused them, so this ends: what was taken is given back.
            await asyncio.gather(*self._answering)

    async def take(self) -> None:
        """Take what is demanded; answers come as their refreshes end."""
        room = self._limits.refresh_demands_max - len(self._answering)
        if room <= 0:
            return
        for demand in await self._store.read(lambda: open_demands(self._store.dialect, room)):
            if await self._store.write(lambda demand=demand: take_demand(self._store.dialect, demand)):  # type: ignore[misc]
                task = asyncio.create_task(self._answer(demand))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    async def _answer(self, demand: StoredDemand) -> None:
        with Origin.of(demand.origin).restored():
            await self._answer_for(demand)

    async def _answer_for(self, demand: StoredDemand) -> None:
        try:
            try:
                answer = await self._meet(demand)
            except NoJobProcess:
                await self._store.write(lambda: give_demand_back(self._store.dialect, demand))
            else:
                await self._store.write(lambda: answer_demand(self._store.dialect, demand, answer))
        except StorageError as error:
            log.error("demand_not_answered", board=demand.board_id, detail=error.detail)

    async def _meet(self, demand: StoredDemand) -> DemandAnswer:
        try:
            board = await self._board(demand)
            refreshed = await self._desk.refresh_now(board, demand.column_index)
        except UnknownBoard:
            return DemandAnswer("unknown_board")
        except NoJobProcess:
            raise
        except Exception as error:
            log.error("demand_failed", board=demand.board_id, column_index=demand.column_index, exc_info=error)
            return DemandAnswer("failed")
        return DemandAnswer("refreshed", "", refreshed.version, round(refreshed.seconds * 1e6))

    async def _board(self, demand: StoredDemand) -> Board:
        """The board as it was demanded: other processes change boards, so it is read where this one knows another."""
        board = await self._catalog.find(demand.board_id)
        wanted = demand.board_key, demand.epoch
        if (board.key, board.epoch) != wanted or demand.column_index >= len(board.spec.columns):
            board = await self._catalog.reread(demand.board_id)
        if (board.key, board.epoch) != wanted:
            raise UnknownBoard
        return board
