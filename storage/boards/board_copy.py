"""Moves and splits: programs that copy a board to other leaves while posts continue, for `jobs.boards.move`.

The targets of a copy are a leaf in another partition (`begin_move`) or new segments (`begin_split`).

    step                          posts go to    the copy in the targets
    begin_move, begin_split       source         empty; the lease keeps other moves away
    read_page, write_owners       source         rows and post ids as they were when their pages were read
    read_changes, write_changes   source         lacks the latest posts; the step is repeated until they are few
    switch, one transaction       (they wait)    complete; the catalog refers to it, and the source is cleared
      done                        targets
      failed                      source         changes are read again, or remove_copy

Nothing refers to the copy before the switch, and nothing refers to the source afterwards. Posts that waited for the
switch find that their copy of the board is outdated, and are applied again in the targets.

A post that reached the source while the switch copies the last changes would be lost. To prevent that, the switch first
locks the board's row in the catalog and the table with the entries, and waits for other writers to finish.

`storage.leaves.leaf_copy` copies a leaf. The log of earlier changes stays in the source's partition, and the journal
merges it with the logs of the targets.

    pending segment ──switch──> segment ──another split──> retired segment, without rows

Retired segments stay in the catalog, so that the journal can tell which board their changes belong to. A stored post id
contains its owner only as a keyed hash, which does not reveal the owner's new segment. Each new segment therefore gets
the post ids of all earlier segments.

A copied curve has no live counts, and new segments have no curves, so the switch requests a refresh of each column.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from querybuilder import Lock, col, count, count_if, delete, drop_table, select
from storage.curves.refresh_requests import store_refresh_request
from storage.errors import (
    ArchivedError,
    BoardChangedError,
    LeaseTakenError,
    PeriodClosedError,
    SpecConflictError,
    UnknownBoardError,
)
from storage.leases.work_leases import WorkLease, WorkLeases, store_clock
from storage.leaves.catalog_rows import RowKind, encode_spec, replace_times, store_columns, times_of
from storage.leaves.entrants import forget_entrants, hold_entrants
from storage.leaves.entries import add_totals
from storage.leaves.leaf_copy import LeafChanges, LeafCopy, RowsCopy
from storage.leaves.row_tables import columns_of, create_row_table, layout_of
from storage.leaves.totals import ALL_ENTRIES, CHANGES, find_totals_of, store_gates
from storage.log.bundles import ChangeKind
from storage.records import Board, Leaf
from storage.schema.creation import count_partitions
from storage.schema.tables import ARCHIVE_BLOCKS, BOARDS, CURVES, ENTRANTS, OF_OWNERS, POST_IDS, TOTALS
from storage.store import CONTROL, Program, in_partition

from . import journal
from .board_creation import check_board_limits, check_segments, choose_partitions, insert_segment
from .board_removal import clear_partition
from .boards import find_board, find_other_segments, lock_standalone_board
from .shared_tables import find_or_create_table, note_dropped_rows

MOVE_WORK = "move"  # the kind of the work leases for moving a board
_Counts = dict[int, int]  # entry counts, by column index; `ALL_ENTRIES` is the index for all entries
_LEASES = WorkLeases(store_clock, margin_us=0)


def check_not_moving(board: Board) -> Program[None]:
    """Raise `LeaseTakenError` if a process is moving or splitting the board.

    A transaction has to call this before it replaces a board's rows without logging the new ones. It must have locked
    the board's row in the catalog first.
    """
    lease = yield from in_partition(CONTROL, _LEASES.find_lease(MOVE_WORK, str(board.key)))
    free_in_us = 0 if lease is None else lease.expires_at_us - (yield from in_partition(CONTROL, store_clock()))
    if free_in_us > 0:
        raise _moving(board, free_in_us)


def _claim_move(board: Board, leases: WorkLeases, *, holder: str, lease_us: int) -> Program[WorkLease]:
    try:
        return (yield from leases.claim(MOVE_WORK, str(board.key), holder=holder, lease_us=lease_us))
    except LeaseTakenError as taken:
        raise _moving(board, taken.free_in_us) from taken


def _moving(board: Board, free_in_us: int) -> LeaseTakenError:
    when = f"if the command that does it has ended, try again in {math.ceil(free_in_us / 1e6)} s"
    return LeaseTakenError(f"the leaderboard {board.id!r} is being moved or split; {when}", free_in_us=free_in_us)


class BoardCopy:
    """Programs that copy a board to other leaves and then switch it over to them. Run them in partition `CONTROL`."""

    def __init__(self, board: Board, targets: Sequence[Leaf]) -> None:
        """Prepare the programs. `targets` are the board's leaf in another partition, or the board's new segments."""
        self.board, self.targets = board, tuple(targets)
        self.leaves = [LeafCopy(leaf, targets) for leaf in board.leaves]
        self._moves = targets[0].key == board.key
        self._counted: dict[int, _Counts] = {}  # how many entries each new segment has, by its key

    def list_left_behind(self) -> list[tuple[int, str, int]]:
        """Return (partition, table, `rows_key`) of rows that an unfinished copy may have left in the targets."""
        notes = [(target.partition, POST_IDS, target.key) for target in self.targets]
        in_shared = (target for target in self.targets if target.table_key is not None and target.archived_us is None)
        return notes + [(target.partition, layout_of(target).table, target.rows_key) for target in in_shared]

    def note_left_behind(self) -> Program[None]:
        """Mark the rows from `list_left_behind` as unused. `sweep_rows` must delete them before the copy can begin."""
        for partition, table, rows_key in self.list_left_behind():
            yield from in_partition(partition, note_dropped_rows(table, rows_key))

    def count_targets(self) -> Program[None]:
        """Count the entries of new segments, to which only this copy writes. `switch` stores the counts as totals."""
        indexes = self.board.sorted_indexes
        for segment in () if self._moves else self.targets:
            layout = layout_of(segment)
            counts = [count(), *(count_if(col(layout.columns[index].name).not_null()) for index in indexes)]
            [row] = yield select(*counts).from_(layout.table).bind().at(segment.partition)
            self._counted[segment.key] = dict(zip((ALL_ENTRIES, *indexes), map(int, row), strict=True))

    def switch(self, marks: Sequence[int], *, released: Program[None]) -> Program[None]:
        """Make posts wait, copy the last changes, and point the catalog to the targets instead of the source.

        `marks` holds, for each leaf, the log position of the first change to copy. The program `released` ends the
        lease.

        Raises:
            LostRaceError: too many changes are left to copy, an owner was erased, or a hidden owner becomes visible.
            BoardChangedError: the board was emptied, archived, moved or split, got columns, or closed during a split.
            JournalIncompleteError: changes that have not been copied were pruned from the log.
        """
        now = yield from find_board(self.board.id, lock=Lock.UPDATE, queued=True)
        if [*map(_shape_of, now.leaves)] != [*map(_shape_of, self.board.leaves)]:
            raise BoardChangedError(f"{now.id!r} was emptied, archived or given columns during the copy: run it again")
        begun_us = yield from store_clock()
        if self._moves:
            yield from self._begin_elsewhere(now, marks[0])
        else:
            yield from self._begin_segments(now, marks, begun_us)
        for target in self.targets:
            if target.archived_us is None:
                for index in target.sorted_indexes:
                    yield from store_refresh_request((target.key, index))
        yield from released
        # The event makes streams look up the board again. Log it last, because posts then wait for this transaction.
        yield from journal.log_event(self.board.leaves, ChangeKind.MOVED, begun_us)

    def _begin_elsewhere(self, now: Board, mark: int) -> Program[None]:
        [leaf], [moved] = self.leaves, self.targets
        yield from hold_entrants([(now.leaf, ())])  # as posts do, before they lock rows
        yield from leaf.write_changes((yield from leaf.hold(mark)))
        for name in (*OF_OWNERS, CURVES, TOTALS, ARCHIVE_BLOCKS):
            yield from leaf.copy_small_table(name)
        if now.spec.entry is not None:
            yield from leaf.copy_small_table(ENTRANTS)
            yield from forget_entrants([now.leaf.entrants_place])
        yield from store_columns(now.key, **moved.place._asdict())
        yield from in_partition(leaf.source.partition, clear_partition(now.leaf))
        yield from store_gates([replace(now.leaf, place=moved.place)])

    def _begin_segments(self, now: Board, marks: Sequence[int], begun_us: int) -> Program[None]:
        if now.gate.closed_us is not None:
            raise BoardChangedError(f"{now.id!r} was closed during the split")
        counted = {key: dict(counts) for key, counts in self._counted.items()}
        for leaf, mark in zip(self.leaves, marks, strict=True):
            found = yield from leaf.hold(mark)
            yield from _count_changes(leaf, found, counted)
            yield from leaf.write_changes(found)
            for name in OF_OWNERS:
                yield from leaf.copy_small_table(name)
        totals = yield from find_totals_of([now])
        # A split changes no entries. So all segments together keep the board's count of changes; the first one gets it.
        counted[self.targets[0].key][CHANGES] = totals[now.key].get(CHANGES, 0)
        for source in now.leaves:
            yield from in_partition(source.partition, clear_partition(source))
            if now.is_spread:
                yield from store_columns(source.key, kind=RowKind.RETIRED, archived_at=begun_us)
        spec = replace(now.spec, segments=len(self.targets))
        yield from store_columns(now.key, spec=encode_spec(spec), kind=RowKind.SPREAD)
        of_segment = replace(now.spec, segments=1)
        times = times_of(now.spec.season)  # they may have changed since the segments were made
        begun = []
        for segment in self.targets:
            yield from store_columns(segment.key, kind=RowKind.SEGMENT, spec=encode_spec(of_segment), **times)
            begun.append(replace(segment, spec=of_segment, gate=replace_times(segment.gate, now.spec.season)))
        yield from store_gates(begun)
        for segment in self.targets:
            yield from in_partition(segment.partition, add_totals({segment.key: counted[segment.key]}))

    def remove_copy(self, released: Program[None]) -> Program[None]:
        """Remove the copy, unless the board already uses it. The program `released` releases the lease.

        Raises:
            LeaseLostError: another process has the lease now, and may use the same tables for its own copy.
        """
        try:
            if self.has_begun((yield from find_board(self.board.id, lock=Lock.UPDATE))):
                return
        except UnknownBoardError:
            pass
        yield from released
        yield from _remove_tables(self.targets)
        yield from self.note_left_behind()

    def has_begun(self, board: Board) -> bool:
        return [*map(_place_of, board.leaves)] == [*map(_place_of, self.targets)]


def _count_changes(leaf: LeafCopy, found: LeafChanges, counted: dict[int, _Counts]) -> Program[None]:
    """Update the entry counts in `counted` for the changes in `found`: subtract replaced rows, and add new ones."""
    shares = zip(leaf.share(found.owners, str), leaf.share(found.rows, leaf.rows[0].owner_of), strict=True)
    for segment, (owners, rows) in zip(leaf.targets, shares, strict=True):
        replaced = yield from in_partition(segment.partition, RowsCopy(segment, segment).read_owners(owners))
        counts = counted[segment.key]
        for row, sign in [*((row, -1) for row in replaced), *((row, 1) for row in rows)]:
            _, _, *cells = row
            counts[ALL_ENTRIES] += sign
            for index in segment.sorted_indexes:
                counts[index] += sign * (cells[index] is not None)


def _remove_tables(targets: Sequence[Leaf]) -> Program[None]:
    for target in targets:
        if target.table_key is None and target.archived_us is None:
            yield drop_table(layout_of(target).table, if_exists=True).bind().at(target.partition)
        yield delete(BOARDS).where(col("board_key").eq(target.key), col("kind").eq(RowKind.PENDING)).bind()


def begin_move(
    board_id: str, leases: WorkLeases, *, target: int, holder: str, lease_us: int
) -> Program[tuple[BoardCopy, WorkLease]]:
    """Take the lease for moving a board, and prepare an empty copy in the partition `target`. Run this in `CONTROL`.

    This locks the board's row in the catalog, so a move waits for a rebuild of the board, but not for posts.

    Raises:
        UnknownBoardError, FamilyBoardError: see `lock_standalone_board`.
        SpecInvalidError: the store does not have the partition `target`.
        SpecConflictError: the board is in this partition already, or has segments.
        LeaseTakenError: another process moves or splits the board.
    """
    board = yield from lock_standalone_board(board_id, lock=Lock.SHARE)
    if board.is_spread:
        raise SpecConflictError(f"{board.id!r} has segments in several partitions; `rankcurve board split` moves them")
    yield from choose_partitions(target)
    if target == board.partition:
        raise SpecConflictError(f"{board.id!r} is in partition {target} already")
    lease = yield from _claim_move(board, leases, holder=holder, lease_us=lease_us)
    [leaf] = board.leaves
    place = leaf.place._replace(partition=target)
    if leaf.archived_us is None and leaf.table_key is not None:
        table_key = yield from find_or_create_table(columns_of(leaf.spec.columns, shared=True), target)
        place = place._replace(table_key=table_key)
    elif leaf.archived_us is None:
        place = place._replace(rows_key=leaf.rows_key + 1)
    moved = replace(leaf, place=place)
    if moved.table_key is None and leaf.archived_us is None:
        for partition in range((yield from count_partitions())):  # a killed move may have left its table in any of them
            yield drop_table(layout_of(moved).table, if_exists=True).bind().at(partition)
        yield from in_partition(target, create_row_table(layout_of(moved)))
    copy = BoardCopy(board, [moved])
    yield from copy.note_left_behind()
    return copy, lease


def begin_split(
    board_id: str,
    leases: WorkLeases,
    *,
    segments: int,
    boards_max: int,
    own_tables_max: int | None,
    holder: str,
    lease_us: int,
) -> Program[tuple[BoardCopy, WorkLease]]:
    """Take the lease for moving a board, and create new, empty segments of the board. Run this in `CONTROL`.

    Raises:
        UnknownBoardError, FamilyBoardError: see `lock_standalone_board`.
        SpecInvalidError: the board is in a shared table.
        SpecConflictError: the board has this many segments already.
        ArchivedError, PeriodClosedError: the board accepts no more posts.
        CatalogFullError, OwnTablesFullError: see `check_board_limits`.
        LeaseTakenError: another process moves or splits the board.
    """
    board = yield from lock_standalone_board(board_id, lock=Lock.SHARE)
    check_segments(shared=board.leaves[0].table_key is not None, partition=None)
    if board.gate.archived_us is not None:
        raise ArchivedError(f"the leaderboard {board_id!r} was archived, so it has no rows")
    if board.gate.closed_us is not None:
        raise PeriodClosedError(f"the leaderboard {board_id!r} is closed")
    if len(board.leaves) == segments:
        raise SpecConflictError(f"{board_id!r} has {segments} segments already", pointer="/segments")
    lease = yield from _claim_move(board, leases, holder=holder, lease_us=lease_us)
    others = yield from find_other_segments(board)
    yield from _remove_tables(
        [row.leaf for row in others if row.kind is RowKind.PENDING]
    )  # left by a split that was killed
    yield from check_board_limits(new=segments, own=True, boards_max=boards_max, own_tables_max=own_tables_max)
    places = yield from choose_partitions(None, segments)
    made = []
    for number, place in enumerate(places):
        made.append((yield from insert_segment(board, number, place, RowKind.PENDING)))
    return BoardCopy(board, made), lease


def _shape_of(leaf: Leaf) -> tuple[int | None, ...]:
    """Collect values to compare later. They differ if the leaf's rows were removed or moved, or got new columns."""
    columns = len(leaf.spec.columns)
    return leaf.key, leaf.epoch, leaf.archived_us, columns, leaf.rows_key, leaf.table_key


def _place_of(leaf: Leaf) -> tuple[int, int]:
    return leaf.key, leaf.partition
