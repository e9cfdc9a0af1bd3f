"""The change log as the journal that callers read: numbered, in an order in which nothing ever appears below.

The rule: a number is published when every transaction before its own has ended. On PostgreSQL it is the transaction's
number and the place within it, so numbers grow and skip; on SQLite, where commits stand in line, the row's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from querybuilder import (
    Dialect,
    Select,
    all_of,
    any_of,
    asc,
    col,
    desc,
    lit,
    oldest_transaction,
    param,
    select,
)

from .change_log import Appended, change_log
from .journal_blocks import Stretch, blocks, may_hold
from .leaderboards import boards_by_key
from .migrate import CHANGE_LOG
from .posted import Happened, deleted_of, deleted_text, event_text, happened_of
from .records import INT64_MAX, Board, BoardSpec
from .store import Program, Row

PLACES = 1 << 20  # of one transaction; a request is one, and posts to at most a million boards
NAMELESS = "\x1f"  # begins what stands for an erased owner; no owner has a control character
_LAST_ROWS = 100  # of a board that is gone: the row that says so is among them


class JournalRow(NamedTuple):
    """One row of the log with its published number."""

    number: int
    board_key: int
    owner: str | None  # None: erased, or it is about the whole board
    at_us: int  # when it was accepted
    previous: str  # see `RankedCells`
    next: str
    detail: str | None  # see `posted`; None or "": nothing is said
    seq: int  # of two rows of an owner on a board the later one has the larger one


class Journal:
    """The statements, for one dialect; see `journal`."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect, self._in_order = dialect, not dialect.transaction
        self._log = change_log(dialect)
        position, place = self._log.position, lit(0) if self._in_order else col("place")
        names = ("board_key", "owner", "updated_at", "previous", "next", "detail", "seq")
        rows = select(position, place, *map(col, names)).from_(CHANGE_LOG)
        after, before = position.gt(param("position")), position.lt(param("position"))
        published = rows
        if not self._in_order:
            after = all_of(position.ge(param("position")), any_of(after, col("place").gt(param("place"))))
            before = all_of(position.le(param("position")), any_of(before, col("place").lt(param("place"))))
            published = rows.where(position.lt(oldest_transaction()))
        later = published.where(after)
        self._page = self._ordered(later).compile(dialect)
        self._of_boards = self._ordered(later.where(col("board_key").in_(param("boards")))).compile(dialect)
        stretch = (position.ge(param("first")), position.le(param("last")))
        theirs = published.where(*stretch, col("owner").eq(param("owner")), before)
        self._of_owner = self._ordered(theirs, newest_first=True).compile(dialect)
        last = rows.where(col("board_key").eq(param("board_key")))
        self._last_of_board = self._ordered(last, newest_first=True).compile(dialect)

    def _ordered(self, rows: Select, *, newest_first: bool = False) -> Select:
        way = desc if newest_first else asc
        order = (self._log.position,) if self._in_order else (self._log.position, col("seq"))
        return rows.order_by(*map(way, order)).limit(param("limit")).packed()

    def _bound(self, number: int) -> dict[str, object]:
        if self._in_order:
            return {"position": number}
        return dict(zip(("position", "place"), divmod(number, PLACES), strict=True))

    def _row(self, row: Row) -> JournalRow:
        position, place, board_key, owner, at_us, previous, following, detail, seq = row
        number = position if self._in_order else position * PLACES + place
        named = None if owner.startswith(NAMELESS) else owner or None
        return JournalRow(number, board_key, named, at_us, previous, following, detail, seq)

    def page(self, after: int, *, limit: int, boards: Sequence[int] | None = None) -> Program[list[JournalRow]]:
        """Published rows past a number, in their order; of these boards only, where they are given."""
        bound = self._bound(after) | {"limit": limit}
        rows = yield (self._page.bind(**bound) if boards is None else self._of_boards.bind(**bound, boards=boards))
        return [self._row(row) for row in rows]

    def of_owner(
        self, owner: str, *, before: int, limit: int, blocks_max: int
    ) -> Program[tuple[list[JournalRow], int | None]]:
        """An owner's published rows below a number, the newest first, and below which one there may be more.

        Fewer than `limit` are answered where `blocks_max` stretches of the journal were looked through.
        """
        index = blocks(self._dialect)
        covered = yield from index.covered()
        found: list[JournalRow] = []
        rows = yield from self._in_stretch(Stretch(covered + 1, INT64_MAX), owner, before, limit)
        found += rows
        at, looked_at = position_of(self._dialect, before), 0
        while len(found) < limit:
            page = yield from index.below(min(at + 1, INT64_MAX))
            if not page:
                return found, None
            for block in page:
                if looked_at == blocks_max:
                    return found, self._last_below(at + 1) + 1
                looked_at += 1
                at = block.stretch.first - 1
                if may_hold(block.filter, owner):
                    found += yield from self._in_stretch(block.stretch, owner, before, limit - len(found))
                    if len(found) == limit:
                        break
        return found, found[-1].number

    def _in_stretch(self, stretch: Stretch, owner: str, before: int, limit: int) -> Program[list[JournalRow]]:
        bound = self._bound(before) | {"first": stretch.first, "last": stretch.last}
        rows = yield self._of_owner.bind(**bound, owner=owner, limit=limit)
        return [self._row(row) for row in rows]

    def published(self) -> Program[int]:
        """Everything up to this number is published, whether a row has it or not."""
        horizon = yield from self._log.horizon()
        return self._last_below(horizon)

    def begins_after(self) -> Program[int]:
        """Everything past this number is there; 0: nothing was ever removed."""
        pruned = yield from self._log.pruned()
        return max(0, self._last_below(pruned))

    def _last_below(self, position: int) -> int:
        return (position if self._in_order else position * PLACES) - 1

    def oldest_us(self) -> Program[int | None]:
        """When the oldest row was accepted; None: there is none."""
        rows = yield self._page.bind(**self._bound(0), limit=1)
        return self._row(rows[0]).at_us if rows else None

    def boards(self, board_keys: Iterable[int]) -> Program[dict[int, Board]]:
        """The boards of rows, those included that are gone while the journal still tells of their end."""
        keys = sorted(set(board_keys))
        found = yield from boards_by_key(self._dialect, keys)
        for key in keys:
            if key in found:
                continue
            rows = yield self._last_of_board.bind(board_key=key, limit=_LAST_ROWS)
            for *_, detail, _ in rows:
                if detail and happened_of(detail) is Happened.DELETED:
                    board_id, spec = deleted_of(detail)
                    found[key] = Board(key, board_id, msgspec.convert(spec, BoardSpec), 0, 0)
        return found

    def log_reset(self, board: Board, now_us: int) -> Program[None]:
        """A board was emptied, in this transaction."""
        event = Appended(board.key, "", now_us, "", "", event_text(Happened.RESET))
        yield self._log.append([event])

    def log_deleted(self, board: Board, now_us: int) -> Program[None]:
        """A board was deleted, in this transaction; its rows stay readable."""
        event = Appended(board.key, "", now_us, "", "", deleted_text(board.id, board.spec))
        yield self._log.append([event])


def position_of(dialect: Dialect, number: int) -> int:
    """The position in the change log of the row with a published number."""
    return number // PLACES if dialect.transaction else number


@lru_cache
def journal(dialect: Dialect) -> Journal:
    """The journal's statements, compiled once."""
    return Journal(dialect)
