"""Refreshes that operators request, in this process or on front ends without jobs.

    RefreshQueue.refresh_now ──> pending (bounded; one for each column) ──> RefreshJob takes it ──> callers are answered

    front end: RemoteRefresher.refresh_now ──row──> job process: RefreshRequestJob ──> its queue ──> row ──> front end

A request is answered by a refresh that started after the request was made, so the new curve counts every write
acknowledged before the request. A request therefore leaves `_pending` before its refresh starts.

A front end answers the operator once the front end itself uses the new curve. A job process that stops gives back the
requests that it has not answered. If a job process is killed, its requests time out, and the operator has to ask again.
"""

import asyncio
from collections.abc import Callable, Container
from dataclasses import dataclass, field

import structlog

from config.settings import JobSettings
from jobs.controls import Sleep
from jobs.errors import NoJobProcessError, TooManyRefreshRequestsError
from jobs.job_context import JobContext
from jobs.request_origin import RequestOrigin
from predictor import AnyCurve, Curve, SummedCurve
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

log = structlog.get_logger(__name__)
LOOK_BASE_S = 0.05  # the first pause between two reads of a request's state; it doubles each time, up to `curve_poll_s`


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A refreshed curve, which is in use from now on."""

    curve: Curve
    seconds: float  # time from the start of the refresh to the commit of its curve
    version: int  # grows with every stored curve of the board's partition


@dataclass(slots=True, eq=False)
class RefreshRequest:
    board: Board
    column_index: int
    done: asyncio.Future[Refreshed] = field(repr=False)
    origin: RequestOrigin = field(default_factory=RequestOrigin.current)  # the origin of the first caller's request

    def answer_callers(self, outcome: Refreshed | Exception) -> None:
        if self.done.done():
            return
        if isinstance(outcome, Exception):
            self.done.set_exception(outcome)
            self.done.exception()  # otherwise asyncio would log the error if all callers have given up
        else:
            self.done.set_result(outcome)

    def follow(self, later: asyncio.Future[Refreshed]) -> None:
        error = later.exception()
        self.answer_callers(error if isinstance(error, Exception) else later.result())


class RefreshQueue:
    """Holds the requests of this process until the refresh job takes them. It accepts them only while the job runs."""

    def __init__(self, *, requests_max: int, wait_s_max: float) -> None:
        self._requests_max = requests_max
        self._wait_s_max = wait_s_max
        self._pending: dict[tuple[int, int, int], RefreshRequest] = {}
        self._wake: Callable[[], None] | None = None

    async def refresh_now(self, board: Board, column_index: int) -> Refreshed:
        """Return a new curve once it is in use. It counts every write that was acknowledged before this call.

        Raises:
            NoJobProcessError: no job runs, or it stopped meanwhile.
            TooManyRefreshRequestsError: requests for the largest allowed number of columns are waiting.
            TimeoutError: the refresh takes longer than callers may wait; the refresh itself goes on.
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
            return await asyncio.shield(request.done)  # if one caller gives up, the others still get the answer

    def accept_requests(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def refuse_requests(self) -> None:
        self._wake = None
        for request in self._pending.values():
            request.answer_callers(NoJobProcessError("the job process stopped"))
        self._pending.clear()

    def take_next(self, busy: Container[tuple[int, int]]) -> RefreshRequest | None:
        """Remove and return the oldest request whose column (board key, column index) is not busy."""
        for slot, request in self._pending.items():
            if (request.board.key, request.column_index) not in busy:
                del self._pending[slot]
                return request
        return None

    def requeue(self, request: RefreshRequest) -> None:
        """Let a request wait again. If a later request for the same column already waits, one refresh answers both."""
        if self._wake is None:
            request.answer_callers(NoJobProcessError("the job process stopped"))
            return
        slot = (request.board.key, request.board.epoch, request.column_index)
        later = self._pending.setdefault(slot, request)
        if later is not request:
            later.done.add_done_callback(request.follow)


class RemoteRefresher:
    """Takes refresh requests on a front end without jobs, and waits for a job process to carry them out."""

    def __init__(self, store: Store, book: CurveBook, limits: JobSettings, *, sleep: Sleep) -> None:
        self._store, self._book, self._limits, self._sleep = store, book, limits, sleep
        self._waiting = 0

    async def refresh_now(self, board: Board, column_index: int) -> Refreshed:
        """Let a job process refresh the column; otherwise like `RefreshQueue.refresh_now`.

        Raises:
            NoJobProcessError: no job process took the request in time.
            TooManyRefreshRequestsError, TimeoutError, UnknownBoardError, StoreBusyError: as `RefreshQueue.refresh_now`.
        """
        if self._waiting >= self._limits.refresh_demands_max:
            raise TooManyRefreshRequestsError(f"{self._waiting} refresh requests are waiting")
        self._waiting += 1
        try:
            return await self._request_refresh(board, column_index)
        finally:
            self._waiting -= 1

    async def _request_refresh(self, board: Board, column_index: int) -> Refreshed:
        origin = RequestOrigin.current().text
        number = await self._store.write(lambda: store_refresh_request(board, column_index, origin))
        try:
            async with asyncio.timeout(self._limits.refresh_wait_s_max):
                answer = await self._await_answer(board, column_index, number)
        except TimeoutError:
            # Read once more: with a slow store, a job process may have taken the request since the last read.
            state = await self._state(board, column_index)
            if state is not None and state.taken < number:
                waited_s = self._limits.refresh_wait_s_max
                raise NoJobProcessError(f"no job process took the refresh request in {waited_s:g} s") from None
            raise
        if answer.outcome == "unknown_board":
            raise UnknownBoardError(f"leaderboard {board.id!r} was deleted or emptied meanwhile")
        if answer.outcome == "failed":
            raise StoreBusyError("the refresh failed; the log of the job process says why")
        await self._book.poll(board.partition)
        served = self._book.find_served(board, column_index)
        if served is None or served.version < answer.version:
            raise StoreBusyError("the new curve could not be read")
        return Refreshed(served.fit, answer.took_us / 1e6, served.version)

    async def _await_answer(self, board: Board, column_index: int, number: int) -> RefreshAnswer:
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
        return await self._store.read(lambda: find_refresh_request_state(board.key, column_index))


Refresher = RefreshQueue | RemoteRefresher


async def refresh_board(refresher: Refresher, board: Board, column_index: int) -> tuple[AnyCurve, float]:
    """Refresh a column of a board, in all its segments at once.

    Return the new curve, and how many seconds the longest refresh took. See `RefreshQueue.refresh_now` for the errors.
    """
    done = await asyncio.gather(*[refresher.refresh_now(part, column_index) for part in board.parts])
    curve = SummedCurve([each.curve for each in done]) if board.segments else done[0].curve
    return curve, max(each.seconds for each in done)


class RefreshRequestJob:
    """Takes the requests of other processes from the store and passes them to the refresh queue of this process."""

    def __init__(self, context: JobContext, refresh_queue: RefreshQueue) -> None:
        self._store, self._catalog, self._refresh_queue = context.store, context.catalog, refresh_queue
        self._limits, self._sleep = context.limits, context.make_sleep("demands")
        self._answering: set[asyncio.Task[None]] = set()

    async def run_forever(self) -> None:
        try:
            while True:
                await self._sleep(self._limits.curve_poll_s)
                try:
                    await self.take_requests()
                except StorageError as error:
                    log.error("refresh_requests_failed", detail=error.detail)
        finally:
            # The tasks end soon: the refresh queue has refused the requests, and the tasks return them to the store.
            await asyncio.gather(*self._answering)

    async def take_requests(self) -> None:
        """Take open requests from the store. For each request, start a task that answers it when the refresh ends."""
        room = self._limits.refresh_demands_max - len(self._answering)
        if room <= 0:
            return
        for request in await self._store.read(lambda: list_open_refresh_requests(room)):
            if await self._store.write(lambda request=request: take_refresh_request(request)):  # type: ignore[misc]
                task = asyncio.create_task(self._answer(request))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    async def _answer(self, request: StoredRefreshRequest) -> None:
        with RequestOrigin.parse(request.origin).restored():
            answer = await self._carry_out(request)
            try:
                if answer is None:
                    await self._store.write(lambda: return_refresh_request(request))
                else:
                    await self._store.write(lambda: answer_refresh_request(request, answer))
            except StorageError as error:
                log.error("refresh_request_not_answered", board=request.board_id, detail=error.detail)

    async def _carry_out(self, request: StoredRefreshRequest) -> RefreshAnswer | None:
        """Return the answer to a request, or None if this process stops and another one should take the request."""
        try:
            board = await self._board(request)
            refreshed = await self._refresh_queue.refresh_now(board, request.column_index)
        except UnknownBoardError:
            return RefreshAnswer("unknown_board")
        except NoJobProcessError:
            return None
        except Exception as error:
            board_id, column_index = request.board_id, request.column_index
            log.error("refresh_request_failed", board=board_id, column_index=column_index, exc_info=error)
            return RefreshAnswer("failed")
        return RefreshAnswer("refreshed", refreshed.version, round(refreshed.seconds * 1e6))

    async def _board(self, request: StoredRefreshRequest) -> Board:
        """Return the board of a request, from the store if the copy in this process does not match."""
        for find in (self._catalog.find_board, self._catalog.reread_board):
            for part in (await find(request.board_id)).parts:
                is_same = (part.key, part.epoch, part.archived_us) == (request.board_key, request.epoch, None)
                if is_same and request.column_index < len(part.spec.columns):
                    return part
        raise UnknownBoardError
