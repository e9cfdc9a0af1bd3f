"""The change log as the journal that callers read: numbered, in an order in which nothing ever appears below.

The rule: a number is published when every transaction before its own has ended. It is the position of a bundle and a
place: within the transaction on PostgreSQL, within the bundle on SQLite, where commits stand in line. So numbers skip.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import msgspec

from querybuilder import (
    TEXT,
    Dialect,
    Select,
    all_of,
    any_of,
    asc,
    col,
    desc,
    holds,
    lit,
    oldest_transaction,
    param,
    plus,
    select,
)

from .bundles import NAMELESS, PLACES, owner_mark, owners_of, owners_text, pieces_of
from .change_log import Appended, change_log, rows_for
from .journal_blocks import Stretch, blocks, may_hold
from .leaderboards import boards_by_key
from .migrate import CHANGE_LOG
from .posted import Happened, Posted, posts_of, said_of_deleted, said_of_event
from .records import INT64_MAX, Board, BoardSpec
from .store import Program, Row

_LAST_BUNDLES = 100  # of a board that is gone: the one that says so is among them
_BUNDLES = 64  # of an owner, read at a time
_DELETED_A_STATEMENT = 1_000  # boards of a family, each with its specification
_MOVED = (Happened.HIDDEN, Happened.SHOWN)  # later than their row was written


class JournalRow(NamedTuple):
    """One change with its published number."""

    number: int
    board_key: int
    owner: str | None  # None: erased, or it is about the whole board
    at_us: int  # when it was accepted
    previous: str  # see `RankedCells`
    next: str
    posted: Posted | None  # None: erased
    order: int  # of two changes of an owner on a board the later one has the larger one
    logged_us: int  # when its transaction was logged: the time of a post that came without one


class Journal:
    """The statements, for one dialect; see `journal`."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect, self._in_order = dialect, not dialect.transaction
        self._log = change_log(dialect)
        position, place = self._log.position, lit(0) if self._in_order else col("place")
        names = ("seq", "board_key", "updated_at", "owners", "cells", "posts")
        bundles = select(position, place, *map(col, names)).from_(CHANGE_LOG)
        published = () if self._in_order else (position.lt(oldest_transaction()),)
        beyond = (position.gt(param("position")), plus(place, col("changes")).gt(param("next")))
        later = (position.ge(param("position")), any_of(*beyond))
        of_boards = col("board_key").in_(param("boards"))
        sizes = select(col("changes")).from_(CHANGE_LOG)
        self._page, self._of_boards, self._held = (
            [self._ordered(rows.where(*later, *which)).compile(dialect) for rows in (sizes, bundles)]
            for which in (published, (*published, of_boards), (of_boards,))
        )
        below = all_of(
            position.le(param("position")),
            any_of(position.lt(param("position")), place.lt(param("place"))),
        )
        stretch = (position.ge(param("first")), position.le(param("last")))
        theirs = bundles.where(*published, *stretch, holds(col("owners"), param("owner", TEXT)), below)
        self._of_owner = self._ordered(theirs, newest_first=True).compile(dialect)
        last = bundles.where(col("board_key").eq(param("board_key")))
        self._last_of_board = self._ordered(last, newest_first=True).compile(dialect)
        # A board that is deleted is the only change of its bundle, and its id stands in the text as it is.
        ends = select(col("board_key"), col("posts")).from_(CHANGE_LOG).where(position.ge(param("position")))
        ends = ends.where(col("owners").eq(param("nobody")), holds(col("posts"), param("named", TEXT)))
        self._deleted = ends.packed().compile(dialect)

    def _ordered(self, rows: Select, *, newest_first: bool = False) -> Select:
        way = desc if newest_first else asc
        order = (self._log.position,) if self._in_order else (self._log.position, col("seq"))
        return rows.order_by(*map(way, order)).limit(param("limit")).packed()

    def page(
        self, after: int, *, limit: int, boards: Sequence[int] | None = None, held: bool = False
    ) -> Program[list[JournalRow]]:
        """Published changes past a number, in their order; of these boards only, where they are given.

        `held`: all changes, of boards that nobody else can change before this transaction ends.
        """
        rows = yield from self.bundles(after, limit=limit, boards=boards, held=held)
        return list(islice(changes_past(rows, after), limit))

    def bundles(
        self, after: int, *, limit: int, boards: Sequence[int] | None = None, held: bool = False
    ) -> Program[list[Row]]:
        """The rows of `page` as they are stored, for `changes_past`; they may hold more changes than `limit`."""
        position, place = divmod(after, PLACES)
        bound: dict[str, object] = {"position": position, "next": place + 1}
        bound |= {} if boards is None else {"boards": boards}
        sized, read = self._page if boards is None else self._held if held else self._of_boards
        sizes = yield sized.bind(**bound, limit=limit)
        if not sizes:
            return []
        # Of the first one some changes may be below.
        return (yield read.bind(**bound, limit=rows_for([*sizes[1:]], limit) + 1))

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
        at, looked_at = position_of(before), 0
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
        found: list[JournalRow] = []
        while len(found) < limit:
            position, place = divmod(before, PLACES)
            rows = yield self._of_owner.bind(
                first=stretch.first,
                last=stretch.last,
                position=position,
                place=place,
                owner=owner_mark(owner),
                limit=min(limit, _BUNDLES),
            )
            for row in rows:
                theirs = [each for each in changes_of(row) if each.owner == owner and each.number < before]
                found += theirs[::-1]
            if len(rows) < min(limit, _BUNDLES):
                break
            before = rows[-1][0] * PLACES + rows[-1][1]
        return found[:limit]

    def published(self) -> Program[int]:
        """Everything up to this number is published, whether a row has it or not."""
        horizon = yield from self._log.horizon()
        return self._last_below(horizon)

    def begins_after(self) -> Program[int]:
        """Everything past this number is there; 0: nothing was ever removed."""
        pruned = yield from self._log.pruned()
        return max(0, self._last_below(pruned))

    def _last_below(self, position: int) -> int:
        return position * PLACES - 1

    def oldest_us(self) -> Program[int | None]:
        """When the oldest row was accepted; None: there is none."""
        rows = yield from self.page(0, limit=1)
        return rows[0].at_us if rows else None

    def boards(self, board_keys: Iterable[int]) -> Program[dict[int, Board]]:
        """The boards of rows, those included that are gone while the journal still tells of their end."""
        keys = sorted(set(board_keys))
        found = yield from boards_by_key(self._dialect, keys)
        for key in keys:
            if key in found:
                continue
            rows = yield self._last_of_board.bind(board_key=key, limit=_LAST_BUNDLES)
            for said in (posted for row in rows for posted in posts_of(row[-1]) if posted is not None):
                if said.happened is Happened.DELETED:
                    found[key] = _deleted_board(key, said)
        return found

    def deleted_boards(self, board_id: str, *, since: int) -> Program[dict[int, Board]]:
        """The boards of an id that were deleted at or after a number, by key; reads every bundle from there on."""
        named = f'"{board_id}"'
        rows = yield self._deleted.bind(position=position_of(since), nobody=owners_text([""]), named=named)
        said = [(board_key, posted) for board_key, posts in rows for posted in posts_of(posts) if posted is not None]
        return {
            board_key: _deleted_board(board_key, posted)
            for board_key, posted in said
            if posted.happened is Happened.DELETED and posted.board_id == board_id
        }

    def log_reset(self, board: Board, now_us: int) -> Program[None]:
        """A board was emptied, in this transaction."""
        event = Appended(board.key, "", "", "", said_of_event(Happened.RESET))
        yield self._log.append([event], now_us=now_us)

    def log_deleted(self, boards: Sequence[Board], now_us: int) -> Program[None]:
        """Boards were deleted, in this transaction; their rows stay readable."""
        for start in range(0, len(boards), _DELETED_A_STATEMENT):
            some = boards[start : start + _DELETED_A_STATEMENT]
            events = [Appended(board.key, "", "", "", said_of_deleted(board.id, board.spec)) for board in some]
            yield self._log.append(events, now_us=now_us, place=start)


def _deleted_board(board_key: int, said: Posted) -> Board:
    return Board(board_key, said.board_id or "", msgspec.convert(said.spec, BoardSpec), 0, 0)


def changes_of(row: Row) -> Iterator[JournalRow]:
    """The changes of a bundle as it is read here, in the order in which they happened."""
    position, place, seq, board_key, at_us, owners, pieces, posts = row
    first, order = position * PLACES + place, seq * PLACES
    told = zip(owners_of(owners), pieces_of(pieces), posts_of(posts), strict=True)
    for index, (owner, piece, posted) in enumerate(told):
        named = None if owner.startswith(NAMELESS) else owner or None
        half, changed_us = len(piece) >> 1, at_us
        if posted is not None and posted.version is not None and posted.happened not in _MOVED:
            changed_us = posted.version
        cells = piece[:half], piece[half:]
        yield JournalRow(first + index, board_key, named, changed_us, *cells, posted, order + index, at_us)


def changes_past(rows: Iterable[Row], after: int) -> Iterator[JournalRow]:
    """The changes of bundles past a number, in the order in which they happened."""
    return (each for row in rows for each in changes_of(row) if each.number > after)


def board_key_of(row: Row) -> int:
    """The board of a bundle as it is read here."""
    return int(row[3])


def position_of(number: int) -> int:
    """The position in the change log of the change with a published number."""
    return number // PLACES


@lru_cache
def journal(dialect: Dialect) -> Journal:
    """The journal's statements, compiled once."""
    return Journal(dialect)
