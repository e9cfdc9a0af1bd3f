"""Where operators ask for a refresh and wait for it; the refresh job takes what waits here.

    refresh_now ──> pending (bounded, one a column) ──> the job takes it ──> everyone who asked is answered

The one rule: a demand is answered by a refresh that started after it was made, so its curve counts every write
acknowledged before. That is why it leaves `pending` before its refresh starts: whoever comes later makes a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Protocol

from predictor import Curve
from storage.records import Board

from .errors import NoJobProcess, TooManyDemands
from .origin import Origin


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A curve that serves from now on."""

    curve: Curve
    seconds: float  # from the start of the refresh to its curve's commit
    version: int  # grows with every stored curve of the store


@dataclass(slots=True, eq=False)
class Demand:
    """One refresh that one or more callers wait for."""

    board: Board
    column_index: int
    done: asyncio.Future[Refreshed] = field(repr=False)
    origin: Origin = field(default_factory=Origin.current)  # the first who asked

    def settle(self, outcome: Refreshed | Exception) -> None:
        """Answer everyone who waits."""
        if self.done.done():
            return
        if isinstance(outcome, Exception):
            self.done.set_exception(outcome)
            self.done.exception()  # all who asked may have gone: then nobody retrieves it, which is no fault
        else:
            self.done.set_result(outcome)

    def follow(self, later: asyncio.Future[Refreshed]) -> None:
        """Answer everyone who waits as a later demand for the same column was answered."""
        error = later.exception()
        self.settle(error if isinstance(error, Exception) else later.result())


class Desk(Protocol):
    """Where a front end asks for refreshes, whichever process makes them."""

    async def refresh_now(self, board: Board, column_index: int) -> Refreshed:
        """See `RefreshDesk.refresh_now`."""


class RefreshDesk:
    """Takes demands while a job attends it."""

    def __init__(self, *, demands_max: int, wait_s_max: float) -> None:
        self._demands_max = demands_max
        self._wait_s_max = wait_s_max
        self._pending: dict[tuple[int, int, int], Demand] = {}  # by board key, epoch and column index; oldest first
        self._wake: Callable[[], None] | None = None

    async def refresh_now(self, board: Board, column_index: int) -> Refreshed:
        """A curve that counts every write acknowledged before this call, once it serves.

        Raises:
            NoJobProcess: no job attends, or it stopped meanwhile.
            TooManyDemands: as many columns as allowed are waiting.
            TimeoutError: not done in time; the refresh goes on.
            UnknownBoard: the board was deleted or emptied meanwhile.
            StoreBusy: the store failed; nothing was refreshed.
        """
        if self._wake is None:
            raise NoJobProcess
        slot = (board.key, board.epoch, column_index)
        demand = self._pending.get(slot)
        if demand is None:
            if len(self._pending) >= self._demands_max:
                raise TooManyDemands(f"{len(self._pending)} refreshes are waiting")
            demand = Demand(board, column_index, asyncio.get_running_loop().create_future())
            self._pending[slot] = demand
            self._wake()
        async with asyncio.timeout(self._wait_s_max):
            return await asyncio.shield(demand.done)  # one caller who gives up doesn't take the others' answer

    def attend(self, wake: Callable[[], None]) -> None:
        """Take demands from now on; `wake` is called for each new one."""
        self._wake = wake

    def leave(self) -> None:
        """Take no more demands and refuse those that wait."""
        self._wake = None
        for demand in self._pending.values():
            demand.settle(NoJobProcess("the job process stopped"))
        self._pending.clear()

    def take(self, busy: Container[tuple[int, int]]) -> Demand | None:
        """The oldest demand whose column (board key, column index) is not busy; it is pending no longer."""
        for slot, demand in self._pending.items():
            if (demand.board.key, demand.column_index) not in busy:
                del self._pending[slot]
                return demand
        return None

    def put_back(self, demand: Demand) -> None:
        """Let a demand that could not be met yet wait again; where somebody asked meanwhile, it is met with theirs."""
        if self._wake is None:
            demand.settle(NoJobProcess("the job process stopped"))
            return
        slot = (demand.board.key, demand.board.epoch, demand.column_index)
        later = self._pending.setdefault(slot, demand)
        if later is not demand:
            later.done.add_done_callback(demand.follow)
