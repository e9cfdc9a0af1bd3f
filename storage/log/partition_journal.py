"""Presents a partition's change log as readers see it: numbered changes, in commit order.

A change's number combines the position of its bundle with the change's index in the bundle, so there are gaps between
numbers. Once a reader has read a number, no change with a smaller number appears in the partition later.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from querybuilder import TEXT, Select, col, contains_text, desc, param, select
from storage.records import INT64_MAX, SEGMENT_SIGN, BoardSpec, Leaf, Place
from storage.schema.tables import CHANGE_LOG
from storage.store import Program, Row

from .bundles import (
    MERGES,
    NAMELESS,
    PLACES,
    ChangeKind,
    ChangeRecord,
    decode_record,
    decode_records,
    owners_of,
    owners_text,
    pieces_of,
    split_records,
)
from .cells import Cell, RankedCells
from .change_log import OF_ENTRIES, POSITION, LogPages, change_log, count_rows_holding, last_number_before
from .owner_index import PositionRange, may_hold, owner_blocks

_LAST_BUNDLES = 100  # `find_deletion` searches at most this many of the newest bundles of a leaf
_APART_US = 30_000_000  # the times of bundles may be out of order by this much, because clocks differ
_OWNER_PAGE_CHANGES = 20_000  # bundles of an owner that are read at a time hold about this many changes, of all owners
# A post sets the version of its row to the time of the post. Hiding or showing an owner keeps the row's version, so the
# version does not tell when such a change was made.
_KEEPING_VERSION = (ChangeKind.HIDDEN, ChangeKind.SHOWN)
# Records of these kinds hold every cell, because `JournalRow.next` has no ranked cells after such a change.
_WHOLE = (ChangeKind.UNSEEN, ChangeKind.FIRST_UNSEEN, ChangeKind.HIDDEN, ChangeKind.VOIDED, *MERGES)


class JournalRow(NamedTuple):
    number: int
    leaf_key: int
    owner: str | None  # None: the owner was erased, or the change affects the whole board
    at_us: int  # when the change was accepted
    previous: str  # the ranked cells before the change, see `RankedCells`
    next: str  # the ranked cells after the change
    record: ChangeRecord | None  # None: the owner was erased
    logged_us: int  # when the transaction logged the change; also the time of a post that names no time

    @property
    def kind(self) -> ChangeKind | None:
        return None if self.record is None else self.record.kind


def read_changes_of_owners(
    owners: Sequence[str], *, before: int, limit: int, blocks_max: int
) -> Program[tuple[list[JournalRow], int | None]]:
    found: list[JournalRow] = []
    reached = 0  # the search for an owner may have ended here, so older changes come in the next call
    for owner in owners:
        theirs, more = yield from read_changes_of_owner(
            owner, before=before, limit=limit, blocks_max=max(1, blocks_max // len(owners))
        )
        found, reached = found + theirs, max(reached, more or 0)
    found = sorted((row for row in found if row.number >= reached), key=itemgetter(0), reverse=True)[:limit]
    return found, found[-1].number if len(found) == limit else reached or None


def read_changes_of_owner(
    owner: str, *, before: int, limit: int, blocks_max: int
) -> Program[tuple[list[JournalRow], int | None]]:
    """Read an owner's changes with numbers below `before`, newest first, and the `before` to pass to the next call.

    The returned `before` is None if there are no earlier changes. One call searches at most `blocks_max` blocks of the
    journal, so it may return fewer than `limit` changes even if there are more.
    """
    covered = yield from owner_blocks.find_covered_position()
    found = yield from _read_stretch(PositionRange(covered + 1, INT64_MAX), owner, before, limit)
    at, looked_at = position_of(before - 1), 0
    while len(found) < limit:
        page = yield from owner_blocks.list_blocks_below(min(at + 1, INT64_MAX))
        if not page:
            return found, None
        page = page[: blocks_max - looked_at]
        if not page:
            return found, last_number_before(at + 1) + 1
        looked_at += len(page)
        at = page[-1].positions.first - 1
        for stretch in _join_neighbours(block.positions for block in page if may_hold(block.filter, owner)):
            if len(found) < limit:
                found += yield from _read_stretch(stretch, owner, before, limit - len(found))
    return found, found[-1].number


def _join_neighbours(newest_first: Iterable[PositionRange]) -> list[PositionRange]:
    """Join positions into as few ranges as possible, because each range costs a statement."""
    joined: list[PositionRange] = []
    for stretch in newest_first:
        if joined and joined[-1].first == stretch.last + 1:
            joined[-1] = PositionRange(stretch.first, joined[-1].last)
        else:
            joined.append(stretch)
    return joined


def _read_stretch(stretch: PositionRange, owner: str, before: int, limit: int) -> Program[list[JournalRow]]:
    """Read up to `limit` changes of an owner, newest first. Search for the name before reading whole bundles."""
    found: list[JournalRow] = []
    while len(found) < limit:
        last = min(stretch.last, position_of(before - 1))
        sizes = yield _OF_OWNER.bind(first=stretch.first, last=last, owner=owners_text([owner]), limit=limit)
        start = 0
        while start < len(sizes) and len(found) < limit:
            rest = sizes[start:]
            page = rest[: count_rows_holding([row[1:] for row in rest], _OWNER_PAGE_CHANGES)]
            start += len(page)
            rows = yield _AT_POSITIONS.bind(positions=[position for position, _ in page])
            for row in sorted(rows, key=itemgetter(0), reverse=True):
                theirs = [each for each in changes_of_owner(row, owner) if each.number < before]
                found += theirs[::-1]
        if len(sizes) < limit:
            break
        before = sizes[-1][0] * PLACES
    return found[:limit]


def find_ends() -> Program[tuple[int, int]]:
    """Return the two numbers between which the journal is complete: it starts after the first and ends at the second.

    The first number is 0 if no change was removed. The second may be greater than the number of the last change.
    """
    log = yield from change_log.read_counter()
    return max(0, last_number_before(log.pruned_before)), last_number_before(log.mark)


def find_deletion(leaf_key: int) -> Program[dict[int, Leaf]]:
    """Find the deleted leaf with this key, as {key: leaf}. Return {} if the key's newest bundles hold no deletion."""
    rows = yield _LAST_OF_BOARD.bind(leaf_key=leaf_key, limit=_LAST_BUNDLES)
    return _find_deletions((leaf_key, row[-1]) for row in rows)


def find_deleted_leaves(board_id: str, *, since: int) -> Program[dict[int, Leaf]]:
    """Find, by key, the leaves of boards with this id whose deletion was logged at the number `since` or later."""
    named = f'"{board_id}'  # no quote at the end, because a segment has its number after the id
    rows = yield _DELETED.bind(position=position_of(since), nobody=owners_text([""]), named=named)
    return {key: leaf for key, leaf in _find_deletions(rows).items() if leaf.id == board_id}


def find_voidings(leaf_keys: Sequence[int], *, after: int) -> Program[list[JournalRow]]:
    """Find the changes after this number that void posts to these leaves. This reads all their changes."""
    bundles = yield _VOIDINGS.bind(boards=leaf_keys, position=position_of(after), named=f'["{ChangeKind.VOIDED}"')
    changes = (change for bundle in bundles for change in changes_of(bundle) if change.number > after)
    return [each for each in changes if each.kind is ChangeKind.VOIDED]


def find_owners(post_id: str, leaf_keys: Sequence[int], times_us: Iterable[int]) -> Program[set[str]]:
    """Find the owners of the posts with this post id that were logged at `times_us`, leaving out erased owners."""
    owners: set[str] = set()
    named, times = msgspec.json.encode(post_id).decode(), sorted(set(times_us))
    bounds = yield from change_log.find_positions([at + off for at in times for off in (-_APART_US, _APART_US)])
    for at_us, first, beyond in zip(times, bounds[::2], bounds[1::2], strict=True):
        bound = {"boards": leaf_keys, "first": first, "beyond": beyond, "at_us": at_us, "named": named}
        changes = (change for row in (yield _WITH_ID.bind(**bound)) for change in changes_of(row))
        posts = (change for change in changes if change.record is not None and change.record.post_id == post_id)
        owners |= {change.owner for change in posts if change.owner is not None}
    return owners


def _find_deletions(bundles: Iterable[Sequence[Any]]) -> dict[int, Leaf]:
    deleted = {}
    for key, posts in bundles:
        for record in decode_records(posts):
            if record is not None and record.kind is ChangeKind.DELETED:
                board_id, _, segment = (record.board_id or "").partition(SEGMENT_SIGN)
                spec = msgspec.convert(record.spec, BoardSpec)
                deleted[key] = Leaf(key, board_id, spec, Place(0), segment=int(segment or 0))
    return deleted


def changes_of(row: Row) -> Iterator[JournalRow]:
    _, _, _, owners, pieces, posts = row
    changes = zip(owners_of(owners), pieces_of(pieces), decode_records(posts), strict=True)
    for index, (owner, piece, record) in enumerate(changes):
        yield _make_change(row, index, owner, piece, record)


def changes_of_owner(row: Row, owner: str) -> Iterator[JournalRow]:
    """Yield one owner's changes in a bundle. No other records are decoded, so this takes a tenth of the time."""
    _, _, _, owners, pieces, posts = row
    cells, records = pieces_of(pieces), split_records(posts)
    for index, name in enumerate(owners_of(owners)):
        if name == owner:
            yield _make_change(row, index, owner, cells[index], decode_record(records[index]))


def _make_change(row: Row, index: int, owner: str, piece: str, record: ChangeRecord | None) -> JournalRow:
    position, leaf_key, at_us = row[:3]
    if leaf_key is None and record is not None:
        leaf_key = record.leaf_key
    named = None if owner.startswith(NAMELESS) else owner or None
    half, changed_us = len(piece) >> 1, at_us
    if record is not None and record.version is not None and record.kind not in _KEEPING_VERSION:
        changed_us = record.version
    cells = piece[:half], piece[half:]
    return JournalRow(position * PLACES + index, leaf_key, named, changed_us, *cells, record, at_us)


def leaf_key_of(row: Row) -> int:
    return int(row[1])


def position_of(number: int) -> int:
    return number // PLACES


class RowReader:
    """Decodes the cells that a leaf's entries had after each logged change."""

    def __init__(self, leaf: Leaf) -> None:
        self._ranked = RankedCells(leaf.spec)
        self._columns = len(leaf.spec.columns)

    def cells_after(self, row: JournalRow, posted: ChangeRecord) -> list[Cell]:
        """Decode the entry's cells after a change. Do not call this for the kinds of changes in `NO_CHANGE`."""
        if posted.kind in _WHOLE:
            return [*posted.cells, *[None] * (self._columns - len(posted.cells))]
        cells: list[Cell] = [None] * self._columns
        for index, cell in zip(self._ranked.others, posted.cells, strict=False):
            cells[index] = cell
        for index in self._ranked.indexes:
            cells[index] = self._ranked.extract_cell(row.next, index)
        return cells


def _newest_first(rows: Select) -> Select:
    return rows.order_by(desc(POSITION)).limit(param("limit")).packed()


COLUMNS = ("position", "leaf_key", "updated_at", "owners", "cells", "posts")  # of a row for `changes_of`
JOURNAL_PAGES = LogPages(*COLUMNS, where=OF_ENTRIES)
_bundles = select(*map(col, COLUMNS)).from_(CHANGE_LOG)
_of_boards = col("leaf_key").in_(param("boards"))
_stretch = (POSITION.ge(param("first")), POSITION.le(param("last")), contains_text(col("owners"), param("owner", TEXT)))
_owners_sizes = select(POSITION, col("changes")).from_(CHANGE_LOG).where(*_stretch)
_OF_OWNER = _newest_first(_owners_sizes).prepared()
_AT_POSITIONS = _bundles.where(POSITION.in_(param("positions"))).packed().prepared()
_LAST_OF_BOARD = _newest_first(_bundles.where(col("leaf_key").eq(param("leaf_key")))).prepared()
# A text search for the board's id finds the deletion, because a deletion is the only change in its bundle, and the
# bundle holds the id unescaped.
_named = contains_text(col("posts"), param("named", TEXT))
_ends = select(col("leaf_key"), col("posts")).from_(CHANGE_LOG).where(POSITION.ge(param("position")))
_DELETED = _ends.where(col("owners").eq(param("nobody")), _named).packed().prepared()
_VOIDINGS = _bundles.where(_of_boards, POSITION.ge(param("position")), _named).packed().prepared()
_near = (POSITION.ge(param("first")), POSITION.lt(param("beyond")), col("updated_at").eq(param("at_us")))
_WITH_ID = _bundles.where(_of_boards, *_near, _named).packed().prepared()
