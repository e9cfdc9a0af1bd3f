"""Programs that copy a board to another partition while posts to the board go on. `jobs.boards.move` runs them.

    step                          posts go to    the copy in the target
    begin_copy                    source         empty; the lease keeps other moves away
    read_page, write_owners       source         rows and post ids as they were when their pages were read
    read_changes, write_changes   source         lacks only the posts of the last moments; repeated until it does
    switch, one transaction       nobody         complete; the catalog refers to it, and the source is cleared
      done                        target
      failed                      source         changes are read again, or remove_copy

So before the switch nothing refers to the copy, and afterwards nothing refers to the source. Posts that waited find
their table or their copy of the board outdated, and are applied again in the target. `storage.segments.board_split`
does the same with other targets.

The most important rule: the switch copies nothing that an earlier transaction can still change. The locks on the
catalog's row and on the table of rows make it wait for all such transactions.

- Which rows to copy again: those of the owners in the bundles of the change log since the last mark.
- Which post ids are new: a transaction stores the same time in its bundle and with its post ids.
- An erased owner has no name in the log. If the log has such a change, all rows of the copy are compared.
- The log stays in the source, and so does the history of the board. The journal merges it with the log of the target.
- A statement reads the tables of one partition only, so this process carries the rows. A store with several partitions
  is on PostgreSQL, so no statement here has to be one of SQLite.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from querybuilder import (
    ASC,
    BLOB,
    INTEGER,
    CreateTable,
    Lock,
    asc,
    col,
    delete,
    drop_table,
    hold_table,
    insert,
    param,
    seek,
    select,
)
from storage.boards.board_removal import clear_partition
from storage.boards.boards import find_board, lock_standalone_board, store_columns
from storage.boards.row_tables import Layout, columns_of, create_row_table, define_row_table, layout_of, scope_of
from storage.boards.shared_tables import POST_IDS_KEY, find_or_create_table, note_dropped_rows
from storage.boards.totals import state_of
from storage.errors import (
    BoardChangedError,
    JournalIncompleteError,
    LeaseTakenError,
    LostRaceError,
    SpecConflictError,
    SpecInvalidError,
    UnknownBoardError,
)
from storage.leases.claims import store_clock
from storage.leases.work_leases import WorkLease, WorkLeases
from storage.log import journal
from storage.log.bundles import NAMELESS, owners_of
from storage.log.change_log import AFTER_MARK, POSITION, change_log
from storage.log.log_record import ChangeKind
from storage.records import Board, segment_of
from storage.schema.creation import count_partitions
from storage.schema.placement import TABLES
from storage.schema.sequences import take_number
from storage.schema.tables import ARCHIVE_BLOCKS, CHANGE_LOG, CURVES, HIDDEN_ENTRIES, POST_IDS, TOTALS
from storage.store import CONTROL, Program, Row, Rows, in_partition

from .hidden_owners import HIDDEN_KEY

T = TypeVar("T")

MOVE_WORK = "move"  # the kind of the work leases for moving a board
PAGE_ROWS = 5_000
PAGE_BUNDLES = 500
PAGE_DOCUMENTS = 50  # a page of archive blocks or curves


def check_not_moving(board: Board) -> Program[None]:
    """Raise `LeaseTakenError` if a process moves the board. Lock the catalog's row of the board first.

    A transaction that replaces the rows of a board without logging it calls this program.
    """
    lease = yield from in_partition(CONTROL, _LEASES.find_lease(MOVE_WORK, str(board.key)))
    free_in_us = 0 if lease is None else lease.expires_at_us - (yield from in_partition(CONTROL, store_clock()))
    if free_in_us > 0:
        raise LeaseTakenError(
            f"the leaderboard {board.id!r} is being moved to another partition", free_in_us=free_in_us
        )


_LEASES = WorkLeases(store_clock, margin_us=0)


class TableCopy:
    """Programs that copy a board's rows of one table, page by page in the order of the table's key."""

    def __init__(self, source: CreateTable, target: CreateTable, scope: dict[str, int]) -> None:
        """Prepare the statements. `scope`: the value of the first column in all rows of the board, by its name."""
        self._scope, self._keys = scope, source.keys[len(scope) :]
        self.page_rows = PAGE_DOCUMENTS if BLOB in source.kinds.values() else PAGE_ROWS
        self._rows = select(*map(col, source.kinds)).from_(source.name)
        self._rows = self._rows.where(*(col(name).eq(param(name, INTEGER)) for name in scope))
        first = self._rows.order_by(*(asc(col(key)) for key in self._keys)).limit(self.page_rows)
        self._first = first.prepared()
        self._next = first.where(seek(*((key, ASC, param(key)) for key in self._keys))).prepared()
        written = insert(target.name).rows(param("rows"), **target.kinds)
        self._write = written.on_conflict(*target.keys).overwrite().prepared()

    def read_page(self, after: Row) -> Program[tuple[Rows, Row | None]]:
        """Return the next rows after the key `after`, or the first ones if it is empty, and the next `after`, or None.

        A row has all columns of the table. The key of a row leaves out its scope.
        """
        page = self._next.bind(**self._scope, **dict(zip(self._keys, after, strict=True))) if after else None
        rows = yield self._first.bind(**self._scope) if page is None else page
        return rows, self.key_of(rows[-1]) if len(rows) == self.page_rows else None

    def key_of(self, row: Row) -> Row:
        return row[len(self._scope) :][: len(self._keys)]

    def write_rows(self, rows: Rows) -> Program[None]:
        if rows:
            yield self._write.bind(rows=[tuple(row) for row in rows])


class RowsCopy(TableCopy):
    """Programs that copy a board's rows, and rows of single owners again."""

    def __init__(self, here: Layout, there: Layout, scope: dict[str, int]) -> None:
        super().__init__(define_row_table(here), define_row_table(there), scope)
        owner, theirs = col("owner"), col("owner").in_(param("owners"))
        self._by_owners = self._rows.where(theirs).prepared()
        copied = select(owner).from_(there.table).where(*there.scope(), owner.gt(param("after")))
        self._copied = copied.order_by(asc(owner)).limit(PAGE_ROWS).packed().prepared()
        self._remove = delete(there.table).where(*there.scope(), theirs).prepared()

    def owner_of(self, row: Row) -> str:
        return str(self.key_of(row)[0])

    def list_copied(self, after: str) -> Program[list[str]]:
        """Return the next owners that have a row in the target."""
        return [row[0] for row in (yield self._copied.bind(after=after, **self._scope))]

    def read_owners(self, owners: Sequence[str]) -> Program[Rows]:
        rows: Rows = []
        for some in _chunks(owners):
            rows += yield self._by_owners.bind(owners=some, **self._scope)
        return rows

    def write_owners(self, owners: Iterable[str], rows: Rows) -> Program[None]:
        """Write these rows, and remove the rows of those owners in the list who have none of them."""
        for some in _chunks(rows):
            yield from self.write_rows([*some])
        kept = set(map(self.owner_of, rows))
        for some in _chunks([owner for owner in owners if owner not in kept]):
            yield self._remove.bind(owners=some, **self._scope)


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), PAGE_ROWS):
        yield items[start : start + PAGE_ROWS]


class BoardChanges(NamedTuple):
    """The changes of a board between two marks."""

    until: int  # the next mark
    more: bool  # whether further changes follow
    owners: list[str]  # the owners whose rows may have changed
    rows: Rows  # the rows that these owners have
    post_ids: Rows
    erased: bool  # whether the name of an owner was erased


class BoardCopy:
    """Programs that copy one board, or one segment, to other tables. Run each for `CONTROL` if it does not say more."""

    def __init__(self, board: Board, targets: Sequence[Board], *, sources: int = 1) -> None:
        """Prepare the programs for a board as it is, and as it will be.

        If there are several targets, they are segments. `sources`: how many segments are copied to them.
        """
        self.board, self.targets, self._sources = board, tuple(targets), sources
        self.rows: list[RowsCopy] = []  # for each target; empty: the board has an archive instead of rows
        if board.archived_us is None:
            self.rows = [RowsCopy(layout_of(board), layout_of(target), scope_of(board)) for target in targets]
        self.post_ids = self._copy_table(POST_IDS)
        self._small = {name: self._copy_table(name) for name in _SMALL_TABLES}

    def _copy_table(self, table: str) -> TableCopy:
        return TableCopy(TABLES[table], TABLES[table], {"board_key": self.board.key})

    def share(self, items: Iterable[T], owner_of: Callable[[T], str]) -> list[list[T]]:
        """Return what belongs to each target, by the owners."""
        shares: list[list[T]] = [[] for _ in self.targets]
        for item in items:
            shares[segment_of(owner_of(item), len(shares))].append(item)
        return shares

    def write_owners(self, owners: Sequence[str], rows: Rows) -> Program[None]:
        """Write these rows, and remove the rows of those owners in the list who have none of them."""
        shares = zip(self.share(owners, str), self.share(rows, self.rows[0].owner_of), strict=True)
        for target, table, (theirs, their_rows) in zip(self.targets, self.rows, shares, strict=True):
            yield from in_partition(target.partition, table.write_owners(theirs, their_rows))

    def write_post_ids(self, rows: Rows) -> Program[None]:
        """Copy post ids to every target, because the hash of an owner does not tell the owner's segment."""
        for target in self.targets:
            theirs = rows if target.key == self.board.key else [_rename_post_id(row, target.key) for row in rows]
            yield from in_partition(target.partition, self.post_ids.write_rows(theirs))

    def list_copied(self, target: int, after: str) -> Program[tuple[list[str], str | None]]:
        """Return the next owners of the source that have a row in a target, and the next `after`, or None."""
        listing = self.rows[target].list_copied(after)
        owners = yield from in_partition(self.targets[target].partition, listing)
        theirs = [owner for owner in owners if segment_of(owner, self._sources) == self.board.segment % self._sources]
        return theirs, owners[-1] if owners else None

    def read_changes(self, mark: int) -> Program[BoardChanges]:
        """Read what has changed in the source since a mark. Run this program for the source.

        Raises:
            JournalIncompleteError: some of it was pruned.
        """
        log = yield from change_log.read_counter()
        if log.pruned_before > mark:
            raise JournalIncompleteError("the log was pruned during the move; raise change_log_retention_s")
        bundles = yield _BUNDLES.bind(key=self.board.key, mark=mark, until=log.mark)
        more = len(bundles) == PAGE_BUNDLES
        names = dict.fromkeys(name for _, _, owners in bundles for name in owners_of(owners))
        owners = sorted(name for name in names if name and not name.startswith(NAMELESS))
        rows = (yield from self.rows[0].read_owners(owners)) if self.rows else []
        ids: Rows = []
        if times := sorted({row[1] for row in bundles}):
            ids = [row for row in (yield _NEW_POST_IDS.bind(times=times)) if row[0] == self.board.key]
        erased = any(name.startswith(NAMELESS) for name in names) and bool(self.rows)
        return BoardChanges(bundles[-1][0] + 1 if more else log.mark, more, owners, rows, ids, erased)

    def write_changes(self, changes: BoardChanges) -> Program[None]:
        """Copy changes to the targets."""
        if self.rows:
            yield from self.write_owners(changes.owners, changes.rows)
        yield from self.write_post_ids(changes.post_ids)

    def hold_source(self, mark: int) -> Program[BoardChanges]:
        """Hold back posts, and return what is left to copy. See `BoardCopies.switch`."""
        source = self.board.partition
        if self.rows:
            yield hold_table(layout_of(self.board).table).bind().at(source)
        found = yield from in_partition(source, self.read_changes(mark))
        if found.more or found.erased:
            raise LostRaceError("too much has changed since the rows were copied")
        return found

    def copy_small_table(self, name: str) -> Program[None]:
        """Copy the board's rows of one of `_SMALL_TABLES`. Curves and totals can only be copied to a single target."""
        table, after = self._small[name], _BEGINNING
        while after is not None:
            rows, after = yield from in_partition(self.board.partition, table.read_page(after))
            shares = self.share(rows, lambda row: str(row[1])) if name == HIDDEN_ENTRIES else [rows]
            for target, theirs in zip(self.targets, shares, strict=True):
                yield from in_partition(target.partition, self._write_small_rows(name, target, theirs))

    def _write_small_rows(self, name: str, target: Board, rows: Rows) -> Program[None]:
        if name == HIDDEN_ENTRIES:
            yield from _hold_marks([row[1] for row in rows])
        if name == CURVES:
            rows = yield from _number_curves(rows)
        yield from self._small[name].write_rows([(target.key, *row[1:]) for row in rows])


class BoardCopies(ABC):
    """The copies of all segments of a board, or the copy of a board, that one transaction begins to use.

    Run the programs for `CONTROL`.
    """

    def __init__(self, board: Board, copies: Sequence[BoardCopy], targets: Sequence[Board]) -> None:
        self.board, self.copies, self.targets = board, copies, tuple(targets)

    def list_left_behind(self) -> list[tuple[int, int, int]]:
        """Return the partitions and the rows that `sweep_rows` has to delete there before rows are copied to them."""
        return []

    def count_targets(self) -> Program[None]:
        """Count in the targets, which nobody else changes, what `switch` needs."""
        yield from ()

    def switch(self, marks: Sequence[int], *, released: Program[None]) -> Program[None]:
        """Hold back posts, copy what is left, and let the board begin in the targets.

        `released` gives the lease back in the same transaction.

        Raises:
            LostRaceError: there is too much left to copy, or an owner is being shown.
            BoardChangedError: the board is not the one of which the rows were copied.
            JournalIncompleteError: changes were pruned from the log.
        """
        now = yield from find_board(self.board.id, lock=Lock.UPDATE, queued=True)
        if [*map(_shape_of, now.parts)] != [*map(_shape_of, self.board.parts)]:
            raise BoardChangedError
        begun_us = yield from self._replace_source(now, marks)
        yield from released
        # Readers of streams then look for the board in the catalog. The log comes last, because of its counter.
        yield from journal.log_event(self.board, ChangeKind.MOVED, begun_us)

    @abstractmethod
    def _replace_source(self, now: Board, marks: Sequence[int]) -> Program[int]:
        """Copy what is left, clear the source, and let the catalog refer to the targets. Return the time."""

    def remove_copy(self, released: Program[None]) -> Program[None]:
        """Remove the copy, unless the board has begun there. `released` gives the lease back.

        Raises:
            LeaseLostError: another process has the lease, and needs its copy.
        """
        try:
            if self.has_begun((yield from find_board(self.board.id, lock=Lock.UPDATE))):
                return
        except UnknownBoardError:
            pass
        yield from released
        yield from self._remove_targets()

    @abstractmethod
    def _remove_targets(self) -> Program[None]: ...

    def has_begun(self, board: Board) -> bool:
        """Return whether this board uses the copy."""
        return [*map(_place_of, board.parts)] == [*map(_place_of, self.targets)]


class BoardMoveCopy(BoardCopies):
    """Programs that move one board to another partition."""

    def __init__(self, board: Board, moved: Board) -> None:
        super().__init__(board, [BoardCopy(board, [moved])], [moved])
        self.moved = moved

    def list_left_behind(self) -> list[tuple[int, int, int]]:
        notes = [(POST_IDS_KEY, self.moved.key)]
        if self.moved.table_key is not None and self.copies[0].rows:
            notes.append((self.moved.table_key, self.moved.rows_key))
        return [(self.moved.partition, *note) for note in notes]

    def note_left_behind(self) -> Program[None]:
        """Let `sweep_rows` delete in the target what a copy may have left there."""
        for partition, table_key, rows_key in self.list_left_behind():
            yield from in_partition(partition, note_dropped_rows(table_key, rows_key))

    def _replace_source(self, now: Board, marks: Sequence[int]) -> Program[int]:
        moved, [copy] = self.moved, self.copies
        yield from copy.write_changes((yield from copy.hold_source(marks[0])))
        for name in _SMALL_TABLES:
            yield from copy.copy_small_table(name)
        yield from store_columns(now, partition=moved.partition, table_key=moved.table_key, rows_key=moved.rows_key)
        yield from in_partition(now.partition, clear_partition(now))
        return (yield from store_clock())

    def _remove_targets(self) -> Program[None]:
        if self.copies[0].rows and self.moved.table_key is None:
            yield drop_table(layout_of(self.moved).table, if_exists=True).bind().at(self.moved.partition)
        yield from self.note_left_behind()


def begin_copy(
    board_id: str, leases: WorkLeases, *, target: int, holder: str, lease_us: int
) -> Program[tuple[BoardMoveCopy, WorkLease]]:
    """Take the lease of a board and create an empty table in the target. Run this for `CONTROL`.

    The lock on the catalog's row makes a move wait for a rebuild of the board, but not for posts.

    Raises:
        UnknownBoardError, FamilyBoardError: see `lock_standalone_board`.
        SpecInvalidError: the store does not have the target.
        SpecConflictError: the board is in the target already, or has segments.
        LeaseTakenError: another process moves the board.
    """
    board = yield from lock_standalone_board(board_id, lock=Lock.SHARE)
    if board.segments:
        raise SpecConflictError(f"{board.id!r} has segments in several partitions; `rankcurve board split` moves them")
    partitions = yield from count_partitions()
    if not 0 <= target < partitions:
        raise SpecInvalidError(f"the store has the partitions 0 to {partitions - 1}")
    if target == board.partition:
        raise SpecConflictError(f"{board.id!r} is in partition {target} already")
    lease = yield from leases.claim(MOVE_WORK, str(board.key), holder=holder, lease_us=lease_us)
    moved = replace(board, partition=target)
    if board.archived_us is None and board.table_key is not None:
        table_key = yield from find_or_create_table(columns_of(board.spec.columns, shared=True), target)
        moved = replace(moved, table_key=table_key)
    elif board.archived_us is None:
        moved = replace(moved, rows_key=board.rows_key + 1)
        for partition in range(partitions):  # an earlier move, which was killed, may have left its table anywhere
            yield drop_table(layout_of(moved).table, if_exists=True).bind().at(partition)
        yield from in_partition(target, create_row_table(layout_of(moved)))
    copy = BoardMoveCopy(board, moved)
    yield from copy.note_left_behind()
    return copy, lease


def _hold_marks(owners: Sequence[str]) -> Program[None]:
    """Check that these owners are hidden, and let nobody show them before this transaction ends.

    Raises:
        LostRaceError: one of them is being shown. Whoever shows an owner looks up the owner's boards in each partition,
            one after the other, so a board must not move meanwhile.
    """
    if owners and len((yield _MARKS.bind(owners=owners))) < len(owners):
        raise LostRaceError("an owner is being shown")


def _rename_post_id(row: Row, board_key: int) -> Row:
    """Return the row of a post id, as it is for the segment with this key. `post_ids._encode_parts` has the format."""
    values = dict(zip(TABLES[POST_IDS].kinds, row, strict=True))
    outcome = [[board_key, *part[1:]] for part in json.loads(values["outcome"])]
    return tuple((values | {"board_key": board_key, "outcome": json.dumps(outcome)}).values())


def _number_curves(rows: Rows) -> Program[Rows]:
    """Give curves versions of this partition that are greater than their own. Their marks belong to the other log.

    So each process takes the curves of this partition for newer ones.
    """
    numbered: Rows = []
    names = list(TABLES[CURVES].kinds)
    for row in rows:
        curve = dict(zip(names, row, strict=True))
        taken = yield from take_number("curve_version")
        if taken <= curve["version"]:
            taken = yield from take_number("curve_version", curve["version"] - taken + 1)
        numbered.append(tuple((curve | {"version": taken, "mark": None}).values()))
    return numbered


def _shape_of(board: Board) -> tuple[int, int, int, int | None]:
    """Return what changes if rows are removed or get another form."""
    return board.key, state_of(board), board.rows_key, board.table_key


def _place_of(board: Board) -> tuple[int, int]:
    return board.key, board.partition


_BEGINNING: Row | None = ()  # the first page of `TableCopy.read_page` begins after this key
_SMALL_TABLES = (HIDDEN_ENTRIES, CURVES, TOTALS, ARCHIVE_BLOCKS)
_BUNDLES = (
    select(POSITION, col("updated_at"), col("owners"))
    .from_(CHANGE_LOG)
    .where(col("board_key").eq(param("key")), AFTER_MARK, POSITION.lt(param("until")))
    .order_by(asc(POSITION))
    .limit(PAGE_BUNDLES)
    .packed()
    .prepared()
)
_new_post_ids = select(*map(col, TABLES[POST_IDS].kinds)).from_(POST_IDS)
_NEW_POST_IDS = _new_post_ids.where(col("remembered_at").in_(param("times"))).packed().prepared()
_MARKS = (
    select(col("owner"))
    .from_(HIDDEN_ENTRIES)
    .where(col("board_key").eq(HIDDEN_KEY), col("owner").in_(param("owners")))
    .locked(Lock.SHARE)
    .prepared()
)
