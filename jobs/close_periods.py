"""Closes boards whose time is over, and archives those that kept their rows for long enough.

    claim ──> shut what is due, many at a time ──> fit the final curves of one ──> write some of one archive ──> look …

The one rule: closing comes first. Everything else is done in bounded steps between two looks for boards to close, and
every step is stored on the condition that the lease is still held. What was done is read from the store, so that it
does not matter when this process, or the one before it, ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog

from predictor import CurveCorrupt, decode
from storage.archiving import ArchiveLimits
from storage.claims import StoreClock
from storage.closing import Stage, columns_to_fit, due_boards, freeze, look_again, shut_boards, to_archive
from storage.curve_marks import curve_marks
from storage.curves import CurveBook, documents_of
from storage.errors import LeaseLost, LeaseTaken, StorageError, UnknownBoard
from storage.leaderboards import ALL_ENTRIES, CHANGES, REFRESH_POOL, count_entries, refresh_resource
from storage.records import Board
from storage.store import Program, Store

from .archive import ArchiveObserver, Archiver
from .fitting import Fitting
from .ownership import Held, Ownership
from .refresh import store_and_serve
from .runner import Sleep

T = TypeVar("T")
log = structlog.get_logger(__name__)

POOL = "job"
RESOURCE = "close"


@dataclass(frozen=True, slots=True)
class CloseLimits:
    """The job's bounds; each is a setting of the same name."""

    close_interval_s: float
    close_load_ratio: float
    close_boards_max: int
    close_retry_s: float


class CloseObserver(ArchiveObserver, Protocol):
    """What closing tells its operators."""

    def closed(self, boards: int) -> None:
        """So many boards take no more posts."""

    def closing_lag(self, seconds: float) -> None:
        """For how long the board that is to be closed next has been waiting."""

    def closing_left(self) -> None:
        """Another process may close from now on: what waits is its to tell."""

    def close_failed(self) -> None:
        """A step ended in an error; it is tried again."""


class CloseJob:
    """Closes while it has the lease; `run` it in every job process."""

    def __init__(
        self,
        store: Store,
        book: CurveBook,
        fitting: Fitting,
        archiver: Archiver,
        ownership: Ownership,
        limits: CloseLimits,
        archive_limits: ArchiveLimits,
        observer: CloseObserver,
        *,
        clock: StoreClock,
        monotonic: Callable[[], float],
        sleep: Sleep,
    ) -> None:
        self._store, self._book, self._ownership = store, book, ownership
        self._fitting, self._archiver = fitting, archiver
        self._to_archive: deque[Board] = deque()
        self._limits, self._archive_limits, self._observer = limits, archive_limits, observer
        self._clock, self._monotonic, self._sleep = clock, monotonic, sleep

    async def run(self) -> None:
        """Close, or wait until the process that does has gone, for ever."""
        while True:
            pause_s = self._limits.close_interval_s
            try:
                await self._ownership.run(POOL, RESOURCE, self._close_on)
            except LeaseTaken as taken:
                pause_s = self._until_free_s(taken)
            except LeaseLost as error:
                log.warning("close_fenced", detail=error.detail)
            finally:
                self._observer.closing_left()
            await self._sleep(pause_s)

    def _until_free_s(self, taken: LeaseTaken) -> float:
        """Return when to ask for a lease again: a dead holder's lease ends, a live one gives it back before that."""
        return min(taken.free_in_us / 1e6, self._limits.close_interval_s)

    async def _close_on(self, held: Held) -> None:
        self._archiver.give_up()  # another process may have gone on with it
        self._to_archive.clear()
        while True:
            started, busy = self._monotonic(), False
            try:
                busy = await self.step(held)
            except LeaseLost:
                raise
            except StorageError as error:
                self._observer.close_failed()
                log.error("close_failed", detail=error.detail)
            took_s = self._monotonic() - started
            rest_s = took_s * (1 / self._limits.close_load_ratio - 1)
            await self._sleep(rest_s if busy else max(rest_s, self._limits.close_interval_s - took_s))

    async def step(self, held: Held) -> bool:
        """Do a bounded part of what is due; whether there was anything.

        Raises:
            LeaseLost: another process closes.
            StoreBusy: the store failed.
        """
        now_us, due = await self._store.read(self._due)
        to_shut = due[Stage.OPEN]
        self._observer.closing_lag(max(0.0, (now_us - to_shut[0][0]) / 1e6) if to_shut else 0.0)
        if to_shut:
            await self._shut(held, [board for _, board in to_shut], now_us)
        for _, board in due[Stage.SHUT]:
            await self._tried(held, board, now_us, self._freeze)
        if to_shut or due[Stage.SHUT]:
            return True
        return await self._archive(held, [board for _, board in due[Stage.FROZEN]], now_us)

    async def _archive(self, held: Held, frozen: Sequence[Board], now_us: int) -> bool:
        """A step of the archive that is under way, else of the next ones; whether there was anything to do."""
        board = self._archiver.board
        if board is None:
            if not self._to_archive and frozen:
                found = await self._store.write(lambda: to_archive(self._store.dialect, frozen, now_us=now_us))
                self._to_archive.extend(found)
            if not self._to_archive:
                return bool(frozen)
            if await self._archive_small(held, now_us):
                return True
            board = self._to_archive.popleft()
        await self._tried(held, board, now_us, self._write_archive)
        return True

    async def _archive_small(self, held: Held, now_us: int) -> bool:
        """Archive the next boards together, as long as they are small; whether that was done."""
        limits, boards = self._archive_limits, list(self._to_archive)[: self._archive_limits.archive_boards_max]
        keys = [board.key for board in boards]
        totals, small, rows = await self._store.read(lambda: count_entries(self._store.dialect, keys)), 0, 0
        for board in boards:
            rows += totals[board.key].get(ALL_ENTRIES, 0)
            if rows > limits.archive_step_rows or columns_to_fit(board, totals[board.key]):
                break
            small += 1
        if small < 2:
            return False
        try:
            await self._archiver.together(held, boards[:small], now_us)
        except LeaseLost:
            raise
        except StorageError as error:  # one of them may have been deleted: each by itself
            log.warning("archives_one_by_one", boards=small, detail=error.detail)
            return False
        for _ in range(small):
            self._to_archive.popleft()
        log.info("boards_archived", boards=small, first=boards[0].id)
        return True

    async def _write_archive(self, held: Held, board: Board) -> None:
        if self._archiver.board is None:
            await self._fit_columns(board)  # anew, where an owner was erased since the board was closed
            await self._archiver.begin(held, board)
        await self._archiver.step(held, await self._store.read(self._clock))

    def _due(self) -> Program[tuple[int, dict[Stage, list[tuple[int, Board]]]]]:
        now_us = yield from self._clock()
        due = {}
        many = self._limits.close_boards_max
        more = 0 if self._to_archive or self._archiver.board is not None else many
        for stage, limit in ((Stage.OPEN, many), (Stage.SHUT, 1), (Stage.FROZEN, more)):
            due[stage] = yield from due_boards(self._store.dialect, stage, now_us=now_us, limit=limit)
        return now_us, due

    async def _shut(self, held: Held, boards: Sequence[Board], now_us: int) -> None:
        def program() -> Program[list[Board]]:
            yield from held.keep()
            return (yield from shut_boards(self._store.dialect, boards, now_us=now_us))

        closed = await self._store.write(program)
        self._observer.closed(len(closed))
        log.info("boards_closed", boards=len(closed), first=closed[0].id if closed else None)

    async def _tried(
        self, held: Held, board: Board, now_us: int, work: Callable[[Held, Board], Awaitable[None]]
    ) -> None:
        """Work on one board; after an error it is looked at again later, so that it keeps nobody waiting."""
        wait_s = self._limits.close_retry_s
        try:
            await work(held, board)
            return
        except LeaseTaken as taken:  # on a column: somebody refreshes its curve
            wait_s = self._until_free_s(taken)
        except (LeaseLost, UnknownBoard) as error:
            if isinstance(error, LeaseLost):
                raise
            return  # deleted meanwhile
        except Exception as error:  # whatever is wrong with one board, the others are closed
            self._observer.close_failed()
            log.error("close_failed", board=board.id, exc_info=error)
        self._archiver.give_up()
        at_us = now_us + round(wait_s * 1e6)
        await self._store.write(lambda: look_again(self._store.dialect, board, at_us=at_us))

    async def _freeze(self, held: Held, board: Board) -> None:
        await self._fit_columns(board)

        def program() -> Program[None]:
            yield from held.keep()
            yield from freeze(self._store.dialect, [board])

        await self._store.write(program)
        log.info("board_frozen", board=board.id)

    async def _fit_columns(self, board: Board) -> None:
        """Have every column that needs one have its final curve."""
        totals = (await self._store.read(lambda: count_entries(self._store.dialect, [board.key])))[board.key]
        for index in columns_to_fit(board, totals):
            if not await self._is_final(board, index, totals[CHANGES]):
                await self._fit(board, index)

    async def _is_final(self, board: Board, index: int, changes: int) -> bool:
        """Whether the stored curve is a certified one of all that the board holds."""
        dialect = self._store.dialect
        mark = (await self._store.read(lambda: curve_marks(dialect, [board.key]))).get((board.key, index))
        if mark is None or mark.changes != changes or mark.epoch != board.epoch:
            return False
        documents = await self._store.read(lambda: documents_of(dialect, [mark.version]))
        with suppress(CurveCorrupt):
            return any(decode(document).method == "scan" for document in documents.values())
        return False

    async def _fit(self, board: Board, index: int) -> None:
        async def work(held: Held) -> None:
            curve, seen = await self._fitting.scan(board, index)
            served = await store_and_serve(self._store, self._book, held, (board, index), curve, seen)
            await self._book.share(served)

        await self._ownership.run(REFRESH_POOL, refresh_resource(board.key, index), work)
