"""Passes refresh requests of operators to a job process of the store, and waits for the new curves.

    Refresher.refresh_now ──row──> a job process: RefreshJob ──> the new curve ──row──> Refresher ──> the operator

A request is answered by a refresh that started after the request was made, so the new curve counts every write
acknowledged before the request. A process answers the operator once the process itself uses the new curve.

If a job process stops or is killed, another one carries out its requests.
"""

import asyncio
from dataclasses import dataclass
from functools import partial

from config.settings import JobSettings
from jobs.controls import Sleep, sleep_until_set
from jobs.errors import NoJobProcessError
from jobs.ownership import JOB_WORK
from jobs.request_origin import describe_origin
from predictor import AnyCurve, Curve, SummedCurve
from storage.curves.refresh_requests import RefreshAnswer, find_refresh_request, store_refresh_request
from storage.curves.shared_curves import Slot
from storage.curves.stored_curves import CurveBook
from storage.errors import StorageError, StoreBusyError, StoreFullError, UnknownBoardError
from storage.leases.work_leases import WorkLeases
from storage.records import Board, Leaf
from storage.store import Store

from .fold import RESOURCE as FOLDING

LOOK_BASE_S = 0.05  # the first pause between two reads of a request's state; it doubles each time, up to `curve_poll_s`


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A refreshed curve, which is in use from now on."""

    curve: Curve
    seconds: float  # time from the start of the refresh to the commit of its curve
    version: int  # grows with every stored curve of the board's partition


class Refresher:
    """Stores the refresh requests made in this process, and waits until the refresh job of any process answers them."""

    def __init__(self, store: Store, book: CurveBook, leases: WorkLeases, limits: JobSettings, *, sleep: Sleep) -> None:
        self._store, self._book, self._leases, self._limits, self._sleep = store, book, leases, limits, sleep
        self.asked = asyncio.Event()  # set after a request is stored here, so that this process's job reads it at once
        self.answered = asyncio.Event()  # set by a job in this process that has answered a request
        self.failed: dict[Slot, StorageError] = {}  # why a job in this process could not store the answer to a request
        self._runs_job = self._stopped = False
        self._waiting = 0

    def accept_requests(self) -> None:
        """Remember that this process runs the refresh job."""
        self._runs_job = True

    def refuse_requests(self) -> None:
        """Refuse all requests, because this process stops."""
        self._stopped = True
        self.answered.set()

    async def refresh_now(self, leaf: Leaf, column_index: int) -> Refreshed:
        """Refresh a column. Return its new curve, which is in use and counts every write acknowledged before this call.

        Raises:
            NoJobProcessError: no job process is alive, or this process stops.
            TimeoutError: the refresh takes longer than callers may wait; the refresh itself goes on.
            UnknownBoardError: the board was deleted or emptied during the refresh.
            StoreFullError: the disk of the store is full.
            StoreBusyError: the largest allowed number of requests is waiting; or the store or the refresh failed; or
                this process could not read the new curve.
        """
        if self._stopped or (self._store.sole_writer and not self._runs_job):
            raise NoJobProcessError
        if self._waiting >= self._limits.refresh_demands_max:
            raise StoreBusyError(f"{self._waiting} refresh requests are waiting")
        self._waiting += 1
        try:
            slot = (leaf.key, column_index)
            number = await self._store.write(partial(store_refresh_request, slot, describe_origin()))
            self.failed.pop(slot, None)
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
            self._waiting -= 1
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
        """Wait for the answer to the request with this number. Return the answer, or None if the board was deleted."""
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
            if slot in self.failed:
                raise self.failed.pop(slot)
            await sleep_until_set(self.answered, self._sleep(pause_s))
            pause_s = min(2 * pause_s, self._limits.curve_poll_s)


async def refresh_board(refresher: Refresher, board: Board, column_index: int) -> tuple[AnyCurve, float]:
    """Refresh a column of a board. The refreshes of all segments run at the same time.

    Return the new curve, and how many seconds the longest refresh took. See `Refresher.refresh_now` for the errors.
    """
    done = await asyncio.gather(*[refresher.refresh_now(leaf, column_index) for leaf in board.leaves])
    curve = SummedCurve([each.curve for each in done]) if board.is_spread else done[0].curve
    return curve, max(each.seconds for each in done)
