"""Programs that spread a board's entries over other segments while posts to the board go on.

`jobs.boards.move` runs them. The entries are copied as in a move (`storage.entries.board_copy`), each to the segment
that its owner will have. The switch is one transaction: it retires the earlier segments, and the new ones begin.

    pending segment ──switch──> segment ──another split──> retired segment, without rows

Retired segments stay in the catalog, so the journal knows the board of their changes. A stored post id has only a keyed
hash of its owner, which does not tell the owner's segment. So each new segment gets the post ids of all earlier ones.
The new segments begin without curves; the refresh job fits them next.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from querybuilder import Lock, col, count, count_if, delete, drop_table, select
from storage.boards.board_creation import check_board_limits, check_segments, choose_partitions, insert_segment
from storage.boards.board_removal import clear_partition
from storage.boards.boards import (
    PENDING,
    RETIRED,
    WHOLE,
    encode_spec,
    find_gone_segments,
    lock_standalone_board,
    store_columns,
)
from storage.boards.row_tables import layout_of
from storage.boards.totals import ALL_ENTRIES, CHANGES, find_totals_of, store_states
from storage.entries.board_copy import MOVE_WORK, BoardChanges, BoardCopies, BoardCopy, RowsCopy
from storage.entries.entries import add_totals
from storage.errors import ArchivedError, BoardChangedError, PeriodClosedError, SpecConflictError
from storage.leases.claims import store_clock
from storage.leases.work_leases import WorkLease, WorkLeases
from storage.records import Board, TableSharing
from storage.schema.tables import BOARDS, HIDDEN_ENTRIES
from storage.store import Program, in_partition

_Counts = dict[int, int]  # by column index and `ALL_ENTRIES`


class BoardSplitCopy(BoardCopies):
    """Programs that spread one board over new segments."""

    def __init__(self, board: Board, segments: Sequence[Board]) -> None:
        copies = [BoardCopy(part, segments, sources=len(board.parts)) for part in board.parts]
        super().__init__(board, copies, segments)
        self._counted: dict[int, _Counts] = {}

    def count_targets(self) -> Program[None]:
        indexes = self.board.sorted_indexes
        for segment in self.targets:
            layout = layout_of(segment)
            counts = [count(), *(count_if(col(layout.columns[index].name).not_null()) for index in indexes)]
            [row] = yield select(*counts).from_(layout.table).bind().at(segment.partition)
            self._counted[segment.key] = dict(zip((ALL_ENTRIES, *indexes), map(int, row), strict=True))

    def _replace_source(self, now: Board, marks: Sequence[int]) -> Program[int]:
        if now.has_closed_part:
            raise BoardChangedError
        counted = {key: dict(counts) for key, counts in self._counted.items()}
        for copy, mark in zip(self.copies, marks, strict=True):
            found = yield from copy.hold_source(mark)
            yield from self._count_changes(copy, found, counted)
            yield from copy.write_changes(found)
            yield from copy.copy_small_table(HIDDEN_ENTRIES)
        totals = yield from find_totals_of([now])
        counted[self.targets[0].key][CHANGES] = totals[now.key].get(CHANGES, 0)  # the content stays the same
        begun_us = yield from store_clock()
        yield from self._begin_segments(now, begun_us)
        yield from store_states(self.targets)
        for segment in self.targets:
            yield from in_partition(segment.partition, add_totals({segment.key: counted[segment.key]}))
        return begun_us

    def _count_changes(self, copy: BoardCopy, found: BoardChanges, counted: dict[int, _Counts]) -> Program[None]:
        """Subtract the entries that the changes replace in the targets, and add those that they write."""
        shares = zip(copy.share(found.owners, str), copy.share(found.rows, copy.rows[0].owner_of), strict=True)
        for segment, (owners, rows) in zip(self.targets, shares, strict=True):
            layout, counts = layout_of(segment), counted[segment.key]
            replaced = yield from in_partition(segment.partition, RowsCopy(layout, layout, {}).read_owners(owners))
            for row, sign in [*((row, -1) for row in replaced), *((row, 1) for row in rows)]:
                _, _, *cells = row
                counts[ALL_ENTRIES] += sign
                for index in self.board.sorted_indexes:
                    counts[index] += sign * (cells[index] is not None)

    def _begin_segments(self, now: Board, begun_us: int) -> Program[None]:
        """Retire the earlier segments, or the table of the board, and let the new segments begin."""
        for part in now.parts:
            yield from in_partition(part.partition, clear_partition(part))
            if part.segment_of is not None:
                yield from store_columns(part, segment=RETIRED - part.segment, due_at=None, archived_at=begun_us)
        spec = replace(now.spec, segments=len(self.targets))
        yield from store_columns(now, spec=encode_spec(spec), segment=WHOLE, due_at=None)
        for segment in self.targets:
            yield from store_columns(segment, segment=segment.segment, due_at=now.gate.closes_us)

    def _remove_targets(self) -> Program[None]:
        yield from _remove_segments(self.targets)


def _remove_segments(segments: Iterable[Board]) -> Program[None]:
    for segment in segments:
        yield drop_table(layout_of(segment).table, if_exists=True).bind().at(segment.partition)
        yield delete(BOARDS).where(col("board_key").eq(segment.key), col("segment").lt(0)).bind()


def begin_split(
    board_id: str,
    leases: WorkLeases,
    *,
    segments: int,
    boards_max: int,
    own_tables_max: int | None,
    holder: str,
    lease_us: int,
) -> Program[tuple[BoardSplitCopy, WorkLease]]:
    """Take the lease of a board, and create empty segments. Run this for `CONTROL`.

    Raises:
        UnknownBoardError, FamilyBoardError: see `lock_standalone_board`.
        SpecInvalidError: the board is in a shared table.
        SpecConflictError: the board has this many segments already.
        ArchivedError, PeriodClosedError: the board takes no more posts.
        TooManyBoardsError, TooManyOwnTablesError: see `check_board_limits`.
        LeaseTakenError: another process moves or splits the board.
    """
    board = yield from lock_standalone_board(board_id, lock=Lock.SHARE)
    check_segments(shared=board.spec.table is TableSharing.SHARED, partition=None)
    if board.archived_us is not None:
        raise ArchivedError(f"the leaderboard {board_id!r} was archived, so it has no rows")
    if board.has_closed_part:
        raise PeriodClosedError(f"the leaderboard {board_id!r} is closed")
    if len(board.parts) == segments:
        raise SpecConflictError(f"{board_id!r} has {segments} segments already", pointer="/segments")
    lease = yield from leases.claim(MOVE_WORK, str(board.key), holder=holder, lease_us=lease_us)
    gone = yield from find_gone_segments(board)
    yield from _remove_segments(each for each in gone if each.segment <= PENDING)  # a split that was killed
    yield from check_board_limits(new=segments, own=True, boards_max=boards_max, own_tables_max=own_tables_max)
    places = yield from choose_partitions(None, segments)
    made = []
    for number, place in enumerate(places):
        segment = yield from insert_segment(board, PENDING - number, place, due_us=None)
        made.append(replace(segment, segment=number))
    return BoardSplitCopy(board, made), lease
