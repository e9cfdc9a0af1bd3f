"""Moves a board to another partition while posts to the board go on.

    begin: a lease, an empty table ──> copy: rows and post ids ──> catch up: what posts have changed since ──> switch
                                                                     ^                                          │
                                                                     └──── the switch lost a race ──────────────┘

`storage.entries.board_copy` has the programs of these steps. A command of an operator runs the move.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from jobs.ownership import HeldLease
from storage.boards.boards import find_board
from storage.boards.shared_tables import sweep_rows
from storage.entries.board_copy import PAGE_ROWS, RowsCopy, TableCopy, begin_copy
from storage.errors import (
    BoardChangedError,
    LostRaceError,
    OutcomeUnknownError,
    RacesLostError,
    StorageError,
    StoreAwayError,
)
from storage.leases.work_leases import WorkLeases
from storage.store import CONTROL, Program, Row, Store, read_single

T = TypeVar("T")

LEASE_US = 60_000_000
FEW_OWNERS = 500  # with at most so many changed owners, the switch takes milliseconds
ROUNDS_MAX = 100_000  # pages of bundles that one catch-up reads
SWITCHES_MAX = 30
STARTS_MAX = 3
PAUSE_S_MAX = 1.0


@dataclass(slots=True)
class MoveCounts:
    """The counts of a finished move."""

    rows: int = 0  # rows that were copied
    post_ids: int = 0  # post ids that were copied
    changed: int = 0  # owners whose rows were copied again, because a post had changed them
    waited_s: float = 0  # upper bound of the longest time for which posts to the board waited


class BoardMove:
    """Moves one board."""

    def __init__(
        self,
        store: Store,
        leases: WorkLeases,
        *,
        board_id: str,
        target: int,
        holder: str,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        report: Callable[[MoveCounts], None] = lambda _: None,
    ) -> None:
        """Prepare a move. `holder` names this process, and `report` is called after each page."""
        self._store, self._leases = store.at(CONTROL), leases
        self._board_id, self._target, self._holder = board_id, target, holder
        self._monotonic, self._sleep, self._report = monotonic, sleep, report
        self.counts = MoveCounts()

    async def run(self) -> MoveCounts:
        """Move the board. If the move fails, the board stays where it is, and the move can be run again.

        Raises:
            UnknownBoardError, FamilyBoardError, SpecInvalidError, SpecConflictError, LeaseTakenError: see `begin_copy`.
            JournalIncompleteError: the log does not hold all posts since the move began.
            RacesLostError: the board or its rows kept changing.
        """
        begin = partial(begin_copy, self._board_id, self._target, self._leases, holder=self._holder, lease_us=LEASE_US)
        for _ in range(STARTS_MAX):
            copy, lease = await self._store.write(begin)
            self._copied, self._held = copy, HeldLease(lease, self._leases, LEASE_US)
            self._from, self._to = self._store.for_board(copy.board), self._store.for_board(copy.moved)
            try:
                await self._copy()
                return await self._catch_up_and_switch()
            except BoardChangedError:  # the board was emptied, or got a column, or was archived
                await self._abandon()
            except BaseException:
                with suppress(StorageError):
                    await self._abandon()
                raise
        raise RacesLostError(f"{self._board_id!r} was changed during each of {STARTS_MAX} moves")

    async def _copy(self) -> None:
        """Copy the rows and the post ids of the board, from one snapshot per page."""
        copy = self._copied
        for noted in copy.list_left_behind():
            while await self._write(partial(sweep_rows, rows_max=PAGE_ROWS, only=noted)):
                pass
        self._mark, changes = await self._from.read(copy.read_start)
        self._begun_changes: int | None = changes  # None: the log has held a change of the board since
        if copy.rows is not None:
            async for copied in self._copy_pages(copy.rows):
                self.counts.rows += copied
                self._report(self.counts)
        async for copied in self._copy_pages(copy.post_ids):
            self.counts.post_ids += copied
            self._report(self.counts)

    async def _copy_pages(self, table: TableCopy) -> AsyncIterator[int]:
        """Copy a table, and yield the number of rows on each page."""
        after: Row | None = ()
        while after is not None:
            rows, after = await self._from.read(partial(table.read_page, after), heavy=True)
            await self._write(partial(table.write_rows, rows))
            yield len(rows)

    async def _write(self, program: Callable[[], Program[T]]) -> T:
        """Write to the target, and renew the lease in the same transaction."""
        return await self._to.write(lambda: self._held.renew_and(program()))

    async def _catch_up_and_switch(self) -> MoveCounts:
        for attempt in range(SWITCHES_MAX):
            if attempt > 0:
                await self._sleep(min(PAUSE_S_MAX, 0.01 * 2**attempt))
            await self._catch_up()
            begun_s = self._monotonic()
            try:
                await self._store.write(
                    lambda: self._copied.switch(
                        self._mark, begun_changes=self._begun_changes, released=self._held.release()
                    )
                )
                return self.counts
            except (LostRaceError, StoreAwayError):  # for example, a long read of the table was not over in time
                continue
            except OutcomeUnknownError:
                board = await read_single(self._store, lambda: find_board(self._board_id))
                if board.partition != self._target:
                    raise
                return self.counts
            finally:
                self.counts.waited_s = max(self.counts.waited_s, self._monotonic() - begun_s)
                self._report(self.counts)
        raise RacesLostError(f"{self._board_id!r} could not be held in {SWITCHES_MAX} attempts; nothing was moved")

    async def _catch_up(self) -> None:
        """Copy again what posts have changed since the last mark, until little is left."""
        copy = self._copied
        for _ in range(ROUNDS_MAX):
            found = await self._from.read(lambda: copy.read_changes(self._mark), heavy=True)
            if found.owners or found.post_ids:
                await self._write(partial(copy.write_changes, found))
            self._mark, self._begun_changes = found.until, None if found.logged else self._begun_changes
            self.counts.changed += len(found.owners)
            self._report(self.counts)
            if found.erased and copy.rows is not None:
                await self._compare(copy.rows)
            elif not found.more and len(found.owners) <= FEW_OWNERS:
                return
        raise RacesLostError("posts change rows faster than they can be copied")

    async def _compare(self, rows: RowsCopy) -> None:
        """Make all rows of the copy equal to those of the source."""
        after = ""
        while owners := await self._to.read(partial(rows.list_copied, after), heavy=True):
            found = await self._from.read(partial(rows.read_owners, owners), heavy=True)
            await self._write(partial(rows.write_owners, owners, found))
            after = owners[-1]

    async def _abandon(self) -> None:
        """Remove the copy and give the lease back, unless the board is in the target."""
        await self._store.write(lambda: self._copied.remove_copy(self._held.release()))
