"""The journal: the change log as callers read it.

The number of a change combines the position of its bundle with its place in the bundle. So numbers have gaps. They are
in the order of the commits: once a reader has read a number, no change with a smaller number appears later.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from querybuilder import (
    TEXT,
    Select,
    any_of,
    asc,
    col,
    contains_text,
    desc,
    param,
    select,
)
from storage.boards.boards import find_boards_by_key
from storage.records import INT64_MAX, Board, BoardSpec
from storage.schema.tables import CHANGE_LOG
from storage.store import Program, Row

from .bundles import NAMELESS, PLACES, owners_of, owners_text, pieces_of
from .cells import Cell, RankedCells
from .change_log import POSITION, NewChange, change_log, count_rows_holding
from .log_record import ChangeKind, ChangeRecord, decode_records, record_of_deletion, record_of_event
from .owner_index import PositionRange, may_hold, owner_blocks

_LAST_BUNDLES = 100  # how many of a deleted board's newest bundles are searched for its deletion
_BUNDLES = 64  # bundles of an owner that are read at a time
_DELETED_A_STATEMENT = 1_000  # deleted boards that one statement logs, each with its spec
# A post sets the version of its row to the time of the post. Hiding and showing an owner keep the row's version, so the
# version does not tell the time of such a change.
_MOVED = (ChangeKind.HIDDEN, ChangeKind.SHOWN)
# Records of these kinds hold every cell, because `next` does not hold the ranked cells.
_WHOLE = (ChangeKind.UNSEEN, ChangeKind.HIDDEN)


class JournalRow(NamedTuple):
    number: int
    board_key: int
    owner: str | None  # None: the owner was erased, or the change affects the whole board
    at_us: int  # when the change was accepted
    previous: str  # the ranked cells before the change, see `RankedCells`
    next: str
    record: ChangeRecord | None  # None: the owner was erased
    logged_us: int  # when the transaction logged the change; also the time of a post that names no time


class Journal:
    """Programs that read the journal and log events of boards."""

    def __init__(self) -> None:
        names = ("position", "board_key", "updated_at", "owners", "cells", "posts")
        bundles = select(*map(col, names)).from_(CHANGE_LOG)
        beyond = (POSITION.gt(param("position")), col("changes").gt(param("next")))
        later = (POSITION.ge(param("position")), any_of(*beyond))
        of_boards = col("board_key").in_(param("boards"))
        sizes = select(col("changes")).from_(CHANGE_LOG)
        self._page, self._of_boards = (
            [self._ordered(rows.where(*later, *which)).prepared() for rows in (sizes, bundles)]
            for which in ((), (of_boards,))
        )
        stretch = (POSITION.ge(param("first")), POSITION.le(param("last")))
        theirs = bundles.where(*stretch, contains_text(col("owners"), param("owner", TEXT)))
        self._of_owner = self._ordered(theirs, newest_first=True).prepared()
        last = bundles.where(col("board_key").eq(param("board_key")))
        self._last_of_board = self._ordered(last, newest_first=True).prepared()
        # A text search for the board's id finds the deletion. A deletion is the only change of its bundle, and the
        # bundle holds the id unescaped.
        ends = select(col("board_key"), col("posts")).from_(CHANGE_LOG).where(POSITION.ge(param("position")))
        ends = ends.where(col("owners").eq(param("nobody")), contains_text(col("posts"), param("named", TEXT)))
        self._deleted = ends.packed().prepared()

    def _ordered(self, rows: Select, *, newest_first: bool = False) -> Select:
        return rows.order_by((desc if newest_first else asc)(POSITION)).limit(param("limit")).packed()

    def read_changes(self, after: int, *, limit: int, boards: Sequence[int] | None = None) -> Program[list[JournalRow]]:
        """Return changes with a number greater than `after`, in the order of their numbers.

        `boards`: only changes of boards with these keys.
        """
        rows = yield from self.read_bundles(after, limit=limit, boards=boards)
        return list(islice(changes_past(rows, after), limit))

    def read_bundles(self, after: int, *, limit: int, boards: Sequence[int] | None = None) -> Program[list[Row]]:
        """Return the bundles that hold the changes of `read_changes`. `changes_past` leaves out their other changes."""
        position, place = divmod(after, PLACES)
        bound: dict[str, object] = {"position": position, "next": place + 1}
        bound |= {} if boards is None else {"boards": boards}
        sized, read = self._page if boards is None else self._of_boards
        sizes = yield sized.bind(**bound, limit=limit)
        if not sizes:
            return []
        # The first bundle may also hold changes up to the number `after`, so one more bundle is read.
        return (yield read.bind(**bound, limit=count_rows_holding([*sizes[1:]], limit) + 1))

    def read_changes_of_owner(
        self, owner: str, *, before: int, limit: int, blocks_max: int
    ) -> Program[tuple[list[JournalRow], int | None]]:
        """Return an owner's changes with numbers below `before`, newest first, and the next `before` or None.

        One call searches at most `blocks_max` blocks of the journal. Therefore it may return fewer than `limit` changes
        even if there are more.
        """
        covered = yield from owner_blocks.find_covered_position()
        found = yield from self._in_stretch(PositionRange(covered + 1, INT64_MAX), owner, before, limit)
        at, looked_at = position_of(before), 0
        while len(found) < limit:
            page = yield from owner_blocks.list_blocks_below(min(at + 1, INT64_MAX))
            if not page:
                return found, None
            for block in page:
                if looked_at == blocks_max:
                    return found, self._last_below(at + 1) + 1
                looked_at += 1
                at = block.positions.first - 1
                if may_hold(block.filter, owner):
                    found += yield from self._in_stretch(block.positions, owner, before, limit - len(found))
                    if len(found) == limit:
                        break
        return found, found[-1].number

    def _in_stretch(self, stretch: PositionRange, owner: str, before: int, limit: int) -> Program[list[JournalRow]]:
        found: list[JournalRow] = []
        while len(found) < limit:
            rows = yield self._of_owner.bind(
                first=stretch.first,
                last=min(stretch.last, position_of(before - 1)),
                owner=owners_text([owner]),
                limit=min(limit, _BUNDLES),
            )
            for row in rows:
                theirs = [each for each in changes_of(row) if each.owner == owner and each.number < before]
                found += theirs[::-1]
            if len(rows) < min(limit, _BUNDLES):
                break
            before = rows[-1][0] * PLACES
        return found[:limit]

    def find_last_number(self) -> Program[int]:
        """Return the number of the last change in this snapshot, or a greater number that no change has."""
        return self._last_below((yield from change_log.take_mark()))

    def find_begin(self) -> Program[int]:
        """Return the number after which the journal is complete; 0 if no change was ever removed from it."""
        pruned = yield from change_log.find_pruned_position()
        return max(0, self._last_below(pruned))

    def _last_below(self, position: int) -> int:
        return position * PLACES - 1

    def oldest_us(self) -> Program[int | None]:
        rows = yield from self.read_changes(0, limit=1)
        return rows[0].at_us if rows else None

    def find_boards(self, board_keys: Iterable[int]) -> Program[dict[int, Board]]:
        """Return the boards with these keys. A deleted board is returned as long as the journal holds its deletion."""
        keys = sorted(set(board_keys))
        found = yield from find_boards_by_key(keys)
        for key in keys:
            if key in found:
                continue
            rows = yield self._last_of_board.bind(board_key=key, limit=_LAST_BUNDLES)
            found |= _find_deletions((key, row[-1]) for row in rows)
        return found

    def find_deleted_boards(self, board_id: str, *, since: int) -> Program[dict[int, Board]]:
        """Read all bundles from `since` on. Return by key the boards with this id that were deleted there."""
        named = f'"{board_id}"'
        rows = yield self._deleted.bind(position=position_of(since), nobody=owners_text([""]), named=named)
        return {key: board for key, board in _find_deletions(rows).items() if board.id == board_id}

    def log_reset(self, board: Board, now_us: int) -> Program[None]:
        event = NewChange(board.key, "", "", "", record_of_event(ChangeKind.RESET))
        yield from change_log.append_changes([event], now_us=now_us)

    def log_deleted(self, boards: Sequence[Board], now_us: int) -> Program[None]:
        """Log that this transaction deletes boards. Their earlier changes stay readable."""
        for start in range(0, len(boards), _DELETED_A_STATEMENT):
            some = boards[start : start + _DELETED_A_STATEMENT]
            events = [NewChange(board.key, "", "", "", record_of_deletion(board.id, board.spec)) for board in some]
            yield from change_log.append_changes(events, now_us=now_us)


def _find_deletions(bundles: Iterable[Sequence[Any]]) -> dict[int, Board]:
    """Return, by key, the boards that these bundles delete. A bundle is a pair of its `board_key` and `posts`."""
    return {
        key: Board(key, record.board_id or "", msgspec.convert(record.spec, BoardSpec), 0, 0)
        for key, posts in bundles
        for record in decode_records(posts)
        if record is not None and record.kind is ChangeKind.DELETED
    }


def changes_of(row: Row) -> Iterator[JournalRow]:
    """Yield the changes of a bundle from `Journal.read_bundles`, in the order in which they happened."""
    position, board_key, at_us, owners, pieces, posts = row
    changes = zip(owners_of(owners), pieces_of(pieces), decode_records(posts), strict=True)
    for index, (owner, piece, record) in enumerate(changes):
        named = None if owner.startswith(NAMELESS) else owner or None
        half, changed_us = len(piece) >> 1, at_us
        if record is not None and record.version is not None and record.kind not in _MOVED:
            changed_us = record.version
        cells = piece[:half], piece[half:]
        yield JournalRow(position * PLACES + index, board_key, named, changed_us, *cells, record, at_us)


def changes_past(rows: Iterable[Row], after: int) -> Iterator[JournalRow]:
    """Yield the changes of these bundles that have a number above `after`, in the order of their numbers."""
    return (each for row in rows for each in changes_of(row) if each.number > after)


def board_key_of(row: Row) -> int:
    """Return the board key of a bundle from `Journal.read_bundles`."""
    return int(row[1])


def position_of(number: int) -> int:
    """Return the log position of the change with this number."""
    return number // PLACES


class RowReader:
    """Decodes the cells that the entries of one board had after logged changes."""

    def __init__(self, board: Board) -> None:
        self._ranked = RankedCells(board.spec)
        self._columns = len(board.spec.columns)

    def cells_after(self, row: JournalRow, posted: ChangeRecord) -> list[Cell]:
        """Return the entry's cells after a change. Do not call this for a change of a kind in `NO_CHANGE`."""
        if posted.kind in _WHOLE:
            return [*posted.cells, *[None] * (self._columns - len(posted.cells))]
        cells: list[Cell] = [None] * self._columns
        for index, cell in zip(self._ranked.others, posted.cells, strict=False):
            cells[index] = cell
        for index in self._ranked.indexes:
            cells[index] = self._ranked.extract_cell(row.next, index)
        return cells


journal = Journal()
