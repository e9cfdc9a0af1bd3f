"""Moves a board to another partition while posts to the board go on.

    begin: a lease, an empty table ──> copy: rows and post ids ──> catch up: what posts have changed since ──> switch
                                                                     ^                                          │
                                                                     └──── the switch lost a race ──────────────┘

The switch is one transaction. It holds back posts to the board, catches up a last time, changes the catalog and clears
the source. So before it nothing refers to the copy, and afterwards nothing refers to the source. Posts that waited find
their table or their copy of the board outdated, and are applied again in the target.

The change log says which rows to copy again: those of the owners in the bundles that were logged since the last mark.
A transaction stores the same time in its bundle and with its post ids, so the bundles also say which post ids are new.
An erased owner has no name in the log. If the log has such a change, all rows of the copy are compared with the source.

The most important rule: the switch copies nothing that an earlier transaction can still change. The locks on the
catalog's row and on the table of rows make it wait for all such transactions.

The log stays in the source, and so does the history of the board. The journal merges it with the log of the target.
The statements of the copy run in this process, because a statement reads the tables of one partition only.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

from querybuilder import (
    ASC,
    BLOB,
    INTEGER,
    TEXT,
    Lock,
    SqlType,
    asc,
    col,
    delete,
    drop_table,
    hold_table,
    insert,
    not_,
    param,
    seek,
    select,
    update,
)
from storage.boards.boards import CHANGES, clear_partition, find_board, find_totals, lock_standalone_board, state_of
from storage.boards.row_tables import columns_of, create_row_table, layout_of, scope_of
from storage.boards.shared_tables import (
    POST_IDS_KEY,
    find_or_create_table,
    note_dropped_rows,
    sweep_rows,
)
from storage.errors import (
    BoardChangedError,
    JournalIncompleteError,
    LeaseTakenError,
    LostRaceError,
    OutcomeUnknownError,
    RacesLostError,
    SpecConflictError,
    SpecInvalidError,
    StorageError,
    StoreAwayError,
    UnknownBoardError,
)
from storage.leases.claims import store_clock
from storage.leases.work_leases import WorkLease, WorkLeases
from storage.log.bundles import NAMELESS, owners_of
from storage.log.change_log import AFTER_MARK, POSITION, change_log
from storage.log.journal import journal
from storage.records import Board
from storage.schema.creation import count_partitions
from storage.schema.sequences import take_numbers
from storage.schema.tables import (
    ARCHIVE_BLOCKS,
    BOARDS,
    CHANGE_LOG,
    CURVES,
    HIDDEN_ENTRIES,
    POST_IDS,
    TOTALS,
)
from storage.store import CONTROL, Program, Row, Rows, Store, in_partition, read_single

from .hidden_owners import HIDDEN_KEY

T = TypeVar("T")

MOVE_POOL = "move"  # the pool of the work leases for moving a board
LEASE_US = 60_000_000
PAGE_ROWS = 5_000
PAGE_BUNDLES = 500
PAGE_DOCUMENTS = 50  # a page of archive blocks or curves
FEW_OWNERS = 500  # with at most so many changed owners, the switch takes milliseconds
ROUNDS_MAX = 100_000  # pages of bundles that one catch-up reads
SWITCHES_MAX = 30
STARTS_MAX = 3
PAUSE_S_MAX = 1.0


@dataclass(slots=True)
class MoveCounts:
    """What a move has done."""

    rows: int = 0  # rows that were copied
    post_ids: int = 0  # post ids that were copied
    changed: int = 0  # owners whose rows were copied again, because a post had changed them
    waited_s: float = 0  # upper bound of the longest time for which posts to the board waited


def check_not_moving(board: Board) -> Program[None]:
    """Raise `LeaseTakenError` if a process moves the board. Lock the catalog's row of the board first.

    A transaction that replaces the rows of a board without logging it calls this program.
    """
    lease = yield from in_partition(CONTROL, _LEASES.find_lease(MOVE_POOL, str(board.key)))
    free_in_us = 0 if lease is None else lease.expires_at_us - (yield from in_partition(CONTROL, store_clock()))
    if free_in_us > 0:
        raise LeaseTakenError(
            f"the leaderboard {board.id!r} is being moved to another partition", free_in_us=free_in_us
        )


_LEASES = WorkLeases(store_clock, margin_us=0)


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
            UnknownBoardError, FamilyBoardError: see `lock_standalone_board`.
            SpecInvalidError: the store does not have the target.
            SpecConflictError: the board is in the target already.
            LeaseTakenError: another process moves the board.
            JournalIncompleteError: the log does not hold all posts since the move began.
            RacesLostError: the board or its rows kept changing.
        """
        for _ in range(STARTS_MAX):
            board, moved, self._lease = await self._store.write(self._begin)
            self._pages = _Pages(board, moved)
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

    def _begin(self) -> Program[tuple[Board, Board, WorkLease]]:
        """Take the lease and create an empty table in the target. Return the board as it is, and as it will be.

        The lock on the catalog's row makes a move wait for a rebuild of the board.
        """
        board = yield from lock_standalone_board(self._board_id, lock=Lock.UPDATE)
        partitions = yield from count_partitions()
        if not 0 <= self._target < partitions:
            raise SpecInvalidError(f"the store has the partitions 0 to {partitions - 1}")
        if self._target == board.partition:
            raise SpecConflictError(f"{board.id!r} is in partition {self._target} already")
        lease = yield from self._leases.claim(MOVE_POOL, str(board.key), holder=self._holder, lease_us=LEASE_US)
        moved = replace(board, partition=self._target)
        if board.archived_us is None and board.table_key is not None:
            table_key = yield from find_or_create_table(columns_of(board.spec.columns, shared=True), self._target)
            moved = replace(moved, table_key=table_key)
        elif board.archived_us is None:
            moved = replace(moved, rows_key=board.rows_key + 1)
            for partition in range(partitions):  # an earlier move, which was killed, may have left its table anywhere
                yield from in_partition(partition, _drop_table(moved))
            yield from in_partition(self._target, create_row_table(layout_of(moved)))
        yield from in_partition(self._target, _note_left_behind(moved))
        return board, moved, lease

    async def _copy(self) -> None:
        """Copy the rows and the post ids of the board, from one snapshot per page."""
        pages, source = self._pages, self._source
        for noted in _left_behind(pages.moved):
            while await self._write(partial(sweep_rows, rows_max=PAGE_ROWS, only=noted)):
                pass
        self._mark, self._changes = await source.read(lambda: _read_start(pages.board))
        self._logged = False  # whether the log has held a change of the board since
        owner: str | None = "" if pages.board.archived_us is None else None
        while owner is not None:
            rows = await source.read(partial(pages.read_rows, owner), heavy=True)
            await self._write(partial(pages.write_rows, rows))
            self.counts.rows += len(rows)
            self._report(self.counts)
            owner = rows[-1][0] if len(rows) == PAGE_ROWS else None
        after: Row | None = ()
        while after is not None:
            rows = await source.read(partial(_POST_IDS.read_page, pages.board.key, after), heavy=True)
            await self._write(partial(_POST_IDS.write_rows, rows))
            self.counts.post_ids += len(rows)
            self._report(self.counts)
            after = _POST_IDS.key_of(rows[-1]) if len(rows) == _POST_IDS.page_rows else None

    @property
    def _source(self) -> Store:
        return self._store.for_board(self._pages.board)

    async def _write(self, program: Callable[[], Program[T]]) -> T:
        """Write to the target, and renew the lease in the same transaction."""

        def renewing() -> Program[T]:
            result = yield from in_partition(self._target, program())
            yield from self._leases.renew(self._lease, lease_us=LEASE_US)
            return result

        return await self._store.write(renewing)

    async def _catch_up_and_switch(self) -> MoveCounts:
        for attempt in range(SWITCHES_MAX):
            if attempt > 0:
                await self._sleep(min(PAUSE_S_MAX, 0.01 * 2**attempt))
            await self._catch_up()
            begun_s = self._monotonic()
            try:
                await self._store.write(self._switch)
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
        pages = self._pages
        for _ in range(ROUNDS_MAX):
            found = await self._source.read(lambda: pages.read_changes(self._mark), heavy=True)
            if found.owners or found.post_ids:
                await self._write(partial(pages.write_changes, found))
            self._mark, self._logged = found.until, self._logged or found.logged
            self.counts.changed += len(found.owners)
            self._report(self.counts)
            if found.erased:
                await self._compare()
            elif not found.more and len(found.owners) <= FEW_OWNERS:
                return
        raise RacesLostError("posts change rows faster than they can be copied")

    async def _compare(self) -> None:
        """Make all rows of the copy equal to those of the source."""
        pages, after = self._pages, ""
        target = self._store.for_board(pages.moved)
        while owners := await target.read(partial(pages.list_copied, after), heavy=True):
            found = await self._source.read(partial(pages.read_owners, owners), heavy=True)
            await self._write(partial(pages.write_owners, owners, found))
            after = owners[-1]

    def _switch(self) -> Program[None]:
        """Hold back posts, copy what is left, and let the board begin in the target.

        Raises:
            LostRaceError: there is too much left to copy, or an owner is being shown.
            BoardChangedError: the board is not the one of which the rows were copied.
        """
        pages, board = self._pages, self._pages.board
        now = yield from find_board(self._board_id, lock=Lock.UPDATE)
        if _shape(now) != _shape(board):
            raise BoardChangedError
        if board.archived_us is None:
            yield from in_partition(board.partition, _hold_table(board))
        found = yield from in_partition(board.partition, pages.read_changes(self._mark))
        if found.more or found.erased:
            raise LostRaceError("too much has changed since the rows were copied")
        totals = (yield from in_partition(board.partition, find_totals([board.key])))[board.key]
        if totals.get(CHANGES, 0) != self._changes and not (self._logged or found.logged):
            raise JournalIncompleteError(
                "posts to the leaderboard are not logged, so it cannot be moved: see change_log"
            )
        yield from in_partition(self._target, pages.write_changes(found))
        yield from self._copy_small_tables()
        yield _PLACE.bind(key=board.key, **{name: getattr(pages.moved, name) for name in _PLACED})
        yield from in_partition(board.partition, clear_partition(board))
        yield from self._leases.release(self._lease)
        # Readers of streams then look for the board in the catalog. The log comes last, because of its counter.
        yield from journal.log_moved(board, (yield from store_clock()))

    def _copy_small_tables(self) -> Program[None]:
        source, key = self._pages.board.partition, self._pages.board.key
        for table in _SMALL_TABLES:
            after: Row | None = ()
            while after is not None:
                rows = yield from in_partition(source, table.read_page(key, after))
                if table is _HIDDEN:
                    yield from in_partition(self._target, _hold_marks([row[1] for row in rows]))
                if table is _CURVES:
                    rows = yield from in_partition(self._target, _number_curves(rows))
                yield from in_partition(self._target, table.write_rows(rows))
                after = table.key_of(rows[-1]) if len(rows) == table.page_rows else None

    async def _abandon(self) -> None:
        """Remove the copy and give the lease back, unless the board is in the target."""
        await self._store.write(self._remove_copy)

    def _remove_copy(self) -> Program[None]:
        moved = self._pages.moved
        try:
            board = yield from find_board(self._board_id, lock=Lock.UPDATE)
        except UnknownBoardError:
            board = None
        if board is not None and (board.key, board.partition) == (moved.key, moved.partition):
            return
        yield from self._leases.release(self._lease)  # first: another process that has the lease needs its copy
        if moved.archived_us is None and moved.table_key is None:
            yield from in_partition(self._target, _drop_table(moved))
        yield from in_partition(self._target, _note_left_behind(moved))


def _drop_table(board: Board) -> Program[None]:
    yield drop_table(layout_of(board).table, if_exists=True).bind()


def _hold_table(board: Board) -> Program[None]:
    yield hold_table(layout_of(board).table).bind()


class _Changes(NamedTuple):
    """What has changed on a board between two marks."""

    until: int  # the next mark
    more: bool  # whether further changes follow
    owners: list[str]  # the owners whose rows may have changed
    rows: Rows  # the rows that these owners have
    post_ids: Rows
    erased: bool  # whether the name of an owner was erased
    logged: bool  # whether anything has changed


class _Pages:
    """Programs that read pages of a board's rows from the source, and write them to the target."""

    def __init__(self, board: Board, moved: Board) -> None:
        self.board, self.moved = board, moved
        here, there = layout_of(board), layout_of(moved)
        self._scope, self._moved_scope = scope_of(board), scope_of(moved)
        self._row_head = tuple(self._moved_scope.values())  # what a row of a shared table begins with
        after, theirs = col("owner").gt(param("after")), col("owner").in_(param("owners"))
        first = asc(col("owner"))
        rows = select(*here.row_columns()).from_(here.table).where(*here.scope())
        self._page = rows.where(after).order_by(first).limit(PAGE_ROWS).packed().prepared()
        self._by_owners = rows.where(theirs).packed().prepared()
        copied = select(col("owner")).from_(there.table).where(*there.scope(), after)
        self._copied = copied.order_by(first).limit(PAGE_ROWS).packed().prepared()
        written = insert(there.table).rows(param("rows"), **there.key_kinds, updated_at=INTEGER, **there.kinds)
        self._write = written.on_conflict(*there.key_kinds).overwrite().prepared()
        lost = delete(there.table).where(*there.scope(), theirs, not_(col("owner").in_(param("kept"))))
        self._remove = lost.prepared()

    def read_rows(self, after: str) -> Program[Rows]:
        return (yield self._page.bind(after=after, **self._scope))

    def write_rows(self, rows: Rows) -> Program[None]:
        if rows:
            yield self._write.bind(rows=[(*self._row_head, *row) for row in rows])

    def list_copied(self, after: str) -> Program[list[str]]:
        """Return the next owners that have a row in the target."""
        return [row[0] for row in (yield self._copied.bind(after=after, **self._moved_scope))]

    def read_owners(self, owners: Sequence[str]) -> Program[Rows]:
        rows: Rows = []
        for some in _chunks(owners):
            rows += yield self._by_owners.bind(owners=some, **self._scope)
        return rows

    def write_owners(self, owners: Sequence[str], rows: Rows) -> Program[None]:
        """Give these owners these rows, and remove the rows of the other owners in the list."""
        there = {row[0]: row for row in rows}
        for some in _chunks(owners):
            kept = [there[owner] for owner in some if owner in there]
            yield from self.write_rows(kept)
            if len(kept) < len(some):
                kept_owners = [row[0] for row in kept]
                yield self._remove.bind(owners=some, kept=kept_owners, **self._moved_scope)

    def read_changes(self, mark: int) -> Program[_Changes]:
        """Read what has changed since a mark.

        Raises:
            JournalIncompleteError: some of it was pruned.
        """
        until = yield from change_log.take_mark()
        if (yield from change_log.find_pruned_position()) > mark:
            raise JournalIncompleteError("the log was pruned during the move; raise change_log_retention_s")
        bundles = yield _BUNDLES.bind(key=self.board.key, mark=mark, until=until)
        more = len(bundles) == PAGE_BUNDLES
        names = dict.fromkeys(name for _, _, owners in bundles for name in owners_of(owners))
        owners = sorted(name for name in names if name and not name.startswith(NAMELESS))
        rows: Rows = []
        if self.board.archived_us is None:
            rows = yield from self.read_owners(owners)
        ids: Rows = []
        if times := sorted({row[1] for row in bundles}):
            ids = [row for row in (yield _NEW_POST_IDS.bind(times=times)) if row[0] == self.board.key]
        erased = any(name.startswith(NAMELESS) for name in names) and self.board.archived_us is None
        return _Changes(bundles[-1][0] + 1 if more else until, more, owners, rows, ids, erased, bool(bundles))

    def write_changes(self, changes: _Changes) -> Program[None]:
        if self.board.archived_us is None:
            yield from self.write_owners(changes.owners, changes.rows)
        yield from _POST_IDS.write_rows(changes.post_ids)


_PLACED = ("partition", "table_key", "rows_key")
_PLACE = (
    update(BOARDS)
    .set(**{name: param(name, INTEGER) for name in _PLACED})
    .where(col("board_key").eq(param("key")))
    .prepared()
)


def _chunks(owners: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(owners), PAGE_ROWS):
        yield owners[start : start + PAGE_ROWS]


_BUNDLES = (
    select(POSITION, col("updated_at"), col("owners"))
    .from_(CHANGE_LOG)
    .where(col("board_key").eq(param("key")), AFTER_MARK, POSITION.lt(param("until")))
    .order_by(asc(POSITION))
    .limit(PAGE_BUNDLES)
    .packed()
    .prepared()
)


class _BoardTable:
    """Programs that copy a board's rows of a table that all boards of a partition share."""

    def __init__(self, table: str, keys: tuple[str, ...], page_rows: int = PAGE_ROWS, **kinds: SqlType) -> None:
        """Prepare the statements. `kinds`: the columns except the board's key; the first of them are `keys`."""
        self._names, self._keys, self.page_rows = tuple(kinds), keys, page_rows
        self._is_packed = BLOB not in kinds.values()
        rows = select(col("board_key"), *map(col, kinds)).from_(table).where(col("board_key").eq(param("board_key")))
        rows = rows.order_by(*(asc(col(key)) for key in keys)).limit(page_rows)
        rows = rows.packed() if self._is_packed else rows
        self._first = rows.prepared()
        self._next = rows.where(seek(*((key, ASC, param(key)) for key in keys))).prepared()
        made = insert(table)
        if self._is_packed:
            made = made.rows(param("rows"), board_key=INTEGER, **kinds)
        else:
            made = made.values(**{name: param(name, kind) for name, kind in {"board_key": INTEGER, **kinds}.items()})
        self._insert = made.on_conflict("board_key", *keys).do_nothing().prepared()

    def key_of(self, row: Row) -> Row:
        return row[1 : 1 + len(self._keys)]

    def read_page(self, board_key: int, after: Row) -> Program[Rows]:
        """Return the next rows after the keys `after`, or the first rows if it is empty."""
        if not after:
            return (yield self._first.bind(board_key=board_key))
        return (yield self._next.bind(board_key=board_key, **dict(zip(self._keys, after, strict=True))))

    def write_rows(self, rows: Rows) -> Program[None]:
        if not self._is_packed:
            for row in rows:
                yield self._insert.bind(**dict(zip(("board_key", *self._names), row, strict=True)))
        elif rows:
            yield self._insert.bind(rows=[tuple(row) for row in rows])


_POST_IDS = _BoardTable(POST_IDS, ("post_hash",), post_hash=TEXT, fingerprint=TEXT, outcome=TEXT, remembered_at=INTEGER)
_NEW_POST_IDS = (
    select(*map(col, ("board_key", "post_hash", "fingerprint", "outcome", "remembered_at")))
    .from_(POST_IDS)
    .where(col("remembered_at").in_(param("times")))
    .packed()
    .prepared()
)
_HIDDEN = _BoardTable(HIDDEN_ENTRIES, ("owner",), owner=TEXT, updated_at=INTEGER, cells=TEXT)
_CURVES = _BoardTable(
    CURVES,
    ("column_index",),
    PAGE_DOCUMENTS,
    column_index=INTEGER,
    epoch=INTEGER,
    version=INTEGER,
    as_of=INTEGER,
    document=BLOB,
    changes=INTEGER,
    rules=TEXT,
    mark=INTEGER,
)
_SMALL_TABLES = (
    _HIDDEN,
    _CURVES,
    _BoardTable(TOTALS, ("column_index",), column_index=INTEGER, entries=INTEGER),
    _BoardTable(
        ARCHIVE_BLOCKS,
        ("section", "number"),
        PAGE_DOCUMENTS,
        section=INTEGER,
        number=INTEGER,
        entries=INTEGER,
        first=TEXT,
        last=TEXT,
        document=BLOB,
    ),
)
_MARKS = (
    select(col("owner"))
    .from_(HIDDEN_ENTRIES)
    .where(col("board_key").eq(HIDDEN_KEY), col("owner").in_(param("owners")))
    .locked(Lock.SHARE)
    .prepared()
)


def _hold_marks(owners: Sequence[str]) -> Program[None]:
    """Check that these owners are hidden, and let nobody show them before this transaction ends.

    Raises:
        LostRaceError: one of them is being shown. Whoever shows an owner looks up the owner's boards in each partition,
            one after the other, so a board must not move meanwhile.
    """
    if owners and len((yield _MARKS.bind(owners=owners))) < len(owners):
        raise LostRaceError("an owner is being shown")


def _number_curves(rows: Rows) -> Program[Rows]:
    """Give curves versions of this partition that are greater than their own. Their marks belong to the other log.

    So each process takes the curves of this partition for newer ones.
    """
    numbered: Rows = []
    for key, index, epoch, version, *others, _mark in rows:
        taken = yield from take_numbers("curve_version", 1)
        if taken <= version:
            taken = yield from take_numbers("curve_version", version - taken + 1)
        numbered.append((key, index, epoch, taken, *others, None))
    return numbered


def _read_start(board: Board) -> Program[tuple[int, int]]:
    """Return the mark of this snapshot, and the board's count of changes."""
    mark = yield from change_log.take_mark()
    totals = yield from find_totals([board.key])
    return mark, totals[board.key].get(CHANGES, 0)


def _shape(board: Board) -> tuple[int, int, int, int | None]:
    """Return what changes if rows are removed or get another form."""
    return board.key, state_of(board), board.rows_key, board.table_key


def _left_behind(moved: Board) -> list[tuple[int, int]]:
    """Return which rows `sweep_rows` has to delete in the target before rows are copied to it."""
    notes = [(POST_IDS_KEY, moved.key)]
    if moved.table_key is not None and moved.archived_us is None:
        notes.append((moved.table_key, moved.rows_key))
    return notes


def _note_left_behind(moved: Board) -> Program[None]:
    for table_key, rows_key in _left_behind(moved):
        yield from note_dropped_rows(table_key, rows_key)
