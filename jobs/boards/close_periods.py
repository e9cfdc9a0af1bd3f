"""Closes boards whose time is over, grants rewards, and archives closed boards that have kept their rows long enough.

    claim ──> read what is due ──┬── boards to shut: many at a time ─────────────────┐
                 ^               ├── then a step of the cohorts (in leagues) or of   │
                 │               │   the grants of one shut board, and when they are │
                 │               │   made its final curves ──────────────────────────┤
                 │               └── if neither was due: a step of one archive ──────┤
                 └───────────────────────────────────────────────────────────────────┘

A season must end on time even while a large archive is being written. After each bounded step of other work, the job
therefore checks again which boards to shut. The result of a step is stored only if this process still holds the lease.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import structlog

from jobs.curves.fitting import Fitting
from jobs.curves.refresh import store_and_serve
from jobs.job_context import JobContext
from jobs.ownership import HeldLease, Ownership
from predictor import CurveCorruptError, decode_curve
from storage.archive.archive_writer import ArchiveWriter
from storage.archive.blocks import OWNERS
from storage.archive.board_closing import (
    ClosingStage,
    check_archive_time,
    freeze_board,
    list_columns_to_fit,
    list_due_boards,
    set_due_time,
    shut_boards,
)
from storage.boards.boards import REFRESH_WORK, refresh_resource
from storage.curves.stored_curves import find_listed_curves, read_documents
from storage.errors import LeaseLostError, LeaseTakenError, StorageError, StoreAwayError, UnknownBoardError
from storage.leagues.cohorts import WAITING
from storage.leagues.settling import has_unsettled, settle_cohorts
from storage.leases.work_leases import StoreClock
from storage.leaves.entries import Entries
from storage.leaves.totals import CHANGES, find_totals_of
from storage.queue.intake import read_backlog
from storage.records import INT64_MAX, Board, Leaf
from storage.rewards.grant_making import GrantStep, find_oldest_walk, read_steps, store_step
from storage.segments.segmented_entries import SegmentedEntries
from storage.store import Program

log = structlog.get_logger(__name__)

RESOURCE = "close"


class CloseJob:
    """Closes and archives boards while this process has the lease. Every job process runs `run_forever`."""

    def __init__(self, context: JobContext, *, clock: StoreClock) -> None:
        self._store, self._book, self._ownership = context.store, context.book, Ownership(context)
        self._fitting, self._catalog, self._open_boards = Fitting(context), context.catalog, context.open_boards
        self._limits, self._meter, self._clock = context.limits, context.meter, clock
        self._now_us, self._sleep = context.now_us, context.make_sleep(RESOURCE)
        # The board whose cohorts are being settled, and the last of these cohorts. Starting over does no harm.
        self._settled = (0, WAITING)

    async def run_forever(self) -> None:
        await self._ownership.run_steps(
            RESOURCE,
            self._close,
            interval_s=self._limits.close_interval_s,
            load_ratio=self._limits.close_load_ratio,
            sleep=self._sleep,
            ended=self._clear_lags,
        )

    def _clear_lags(self) -> None:
        self._meter.clear("rankcurve_closing_lag_seconds")
        self._meter.clear("rankcurve_grants_lag_seconds")

    async def _close(self, held: HeldLease) -> bool:
        try:
            return await self.close_due(held)
        except StorageError as error:
            if not isinstance(error, LeaseLostError):
                self._meter.add("rankcurve_closing_failures")
            raise

    async def close_due(self, held: HeldLease) -> bool:
        """Shut, fit or archive a bounded number of boards whose time has come, and return whether there were any.

        Raises:
            LeaseLostError: another process closes boards now.
            StoreBusyError: the store failed.
        """
        now_us, oldest_us, due = await self._store.read(self._due)
        # Boards that wait for the queue count, too, so that a stalled queue is noticed.
        lag_s = max([0.0, *((now_us - due_us) / 1e6 for due_us, _ in due[ClosingStage.OPEN])])
        self._meter.set("rankcurve_closing_lag_seconds", lag_s)
        self._meter.set("rankcurve_grants_lag_seconds", max(0, now_us - (oldest_us or now_us)) / 1e6)
        to_shut = await self._choose_to_shut([board for _, board in due[ClosingStage.OPEN]])
        if to_shut:
            await self._shut(held, to_shut, now_us)
        for _, board in due[ClosingStage.SHUT]:
            await self._tried(held, board, now_us, self._freeze)
        if to_shut or due[ClosingStage.SHUT]:
            return True
        for _, board in due[ClosingStage.FROZEN]:
            await self._tried(held, board, now_us, self._archive)
        return bool(due[ClosingStage.FROZEN])

    async def _choose_to_shut(self, boards: list[Board]) -> list[Board]:
        """Leave out boards that still have posts in the queue.

        Those posts were accepted in time and must count, so their boards are shut only after they have been applied.
        """
        if not boards:
            return []
        oldest_us = min((each.oldest_us for each in (await read_backlog(self._store)).values()), default=INT64_MAX)
        return [board for board in boards if (board.gate.closes_us or 0) <= oldest_us]

    async def _archive(self, held: HeldLease, board: Board) -> None:
        """Archive the next rows of a board that has its final curves, and encode them outside of any transaction."""
        store, entries = self._store.at(board.home), self._open_boards.open_board(board)
        assert isinstance(entries, Entries | SegmentedEntries), "it has rows"
        writer = ArchiveWriter(board, entries, self._limits)
        now_us = await self._store.read(self._clock)
        if not await store.read(writer.is_begun):
            if not await self._store.write(lambda: check_archive_time(board, now_us=now_us)):
                return
            await self._fit_columns(board)  # fits new final curves if the board has changed since it was frozen
        step = await store.read(writer.read_step, heavy=True)
        blocks = await asyncio.to_thread(writer.encode_blocks, step.drafts)
        stored = await store.write(lambda: held.renew_and(writer.store_step(step, blocks, now_us=now_us)))
        if stored is None:
            return  # the board has changed, so the next step starts the archive again
        self._meter.add("rankcurve_archive_owners", sum(block.entries for block in blocks if block.section == OWNERS))
        if stored.gate.archived_us is not None:
            self._catalog.keep_board(stored)
            self._meter.add("rankcurve_boards_archived")
            log.debug("board_archived", board=stored.id)

    def _due(self) -> Program[tuple[int, int | None, dict[ClosingStage, list[tuple[int, Board]]]]]:
        """Return the store's time, when the board that has waited longest for grants was shut, and the due boards."""
        now_us = yield from self._clock()
        due = {}
        many = self._limits.close_boards_max
        for stage, limit in ((ClosingStage.OPEN, many), (ClosingStage.SHUT, 1), (ClosingStage.FROZEN, 1)):
            due[stage] = yield from list_due_boards(stage, now_us=now_us, limit=limit)
        return now_us, (yield from find_oldest_walk()), due

    async def _shut(self, held: HeldLease, boards: Sequence[Board], now_us: int) -> None:
        """Shut boards in one transaction or, if a partition does not answer, one by one, postponing those that fail."""
        try:
            await self._shut_together(held, *boards, now_us=now_us)
        except StoreAwayError:
            for board in boards:
                await self._tried(held, board, now_us, partial(self._shut_together, now_us=now_us))

    async def _shut_together(self, held: HeldLease, *boards: Board, now_us: int) -> None:
        closed = await self._store.write(lambda: held.renew_and(shut_boards(boards, now_us=now_us)))
        self._meter.add("rankcurve_boards_closed", len(closed))
        log.info("boards_closed", boards=len(closed), first=closed[0].id if closed else None)

    async def _tried(
        self, held: HeldLease, board: Board, now_us: int, work: Callable[[HeldLease, Board], Awaitable[None]]
    ) -> None:
        """Call `work` for one board. After an error, postpone the board, so that other boards need not wait for it."""
        wait_s = self._limits.close_retry_s
        try:
            await work(held, board)
            return
        except LeaseTakenError as taken:  # another process has the lease on a column and refreshes its curve
            wait_s = min(taken.free_in_us / 1e6, self._limits.close_interval_s)
        except (LeaseLostError, UnknownBoardError) as error:
            if isinstance(error, LeaseLostError):
                raise
            return  # the board has been deleted
        except Exception as error:  # an error with one board must not delay the closing of others
            self._meter.add("rankcurve_closing_failures")
            log.error("close_failed", board=board.id, exc_info=error)
        at_us = now_us + round(wait_s * 1e6)
        await self._store.write(lambda: set_due_time(board, at_us=at_us))

    async def _freeze(self, held: HeldLease, board: Board) -> None:
        if board.spec.league is not None and await self._settle(held, board):
            return  # the next step settles more cohorts
        if await self._make_grants(held, board):
            return  # the next step makes more of them, or continues with the curves
        await self._fit_columns(board)
        now_us = await self._store.read(self._clock)
        await self._store.write(lambda: held.renew_and(freeze_board(board, now_us=now_us)))
        log.info("board_frozen", board=board.id)

    async def _settle(self, held: HeldLease, board: Board) -> bool:
        limits, store, entries = self._limits, self._store.at(board.home), self._open_boards.open_rows(board.leaf)
        rows_max = limits.grant_step_rows if self._store.sole_writer else limits.grant_rows
        after: int | None = self._settled[1] if self._settled[0] == board.key else WAITING
        for _ in range(0, limits.grant_rows, rows_max):
            settling = partial(settle_cohorts, entries, rows_max=rows_max)
            last = after or WAITING
            after = await store.write(lambda: held.renew_and(settling(after=last)))  # noqa: B023  # awaited here
            if after is None:
                break
        self._settled = (board.key, after or WAITING)
        if after is not None:
            return True
        unsettled, waits = await store.read(partial(has_unsettled, board.leaf))
        if waits:  # for an earlier period, which is settled first
            now_us = await self._store.read(self._clock)
            await self._store.write(lambda: set_due_time(board, at_us=now_us + round(limits.close_interval_s * 1e6)))
        return unsettled

    async def _make_grants(self, held: HeldLease, board: Board) -> bool:
        limits, now_us = self._limits, await self._store.read(self._clock)
        step_rows = limits.grant_step_rows if self._store.sole_writer else limits.grant_rows
        reading = partial(read_steps, board, self._open_boards.open_board, rows_max=limits.grant_rows)
        steps = await self._store.read(lambda: reading(step_rows=step_rows), heavy=True)

        def program(step: GrantStep) -> Program[bool]:
            yield from held.renew()
            return (yield from store_step(board, step, now_us=now_us))

        for step in steps or ():
            if not await self._store.write(partial(program, step)):
                break  # the board has changed, so read again
            self._meter.add("rankcurve_grants_made", len(step.grants))
        return steps is not None

    async def _fit_columns(self, board: Board) -> None:
        totals = await self._store.at(board.reading_partition).read(lambda: find_totals_of([board]))
        for leaf, index in list_columns_to_fit(board, totals):
            if not await self._is_final(leaf, index, totals[leaf.key][CHANGES]):
                await self._fit(leaf, index)

    async def _is_final(self, leaf: Leaf, index: int, changes: int) -> bool:
        """Return whether the stored curve is from a scan that saw all of the leaf's changes, `changes` in number."""
        store = self._store.at(leaf.partition)
        listed = (await store.read(lambda: find_listed_curves([leaf.key]))).get((leaf.key, index))
        if listed is None or listed.changes != changes or listed.epoch != leaf.epoch:
            return False
        documents = await store.read(lambda: read_documents([listed.version]))
        with suppress(CurveCorruptError):
            return any(decode_curve(document).method == "scan" for document in documents.values())
        return False

    async def _fit(self, leaf: Leaf, index: int) -> None:
        async def work(held: HeldLease) -> None:
            curve, seen = await self._fitting.scan_curve(leaf, index)
            served = await store_and_serve(self._store, self._book, held, (leaf, index), curve, seen, self._now_us())
            await self._book.share_curve(served)

        resource = refresh_resource(leaf.key, index)
        await self._ownership.run_owned(REFRESH_WORK, resource, work, partition=leaf.partition)
