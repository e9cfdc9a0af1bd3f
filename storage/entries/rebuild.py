"""Rebuilds a board's rows from the journal: each row as the owner's last post left it.

The most important rule: a rebuild is all or nothing. It is one transaction, and nobody posts to the board meanwhile.
Post ids, the journal and the board's epoch stay, so a post that is sent again is still a duplicate. Stored curves are
deleted, and the next refresh makes new ones.

If the board was moved, other partitions have its earlier changes. So a rebuild reads every partition that has some.

This module reads what was posted since the board was created or reset. `posting.replay` begins at a given number of the
journal instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from querybuilder import Lock
from storage.boards.board_removal import remove_rows
from storage.boards.boards import find_board, find_keys_ever
from storage.boards.totals import ALL_ENTRIES, CHANGES, find_totals_of, store_states
from storage.errors import ArchivedError, JournalIncompleteError, NothingReplayedError
from storage.log import journal, partition_journal
from storage.log.cells import Cell
from storage.log.change_log import change_log
from storage.log.journal import Numbers
from storage.log.log_record import NO_CHANGE, ChangeKind, ChangeRecord
from storage.log.partition_journal import JournalRow, RowReader
from storage.records import Board, Entry
from storage.store import Program, in_partition

from . import hidden_owners
from .board_copy import check_not_moving
from .entries import Entries, add_totals
from .hidden_owners import HiddenEntry

PAGE_ROWS = 5_000
CLOCK_SKEW_US_MAX = 600_000_000  # upper bound of the difference between the clocks of two processes
_SEEN = (ChangeKind.APPLIED, ChangeKind.SHOWN)
_UNSEEN = (ChangeKind.UNSEEN, ChangeKind.HIDDEN)


@dataclass(slots=True)
class RebuildCounts:
    rows: int = 0  # rows of the journal that were read
    replayed: int = 0  # rows of the journal from which the board's rows were made
    rejected: int = 0  # rows of the journal whose result would leave the range of a column
    duplicates: int = 0  # rows of the journal with the post id of a post that was merged before
    entries: int = 0  # entries that the board has now
    hidden_entries: int = 0  # entries of hidden owners, which the board does not show
    entries_before: int = 0  # entries that the board had before the rebuild


@dataclass(slots=True)
class OwnerRow:
    """The last state of an owner in the journal. `cells` is None if the owner was erased."""

    updated_at_us: int
    cells: list[Cell] | None
    is_hidden: bool


def rebuild_board(*, board_id: str) -> Program[RebuildCounts]:
    """Rebuild the board's rows from the journal. Memory use grows with the number of owners.

    Raises:
        UnknownBoardError: there is no such board.
        JournalIncompleteError: the journal may lack the first posts to the board.
        NothingReplayedError: the journal has no post to the board.
        ArchivedError: the board was archived, so its rows were removed on purpose.
    """
    board, done, changes = yield from empty_board(board_id)
    owners = yield from _owners(board, done)
    if not done.replayed:
        nothing = f"the journal has no post to {board.id!r} since it was created or reset"
        raise NothingReplayedError(nothing, earlier=(yield from _find_earlier_posts(board)))
    yield from store_owner_rows(board, owners, changes, done)
    yield from store_states(board.parts)
    return done


def empty_board(board_id: str) -> Program[tuple[Board, RebuildCounts, Mapping[int, int]]]:
    """Empty a board and lock it, so that nobody posts to it before this transaction ends.

    Return the board, a `RebuildCounts` with the board's earlier number of entries, and how many changes each segment,
    or else the board itself, has had.

    Raises:
        UnknownBoardError: there is no such board.
        ArchivedError: the board was archived, so its rows were removed on purpose.
        LeaseTakenError: the board is being moved to another partition.
    """
    board = yield from find_board(board_id, lock=Lock.UPDATE)
    if board.archived_us is not None:
        raise ArchivedError(f"the leaderboard {board_id!r} was archived, so it has no rows")
    yield from check_not_moving(board)
    totals = yield from find_totals_of(board.parts)
    done = RebuildCounts(entries_before=sum(totals[part.key].get(ALL_ENTRIES, 0) for part in board.parts))
    return (yield from remove_rows(board)), done, {part.key: totals[part.key].get(CHANGES, 0) for part in board.parts}


def _owners(board: Board, done: RebuildCounts) -> Program[dict[str, OwnerRow]]:
    reader = RowReader(board)
    owners: dict[str, OwnerRow] = {}
    emptied, pages = False, JournalPages((yield from find_keys_ever(board)), ())
    while not pages.ended:
        rows = yield from pages.read_next()
        done.rows += len(rows)
        for row in rows:
            if row.record is None:
                continue
            if row.record.kind is ChangeKind.RESET:
                emptied, done.replayed = True, 0
                owners.clear()
            elif row.owner is not None and row.record.kind not in NO_CHANGE:
                done.replayed += 1
                owners[row.owner] = _last(row, row.record, reader)
    if not emptied:
        yield from _check_start(board)
    return owners


class JournalPages:
    """Reads the changes of boards in all partitions, page by page, in the order in which they were logged."""

    def __init__(self, boards: Sequence[int], after: Numbers) -> None:
        self._boards, self._after = boards, after
        self._partitions: list[int] | None = None  # the partitions that hold such changes
        self.ended = False

    def read_next(self) -> Program[list[JournalRow]]:
        if self._partitions is None:
            self._partitions = yield from journal.find_partitions_of(self._boards, self._after)
        page = yield from journal.read_page(
            self._after, limit=PAGE_ROWS, partitions=self._partitions, boards=self._boards
        )
        changes = list(page.list_changes())
        self.ended = len(changes) < PAGE_ROWS
        if changes:
            self._after = changes[-1][0]
        return [row for _, row in changes]


def _last(row: JournalRow, posted: ChangeRecord, reader: RowReader) -> OwnerRow:
    if posted.kind not in _SEEN and posted.kind not in _UNSEEN:
        return OwnerRow(0, None, False)
    version = row.at_us if posted.version is None else posted.version
    return OwnerRow(version, reader.cells_after(row, posted), posted.kind in _UNSEEN)


def _check_start(board: Board) -> Program[None]:
    """Raise `JournalIncompleteError` if changes of the board may have been removed from the journal."""
    for partition, begins_after in enumerate((yield from journal.find_begins())):
        if not begins_after:
            continue
        oldest_us = yield from in_partition(partition, change_log.oldest_us())
        if oldest_us is None or board.created_at_us < oldest_us + CLOCK_SKEW_US_MAX:
            detail = f"the journal begins after {begins_after}, and {board.id!r} is older, so earlier posts are missing"
            raise JournalIncompleteError(detail + "; keep it longer with change_log_retention_s")


def _find_earlier_posts(board: Board) -> Program[Numbers | None]:
    """Return the numbers from which on the journal has posts to this board or deleted ones of its name; None: none."""
    begins = yield from journal.find_begins()
    boards = [*(yield from find_keys_ever(board)), *(yield from find_deleted_boards(board.id, begins))]
    page = yield from journal.read_page(begins, limit=1, partitions=range(len(begins)), boards=boards)
    return next((numbers for numbers, _ in page.list_changes()), None)


def find_deleted_boards(board_id: str, since: Numbers) -> Program[dict[int, Board]]:
    """Return by key the boards with this id that were deleted at these numbers of the journal or later."""
    found: dict[int, Board] = {}
    for partition, number in enumerate(since):
        found |= yield from in_partition(partition, partition_journal.find_deleted_boards(board_id, since=number))
    return found


def store_owner_rows(
    board: Board, owners: Mapping[str, OwnerRow], changes: Mapping[int, int], done: RebuildCounts
) -> Program[None]:
    """Insert rows into an empty board and add their totals. `changes`: see `empty_board`."""
    for part in board.parts:
        its = owners if part is board else {owner: owners[owner] for owner in owners if board.part_of(owner) is part}
        yield from in_partition(part.partition, _store_rows(Entries(part), its, changes[part.key], done))


def _store_rows(entries: Entries, owners: Mapping[str, OwnerRow], changes: int, done: RebuildCounts) -> Program[None]:
    entries_before = done.entries
    counted = {ALL_ENTRIES: 0, CHANGES: changes + 1, **dict.fromkeys(entries.board.sorted_indexes, 0)}
    for page in _pages(owners):
        seen, unseen = list[Entry](), list[Entry]()
        for owner, last in page:
            if last.cells:
                (unseen if last.is_hidden else seen).append(Entry(owner, last.updated_at_us, last.cells))
        if seen:
            yield from entries.table.insert_rows([(entries.board.rows_key, entry) for entry in seen])
        if unseen:
            yield from hidden_owners.insert_rows([HiddenEntry(entries.board.key, entry) for entry in unseen])
        done.entries += len(seen)
        done.hidden_entries += len(unseen)
        for index in entries.board.sorted_indexes:
            counted[index] += sum(entry.cells[index] is not None for entry in seen)
    counted[ALL_ENTRIES] = done.entries - entries_before
    counted[CHANGES] += counted[ALL_ENTRIES]
    yield from add_totals({entries.board.key: counted})


def _pages(owners: Mapping[str, OwnerRow]) -> Iterator[list[tuple[str, OwnerRow]]]:
    # If rows come in the order of the table's key, the database fills pages one after the other and splits none.
    ordered = sorted(owners.items())
    for start in range(0, len(ordered), PAGE_ROWS):
        yield ordered[start : start + PAGE_ROWS]
