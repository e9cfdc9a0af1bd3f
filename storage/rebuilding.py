"""A board made anew from the journal: its rows as the last post of each owner left them.

The rule: all or nothing, in one transaction that nobody posts to the board beside. Post ids, the journal and the
board's epoch stay, so a retry is a duplicate as before; curves go, and the next refresh makes new ones.

This reads what was posted since the board was created or reset. `replaying` starts from a number of the journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from querybuilder import Dialect, Lock

from .entries import Entries, add_totals
from .errors import Archived, JournalIncomplete, NothingReplayed
from .hidden import HiddenEntry, hidden
from .journal import JournalRow, journal
from .journal_rows import RowReader
from .leaderboards import ALL_ENTRIES, CHANGES, count_entries, existing, remove_rows, with_state
from .merging import Cell
from .posted import NO_CHANGE, Happened, Posted
from .records import Board, Entry
from .store import Program

PAGE_ROWS = 5_000
CLOCKS_APART_US = 600_000_000  # how far the clocks of processes may differ, generously
_SEEN = (Happened.APPLIED, Happened.SHOWN)
_UNSEEN = (Happened.UNSEEN, Happened.HIDDEN)


@dataclass(slots=True)
class Rebuilt:
    """What was done."""

    rows: int = 0  # of the journal that were read
    replayed: int = 0  # of them, those that the rows are made from
    rejected: int = 0  # of them, those that would leave the range of a column
    duplicates: int = 0  # of them, those whose post id came before
    entries: int = 0  # that the board has now
    hidden: int = 0  # entries that it has and does not show
    entries_before: int = 0


class OwnerRow(NamedTuple):
    """What the journal last said of an owner; `cells` None: erased."""

    order: int
    updated_at_us: int
    cells: list[Cell] | None
    hidden: bool


_ERASED = (0, None, False)


def rebuild_board(dialect: Dialect, *, board_id: str) -> Program[Rebuilt]:
    """Make the board's rows anew; memory grows with its owners.

    Raises:
        UnknownBoard: there is none.
        JournalIncomplete: the journal starts too late.
        NothingReplayed: it has no post to the board.
        Archived: its rows are gone on purpose.
    """
    board, done, changes = yield from take_rows_away(dialect, board_id)
    owners = yield from _owners(dialect, board, done)
    if not done.replayed:
        raise NothingReplayed((yield from _where_posts_are(dialect, board)))
    yield from store_rows(Entries(dialect, board), owners, changes, done)
    yield from with_state(dialect, board)
    return done


def take_rows_away(dialect: Dialect, board_id: str) -> Program[tuple[Board, Rebuilt, int]]:
    """Empty a board, so that nobody posts to it until this transaction ends; with its number of changes.

    Raises:
        UnknownBoard: there is none.
        Archived: its rows are gone on purpose.
    """
    board = yield from existing(dialect, board_id, lock=Lock.UPDATE)
    if board.archived_us is not None:
        raise Archived(f"the leaderboard {board_id!r} was archived: it has no rows any more")
    totals = (yield from count_entries(dialect, [board.key]))[board.key]
    done = Rebuilt(entries_before=totals.get(ALL_ENTRIES, 0))
    return (yield from remove_rows(dialect, board)), done, totals.get(CHANGES, 0)


def _owners(dialect: Dialect, board: Board, done: Rebuilt) -> Program[dict[str, OwnerRow]]:
    log, reader = journal(dialect), RowReader(board)
    owners: dict[str, OwnerRow] = {}
    emptied = after = 0
    while True:
        rows = yield from log.page(after, limit=PAGE_ROWS, boards=[board.key], held=True)
        done.rows += len(rows)
        for row in rows:
            if row.posted is None or row.order < emptied:
                continue
            if row.posted.happened is Happened.RESET:
                emptied, done.replayed = row.order, 0
            elif row.owner is not None and row.posted.happened not in NO_CHANGE:
                done.replayed += 1
                known = owners.get(row.owner)
                if known is None or known.order < row.order:
                    owners[row.owner] = _last(row, row.posted, reader)
        if len(rows) < PAGE_ROWS:
            break
        after = rows[-1].number
    if not emptied:
        yield from _check_start(dialect, board)
    return {owner: last for owner, last in owners.items() if last.order > emptied}


def _last(row: JournalRow, posted: Posted, reader: RowReader) -> OwnerRow:
    if posted.happened not in _SEEN and posted.happened not in _UNSEEN:
        return OwnerRow(row.order, *_ERASED)
    version = row.at_us if posted.version is None else posted.version
    return OwnerRow(row.order, version, reader.cells_after(row, posted), posted.happened in _UNSEEN)


def _check_start(dialect: Dialect, board: Board) -> Program[None]:
    """Raises JournalIncomplete where rows of the board may have been removed from the journal."""
    begins_after = yield from journal(dialect).begins_after()
    if not begins_after:
        return
    oldest_us = yield from journal(dialect).oldest_us()
    if oldest_us is None or board.created_at_us < oldest_us + CLOCKS_APART_US:
        detail = f"the journal begins after {begins_after}, and {board.id!r} is older: what was posted before is gone"
        raise JournalIncomplete(detail + "; keep it longer with change_log_retention_s")


def _where_posts_are(dialect: Dialect, board: Board) -> Program[str]:
    """Say that nothing was posted to a board, and where the posts to earlier boards of its name begin."""
    log, nothing = journal(dialect), f"the journal has no post to {board.id!r} since it was created or reset"
    earlier = yield from log.deleted_boards(board.id, since=0)
    rows = yield from log.page(0, limit=1, boards=[board.key, *earlier], held=True)
    return f"{nothing}; what was posted before begins at --since {rows[0].number}" if rows else nothing


def store_rows(entries: Entries, owners: Mapping[str, OwnerRow], changes: int, done: Rebuilt) -> Program[None]:
    """Insert the rows of an empty board with their totals; `changes`: how many changes the board has had."""
    counted = {ALL_ENTRIES: 0, CHANGES: changes + 1, **dict.fromkeys(entries.pattern.sorted_indexes, 0)}
    for page in _pages(owners):
        seen = [Entry(owner, last.updated_at_us, last.cells) for owner, last in page if last.cells and not last.hidden]
        unseen = [Entry(owner, last.updated_at_us, last.cells) for owner, last in page if last.cells and last.hidden]
        if seen:
            yield entries.writes.insert_new([(entries.board.rows_key, entry) for entry in seen])
        if unseen:
            yield hidden(entries.dialect).insert_new([HiddenEntry(entries.board.key, entry) for entry in unseen])
        done.entries += len(seen)
        done.hidden += len(unseen)
        for index in entries.pattern.sorted_indexes:
            counted[index] += sum(entry.cells[index] is not None for entry in seen)
    counted[ALL_ENTRIES] = done.entries
    counted[CHANGES] += done.entries
    yield add_totals(entries.dialect, {entries.board.key: counted})


def _pages(owners: Mapping[str, OwnerRow]) -> Iterator[list[tuple[str, OwnerRow]]]:
    ordered = sorted(owners.items())  # the order of the table: pages are filled, not split
    for start in range(0, len(ordered), PAGE_ROWS):
        yield ordered[start : start + PAGE_ROWS]
