"""Moves a board to another partition, or splits it into new segments, while posts to the board continue.

    begin: a lease, an empty table ──> copy: rows and post ids ──> catch up: rows that posts have changed ──> switch
                                                                     ^                                         │
                                                                     └──── the switch lost a race ─────────────┘

The switch makes the board use the copy. `storage.boards.board_copy` has the programs for these steps.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from jobs.ownership import HeldLease
from storage.boards.board_copy import BoardCopy
from storage.boards.boards import find_board
from storage.boards.shared_tables import sweep_rows
from storage.errors import (
    LostRaceError,
    OutcomeUnknownError,
    RacesLostError,
    StorageError,
    StoreAwayError,
)
from storage.leases.work_leases import WorkLease, WorkLeases
from storage.leaves.leaf_copy import PAGE_ROWS, LeafCopy, RowsCopy, TableCopy
from storage.log.change_log import change_log
from storage.store import CONTROL, Program, Row, Rows, Store, in_partition

T = TypeVar("T")
BeginCopy = Callable[..., Program[tuple[BoardCopy, WorkLease]]]

LEASE_US = 60_000_000  # how long the lease of a move lasts after each renewal
FEW_OWNERS = 500  # the switch copies the rows of at most about this many owners, which takes milliseconds
ROUNDS_MAX = 100_000  # the most pages of the change log that one catch-up reads
SWITCHES_MAX = 30  # how many times a move tries to switch, at most
PAUSE_S_MAX = 1.0  # the longest pause before the next attempt to switch


@dataclass(slots=True)
class MoveCounts:
    """The progress of a move, reported after each page and after each attempt to switch."""

    rows: int = 0  # rows that were copied
    post_ids: int = 0  # post ids that were copied
    changed: int = 0  # owners whose rows were copied again, because a post had changed them
    waited_s: float = 0  # posts to the board waited at most this long, in seconds


class BoardMove:
    def __init__(
        self,
        store: Store,
        leases: WorkLeases,
        *,
        board_id: str,
        begin: BeginCopy,
        holder: str,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        report: Callable[[MoveCounts], None] = lambda _: None,
    ) -> None:
        """Prepare a move. `holder` names this process. `report` is called after each page and each attempt to switch.

        `begin` is `begin_move` or `begin_split` from `storage.boards.board_copy`, as a `functools.partial` with the
        target.
        """
        self._store, self._leases = store.at(CONTROL), leases
        self._board_id, self._begin, self._holder = board_id, begin, holder
        self._monotonic, self._sleep, self._report = monotonic, sleep, report
        self.counts = MoveCounts()

    async def run(self) -> MoveCounts:
        """Move the board. If that fails, the board stays where it is, and the move can be run again.

        Raises:
            UnknownBoardError, LeaseTakenError and others: see `begin_move` and `begin_split`.
            JournalIncompleteError: the log does not hold all posts since the move began.
            BoardChangedError: the board was emptied, archived, or got columns, or it closed during a split.
            RacesLostError: the rows of the board kept changing.
        """
        begin = partial(self._begin, self._board_id, self._leases, holder=self._holder, lease_us=LEASE_US)
        self._copied, lease = await self._store.write(begin)
        self._held = HeldLease(lease, self._leases, LEASE_US)
        self._marks = [0] * len(self._copied.leaves)
        try:
            for noted in self._copied.list_left_behind():
                while await self._sweep(*noted):
                    pass
            for number, leaf in enumerate(self._copied.leaves):
                await self._copy(number, leaf)
            return await self._catch_up_and_switch()
        except BaseException:
            with suppress(StorageError):
                await self._abandon()
            raise

    async def _sweep(self, partition: int, table: str, rows_key: int) -> int:
        sweeping = partial(sweep_rows, rows_max=PAGE_ROWS, only=(table, rows_key))
        return await self._write(lambda: in_partition(partition, sweeping()))

    async def _copy(self, number: int, leaf: LeafCopy) -> None:
        """Copy a leaf's rows and post ids, reading each page in a snapshot of its own."""
        source = self._store.at(leaf.source.partition)
        self._marks[number] = await source.read(change_log.take_mark)
        if leaf.rows:
            async for rows in _read_pages(source, leaf.rows[0]):
                await self._write(partial(leaf.write_owners, (), rows))
                self.counts.rows += len(rows)
                self._report(self.counts)
        async for rows in _read_pages(source, leaf.post_ids):
            await self._write(partial(leaf.write_post_ids, rows))
            self.counts.post_ids += len(rows)
            self._report(self.counts)

    async def _write(self, program: Callable[[], Program[T]]) -> T:
        return await self._store.write(lambda: self._held.renew_and(program()))

    async def _catch_up_and_switch(self) -> MoveCounts:
        for attempt in range(SWITCHES_MAX):
            if attempt > 0:
                await self._sleep(min(PAUSE_S_MAX, 0.01 * 2**attempt))
            for number, leaf in enumerate(self._copied.leaves):
                await self._catch_up(number, leaf)
            await self._store.read(self._copied.count_targets, heavy=True)
            begun_s = self._monotonic()
            try:
                await self._store.write(lambda: self._copied.switch(self._marks, released=self._held.release()))
                return self.counts
            except (LostRaceError, StoreAwayError):  # for example, another transaction read the table for too long
                continue
            except OutcomeUnknownError:
                board = await self._store.read(lambda: find_board(self._board_id))
                if not self._copied.has_begun(board):
                    raise
                return self.counts
            finally:
                self.counts.waited_s = max(self.counts.waited_s, self._monotonic() - begun_s)
                self._report(self.counts)
        raise RacesLostError(f"{self._board_id!r} could not be held in {SWITCHES_MAX} attempts; nothing was moved")

    async def _catch_up(self, number: int, leaf: LeafCopy) -> None:
        """Copy the rows that posts have changed again, until a read finds changes to at most `FEW_OWNERS` owners."""
        source = self._store.at(leaf.source.partition)
        for _ in range(ROUNDS_MAX):
            found = await source.read(lambda: leaf.read_changes(self._marks[number]), heavy=True)
            if found.owners or found.post_ids:
                await self._write(partial(leaf.write_changes, found))
            self._marks[number] = found.until
            self.counts.changed += len(found.owners)
            self._report(self.counts)
            if found.erased:
                await self._compare(source, leaf)
            elif not found.more and len(found.owners) <= FEW_OWNERS:
                return
        raise RacesLostError("posts change rows faster than they can be copied")

    async def _compare(self, source: Store, leaf: LeafCopy) -> None:
        """Copy all rows again, and delete the copies of erased owners, because the log does not name these owners."""
        for target in leaf.targets:
            table = RowsCopy(target, target)
            async for rows in _read_pages(self._store.at(target.partition), table):
                owners = [
                    owner for row in rows if self._copied.board.leaf_of(owner := table.owner_of(row)) is leaf.source
                ]
                found = await source.read(partial(leaf.rows[0].read_owners, owners), heavy=True)
                await self._write(partial(leaf.write_owners, owners, found))

    async def _abandon(self) -> None:
        await self._store.write(lambda: self._copied.remove_copy(self._held.release()))


async def _read_pages(store: Store, table: TableCopy) -> AsyncIterator[Rows]:
    after: Row | None = ()
    while after is not None:
        rows, after = await store.read(partial(table.read_page, after), heavy=True)
        yield rows
