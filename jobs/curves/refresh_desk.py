"""Takes operators' requests for a refresh, called demands; the refresh job serves them.

    refresh_now ──> pending (bounded, one a column) ──> the job takes it ──> everyone who asked is answered

The rule: a demand is met by a refresh that started after it was made, so its curve counts every write acknowledged
before. A demand therefore leaves `_pending` before its refresh starts; an operator who comes later makes a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Protocol

from jobs.errors import NoJobProcessError, TooManyRefreshRequestsError
from jobs.request_origin import RequestOrigin
from predictor import Curve
from storage.records import Board


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A curve that serves from now on."""

    curve: Curve
    seconds: float  # from the start of the refresh to its curve's commit
    version: int  # grows with every stored curve of the store


@dataclass(slots=True, eq=False)
class RefreshRequest:
    """One refresh that one or more callers wait for."""

    board: Board
    column_index: int
    done: asyncio.Future[Refreshed] = field(repr=False)
    origin: RequestOrigin = field(default_factory=RequestOrigin.current)  # of the first caller

    def settle(self, outcome: Refreshed | Exception) -> None:
        """Answer everyone who waits."""
        if self.done.done():
            return
        if isinstance(outcome, Exception):
            self.done.set_exception(outcome)
            self.done.exception()  # mark it as retrieved: all callers may have given up, which is no fault to log
        else:
            self.done.set_result(outcome)

    def follow(self, later: asyncio.Future[Refreshed]) -> None:
        """Give everyone who waits the answer of a later demand for the same column."""
        error = later.exception()
        self.settle(error if isinstance(error, Exception) else later.result())


class Refresher(Protocol):
    """What a front end asks for a refresh, whichever process makes it."""

    async def refresh_now(self, board: Board, column_index: int) -> Refreshed:
        """See `RefreshQueue.refresh_now`."""


class RefreshQueue:
    """Holds the demands of this process until the refresh job takes them; accepts them while a job attends."""

    def __init__(self, *, demands_max: int, wait_s_max: float) -> None:
        self._demands_max = demands_max
        self._wait_s_max = wait_s_max
        self._pending: dict[
            tuple[int, int, int], RefreshRequest
        ] = {}  # by board key, epoch and column index; oldest first
        self._wake: Callable[[], None] | None = None

    async def refresh_now(self, board: Board, column_index: int) -> Refreshed:
        """Wait for a new curve, which counts every write acknowledged before this call, and return it once it serves.

        Raises:
            NoJobProcessError: no job attends, or it stopped meanwhile.
            TooManyRefreshRequestsError: as many columns as allowed are waiting.
            TimeoutError: the refresh did not end in time; it goes on.
            UnknownBoardError: the board was deleted or emptied meanwhile.
            StoreBusyError: the store failed; nothing was refreshed.
        """
        if self._wake is None:
            raise NoJobProcessError
        slot = (board.key, board.epoch, column_index)
        demand = self._pending.get(slot)
        if demand is None:
            if len(self._pending) >= self._demands_max:
                raise TooManyRefreshRequestsError(f"{len(self._pending)} refreshes are waiting")
            demand = RefreshRequest(board, column_index, asyncio.get_running_loop().create_future())
            self._pending[slot] = demand
            self._wake()
        async with asyncio.timeout(self._wait_s_max):
            return await asyncio.shield(demand.done)  # one caller who gives up doesn't take the others' answer

    def accept_requests(self, wake: Callable[[], None]) -> None:
        """Accept demands from now on, and call `wake` for each new one."""
        self._wake = wake

    def refuse_requests(self) -> None:
        """Accept no more demands, and refuse those that wait."""
        self._wake = None
        for demand in self._pending.values():
            demand.settle(NoJobProcessError("the job process stopped"))
        self._pending.clear()

    def take_next(self, busy: Container[tuple[int, int]]) -> RefreshRequest | None:
        """Remove and return the oldest demand whose column (board key, column index) is not busy."""
        for slot, demand in self._pending.items():
            if (demand.board.key, demand.column_index) not in busy:
                del self._pending[slot]
                return demand
        return None

    def requeue(self, demand: RefreshRequest) -> None:
        """Let a demand that could not be met yet wait again, together with a later demand for the column, if any."""
        if self._wake is None:
            demand.settle(NoJobProcessError("the job process stopped"))
            return
        slot = (demand.board.key, demand.board.epoch, demand.column_index)
        later = self._pending.setdefault(slot, demand)
        if later is not demand:
            later.done.add_done_callback(demand.follow)
