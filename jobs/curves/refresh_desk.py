"""Takes operators' requests for a refresh; the refresh job serves them.

    refresh_now ──> pending (bounded, one a column) ──> the job takes it ──> all callers get the curve

The rule: a request is answered by a refresh that started after the request was made, so its curve counts every write
acknowledged before. A request therefore leaves `_pending` before its refresh starts. An operator who asks later makes a
new request.
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
        """Give everyone who waits the answer of a later request for the same column."""
        error = later.exception()
        self.settle(error if isinstance(error, Exception) else later.result())


class Refresher(Protocol):
    """What a front end asks for a refresh, whichever process makes it."""

    async def refresh_now(self, board: Board, column_index: int) -> Refreshed:
        """See `RefreshQueue.refresh_now`."""


class RefreshQueue:
    """Holds the requests of this process until the refresh job takes them. It accepts them only while the job runs."""

    def __init__(self, *, requests_max: int, wait_s_max: float) -> None:
        self._requests_max = requests_max
        self._wait_s_max = wait_s_max
        self._pending: dict[
            tuple[int, int, int], RefreshRequest
        ] = {}  # by board key, epoch and column index; oldest first
        self._wake: Callable[[], None] | None = None

    async def refresh_now(self, board: Board, column_index: int) -> Refreshed:
        """Wait for a new curve, which counts every write acknowledged before this call, and return it once it serves.

        Raises:
            NoJobProcessError: no job runs, or it stopped meanwhile.
            TooManyRefreshRequestsError: as many columns as allowed are waiting.
            TimeoutError: the refresh did not end in time; it goes on.
            UnknownBoardError: the board was deleted or emptied meanwhile.
            StoreBusyError: the store failed; nothing was refreshed.
        """
        if self._wake is None:
            raise NoJobProcessError
        slot = (board.key, board.epoch, column_index)
        request = self._pending.get(slot)
        if request is None:
            if len(self._pending) >= self._requests_max:
                raise TooManyRefreshRequestsError(f"{len(self._pending)} refresh requests are waiting")
            request = RefreshRequest(board, column_index, asyncio.get_running_loop().create_future())
            self._pending[slot] = request
            self._wake()
        async with asyncio.timeout(self._wait_s_max):
            return await asyncio.shield(request.done)  # one caller who gives up doesn't take the others' answer

    def accept_requests(self, wake: Callable[[], None]) -> None:
        """Accept requests from now on, and call `wake` for each new one."""
        self._wake = wake

    def refuse_requests(self) -> None:
        """Accept no more requests, and refuse those that wait."""
        self._wake = None
        for request in self._pending.values():
            request.settle(NoJobProcessError("the job process stopped"))
        self._pending.clear()

    def take_next(self, busy: Container[tuple[int, int]]) -> RefreshRequest | None:
        """Remove and return the oldest request whose column (board key, column index) is not busy."""
        for slot, request in self._pending.items():
            if (request.board.key, request.column_index) not in busy:
                del self._pending[slot]
                return request
        return None

    def requeue(self, request: RefreshRequest) -> None:
        """Let a request that can't be served yet wait again, together with a later request for the column, if any."""
        if self._wake is None:
            request.settle(NoJobProcessError("the job process stopped"))
            return
        slot = (request.board.key, request.board.epoch, request.column_index)
        later = self._pending.setdefault(slot, request)
        if later is not request:
            later.done.add_done_callback(request.follow)
