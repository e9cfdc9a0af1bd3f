"""Refreshes on demand between processes: a front end without jobs leaves a demand in the store, a job process meets it.

    front end: StoreDesk.refresh_now ──row──> job process: DemandJob ──> its own desk ──> row ──> front end

The rule: a front end waits within a bound, and answers once the new curve serves there. A job process that stops gives
back the demands that it has not answered. The demands of a killed one time out, and the operator has to ask again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from jobs.controls import Sleep
from jobs.errors import MethodUnsupportedError, NoJobProcessError, TooManyRefreshRequestsError
from jobs.request_origin import RequestOrigin
from storage.boards.catalog import Catalog
from storage.curves.refresh_requests import (
    RefreshAnswer,
    RefreshRequestState,
    StoredRefreshRequest,
    answer_refresh_request,
    find_refresh_request_state,
    list_open_refresh_requests,
    return_refresh_request,
    store_refresh_request,
    take_refresh_request,
)
from storage.curves.stored_curves import CurveBook
from storage.errors import StorageError, StoreBusyError, UnknownBoardError
from storage.records import Board
from storage.store import Store

from .refresh_desk import Refreshed, RefreshQueue

log = structlog.get_logger(__name__)
LOOK_BASE_S = 0.05  # a front end's first pause before it reads its answer; doubles up to curve_poll_s


@dataclass(frozen=True, slots=True)
class RefreshRequestLimits:
    """The bounds of refreshes on demand; each is a setting of the same name."""

    refresh_demands_max: int
    refresh_wait_s_max: float
    curve_poll_s: float


class RemoteRefresher:
    """Takes refresh requests on a front end without jobs, and waits for a job process to meet them."""

    def __init__(self, store: Store, book: CurveBook, limits: RefreshRequestLimits, *, sleep: Sleep) -> None:
        self._store, self._book, self._limits, self._sleep = store, book, limits, sleep
        self._waiting = 0

    async def refresh_now(self, board: Board, column_index: int) -> Refreshed:
        """Do as `RefreshQueue.refresh_now`, through another process.

        Raises:
            MethodUnsupportedError: the version of the job process cannot fit the curve by the board's method.
            NoJobProcessError: no job process took the demand in time.
            TooManyRefreshRequestsError, TimeoutError, UnknownBoardError, StoreBusyError: see
                `RefreshQueue.refresh_now`.
        """
        if self._waiting >= self._limits.refresh_demands_max:
            raise TooManyRefreshRequestsError(f"{self._waiting} refreshes are waiting")
        self._waiting += 1
        try:
            return await self._met(board, column_index)
        finally:
            self._waiting -= 1

    async def _met(self, board: Board, column_index: int) -> Refreshed:
        origin = RequestOrigin.current().text
        number = await self._store.write(
            lambda: store_refresh_request(self._store.dialect, board, column_index, origin)
        )
        try:
            async with asyncio.timeout(self._limits.refresh_wait_s_max):
                answer = await self._answered(board, column_index, number)
        except TimeoutError:
            # Read once more: if the store was slow, it may not have said yet whether somebody took the demand.
            state = await self._state(board, column_index)
            if state is not None and state.taken < number:
                waited_s = self._limits.refresh_wait_s_max
                raise NoJobProcessError(f"no job process took the demand in {waited_s:g} s") from None
            raise
        if answer.outcome == "unknown_board":
            raise UnknownBoardError(f"leaderboard {board.id!r} was deleted or emptied meanwhile")
        if answer.outcome == "unsupported":  # only a job process of another version writes this
            raise MethodUnsupportedError(answer.detail)
        if answer.outcome == "failed":
            raise StoreBusyError("the refresh failed; the log of the job process says why")
        await self._book.poll()
        served = self._book.find_served(board, column_index)
        if served is None or served.version < answer.version:
            raise StoreBusyError("the new curve could not be read")
        return Refreshed(served.fit, answer.took_us / 1e6, served.version)

    async def _answered(self, board: Board, column_index: int, number: int) -> RefreshAnswer:
        pause_s = min(LOOK_BASE_S, self._limits.curve_poll_s)
        while True:
            await self._sleep(pause_s)
            pause_s = min(2 * pause_s, self._limits.curve_poll_s)
            state = await self._state(board, column_index)
            if state is None:
                return RefreshAnswer("unknown_board")
            if state.answered >= number:
                return state.answer

    async def _state(self, board: Board, column_index: int) -> RefreshRequestState | None:
        return await self._store.read(lambda: find_refresh_request_state(self._store.dialect, board.key, column_index))


class RefreshRequestJob:
    """Takes the demands of other processes from the store and passes them to the desk of this process."""

    def __init__(
        self, store: Store, catalog: Catalog, desk: RefreshQueue, limits: RefreshRequestLimits, *, sleep: Sleep
    ) -> None:
        self._store, self._catalog, self._desk = store, catalog, desk
        self._limits, self._sleep = limits, sleep
        self._answering: set[asyncio.Task[None]] = set()

    async def run_forever(self) -> None:
        """Look for demands at every interval, for ever."""
        try:
            while True:
                await self._sleep(self._limits.curve_poll_s)
                try:
                    await self.take_requests()
                except StorageError as error:
                    log.error("demands_failed", detail=error.detail)
        finally:
            # This ends: the desk has refused the demands, so their tasks give them back to the store.
            await asyncio.gather(*self._answering)

    async def take_requests(self) -> None:
        """Take open demands; tasks answer each one when its refresh ends."""
        room = self._limits.refresh_demands_max - len(self._answering)
        if room <= 0:
            return
        for demand in await self._store.read(lambda: list_open_refresh_requests(self._store.dialect, room)):
            if await self._store.write(lambda demand=demand: take_refresh_request(self._store.dialect, demand)):  # type: ignore[misc]
                task = asyncio.create_task(self._answer(demand))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    async def _answer(self, demand: StoredRefreshRequest) -> None:
        with RequestOrigin.parse(demand.origin).restored():
            await self._answer_for(demand)

    async def _answer_for(self, demand: StoredRefreshRequest) -> None:
        try:
            try:
                answer = await self._meet(demand)
            except NoJobProcessError:
                await self._store.write(lambda: return_refresh_request(self._store.dialect, demand))
            else:
                await self._store.write(lambda: answer_refresh_request(self._store.dialect, demand, answer))
        except StorageError as error:
            log.error("demand_not_answered", board=demand.board_id, detail=error.detail)

    async def _meet(self, demand: StoredRefreshRequest) -> RefreshAnswer:
        try:
            board = await self._board(demand)
            refreshed = await self._desk.refresh_now(board, demand.column_index)
        except UnknownBoardError:
            return RefreshAnswer("unknown_board")
        except NoJobProcessError:
            raise
        except Exception as error:
            log.error("demand_failed", board=demand.board_id, column_index=demand.column_index, exc_info=error)
            return RefreshAnswer("failed")
        return RefreshAnswer("refreshed", "", refreshed.version, round(refreshed.seconds * 1e6))

    async def _board(self, demand: StoredRefreshRequest) -> Board:
        """Return the board as the demand names it, read from the store if this process knows another state of it."""
        board = await self._catalog.find_board(demand.board_id)
        wanted = demand.board_key, demand.epoch
        if (board.key, board.epoch) != wanted or demand.column_index >= len(board.spec.columns):
            board = await self._catalog.reread_board(demand.board_id)
        if (board.key, board.epoch) != wanted:
            raise UnknownBoardError
        return board
