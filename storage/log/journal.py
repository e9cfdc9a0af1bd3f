"""The journal: the change logs of all partitions as callers read them.

The number of a change combines the position of its bundle with its place in the bundle. So numbers have gaps. Those of
one partition are in the order of its commits: once a reader has read a number there, no change with a smaller number
appears in that partition later.

A page merges the partitions by the time at which changes were logged. So the place of a reader is a number for each
partition.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, NamedTuple

import msgspec

from querybuilder import TEXT, Select, any_of, asc, col, contains_text, desc, param, select
from storage.boards.boards import SEGMENT_SIGN, WHOLE, find_boards_by_key
from storage.records import INT64_MAX, Board, BoardSpec, by_partition
from storage.schema.creation import count_partitions, in_each_partition
from storage.schema.tables import CHANGE_LOG
from storage.store import Program, Row, in_partition

from .bundles import NAMELESS, PLACES, owners_of, owners_text, pieces_of
from .cells import Cell, RankedCells
from .change_log import POSITION, PRUNED_BEFORE, NewChange, change_log
from .log_record import ChangeKind, ChangeRecord, decode_records, record_of_deletion, record_of_event
from .owner_index import PositionRange, may_hold, owner_blocks

_LAST_BUNDLES = 100  # how many of a deleted board's newest bundles are searched for its deletion
_APART_US = 30_000_000  # neighbours in the log may have times that differ by this much, since clocks differ
_BUNDLES = 64  # bundles of an owner that are read at a time
_DELETED_A_STATEMENT = 1_000  # deleted boards that one statement logs, each with its spec
# A number of each partition, in their order. A partition that is left out has the number 0.
Numbers = tuple[int, ...]
# A post sets the version of its row to the time of the post. Hiding and showing an owner keep the row's version, so the
# version does not tell the time of such a change.
_KEEPING_VERSION = (ChangeKind.HIDDEN, ChangeKind.SHOWN)
# What happens to a whole board, and so to each of its segments.
_OF_WHOLE_BOARD = (ChangeKind.RESET, ChangeKind.DELETED, ChangeKind.MOVED)
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


class _Size(NamedTuple):
    """The size and position of a bundle, known before the bundle is read."""

    position: int
    changes: int
    logged_us: int
    pruned_before: int


class _Sizes(NamedTuple):
    """The sizes of the next bundles of a partition; `skipped` is how many changes of the first come before the page."""

    rows: list[_Size]
    skipped: int

    def sized(self) -> Iterator[tuple[int, int]]:
        """Yield the time at which each bundle was logged, and how many of its changes the page may show.

        The clocks of writers differ, so a later bundle may have an earlier time. It gets the time of its predecessor.
        """
        counts = [row.changes - (0 if index else self.skipped) for index, row in enumerate(self.rows)]
        return zip(accumulate((row.logged_us for row in self.rows), max), counts, strict=True)


@dataclass(frozen=True, slots=True)
class JournalPage:
    after: Numbers  # the page begins after these numbers
    begins_after: Numbers  # where earlier changes were removed from each partition; only of a page with all boards
    bundles: list[tuple[int, Row]]  # each with its partition, in the order of the page
    limit: int

    def list_changes(self) -> Iterator[tuple[Numbers, JournalRow]]:
        """Yield the changes of the page, each with the numbers after which a reader continues."""
        return islice(self._list_changes(), self.limit)

    def _list_changes(self) -> Iterator[tuple[Numbers, JournalRow]]:
        numbers = [*self.after]
        for partition, bundle in self.bundles:
            for change in changes_of(bundle):
                if change.number > numbers[partition]:
                    numbers[partition] = change.number
                    yield tuple(numbers), change

    def find_lost(self, after: Numbers) -> tuple[int, int] | None:
        """Return the number of a reader and the later begin of the journal in the first partition that has one.

        Between the two, changes were removed that the reader has not seen.
        """
        pairs = zip(padded(after, len(self.begins_after)), self.begins_after, strict=True)
        return next(((number, begin) for number, begin in pairs if number < begin), None)


class Journal:
    """Programs that read the journal and log events of boards."""

    def __init__(self) -> None:
        names = ("position", "board_key", "updated_at", "owners", "cells", "posts")
        bundles = select(*map(col, names)).from_(CHANGE_LOG)
        beyond = (POSITION.gt(param("position")), col("changes").gt(param("next")))
        later = (POSITION.ge(param("position")), any_of(*beyond))
        of_boards = col("board_key").in_(param("boards"))
        sizes = select(POSITION, col("changes"), col("updated_at"), PRUNED_BEFORE.scalar()).from_(CHANGE_LOG)
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
        near = (POSITION.ge(param("first")), POSITION.lt(param("beyond")), col("updated_at").eq(param("at_us")))
        with_id = bundles.where(of_boards, *near, contains_text(col("posts"), param("named", TEXT)))
        self._with_id = with_id.packed().prepared()

    def _ordered(self, rows: Select, *, newest_first: bool = False) -> Select:
        return rows.order_by((desc if newest_first else asc)(POSITION)).limit(param("limit")).packed()

    def read_changes(self, after: int, *, limit: int, boards: Sequence[int] | None = None) -> Program[list[JournalRow]]:
        """Return changes of a partition with a number greater than `after`, in the order of their numbers.

        `boards`: only changes of boards with these keys.
        """
        sizes = yield from self._read_sizes(after, limit, boards)
        rows = yield from self._read_bundles(after, len(_choose_bundles({0: sizes}, limit)), boards)
        changes = (each for row in rows for each in changes_of(row) if each.number > after)
        return list(islice(changes, limit))

    def read_page(
        self, after: Numbers, *, limit: int, partitions: Sequence[int], boards: Sequence[int] | None = None
    ) -> Program[JournalPage]:
        """Return at most `limit` changes of these partitions with greater numbers than `after`, the oldest first.

        `boards`: only changes of boards with these keys.
        """
        start = [*padded(after, max(partitions, default=0) + 1)]
        begins = [0] * len(start)
        sizes: dict[int, _Sizes] = {}
        for partition in partitions:
            found = yield from in_partition(partition, self._read_sizes(start[partition], limit, boards))
            sizes[partition] = found
            # The last bundle is never removed. So if nothing follows the reader's number, the reader missed nothing.
            if found.rows:
                begins[partition] = max(0, self._last_below(found.rows[0].pruned_before))
        chosen = _choose_bundles(sizes, limit)
        bundles: dict[int, Iterator[Row]] = {}
        for partition, count in Counter(chosen).items():
            read = self._read_bundles(start[partition], count, boards)
            bundles[partition] = iter((yield from in_partition(partition, read)))
        merged = [(partition, next(bundles[partition])) for partition in chosen]
        return JournalPage(tuple(map(max, start, begins)), tuple(begins), merged, limit)

    def _read_sizes(self, after: int, limit: int, boards: Sequence[int] | None) -> Program[_Sizes]:
        sized = (self._page if boards is None else self._of_boards)[0]
        rows = [_Size(*row) for row in (yield sized.bind(**_bound(after, boards), limit=limit))]
        position, place = divmod(after, PLACES)
        return _Sizes(rows, place + 1 if rows and rows[0].position == position else 0)

    def _read_bundles(self, after: int, count: int, boards: Sequence[int] | None) -> Program[list[Row]]:
        if not count:
            return []
        read = (self._page if boards is None else self._of_boards)[1]
        return (yield read.bind(**_bound(after, boards), limit=count))

    def find_partitions_of(self, boards: Sequence[int], after: Numbers) -> Program[list[int]]:
        """Return the partitions that hold changes of boards with these keys after these numbers."""
        found: list[int] = []
        for partition, number in enumerate(padded(after, (yield from count_partitions()))):
            if (yield from in_partition(partition, self._read_sizes(number, 1, boards))).rows:
                found.append(partition)
        return found

    def read_posts_of_owner(
        self, owner: str, *, before: Numbers | None, limit: int, blocks_max: int, partitions: int
    ) -> Program[tuple[list[tuple[int, JournalRow]], Numbers | None]]:
        """Return an owner's changes in all partitions, newest first, each with its partition, and the next `before`.

        `before`: only changes with smaller numbers; None: all. `blocks_max` bounds the search as in
        `read_changes_of_owner`. If the search ends at that bound, the next page may have some newer changes.
        """
        numbers = (INT64_MAX,) * partitions if before is None else padded(before, partitions)
        found: list[list[JournalRow]] = []
        following = [*numbers]
        for partition, number in enumerate(numbers):
            rows: list[JournalRow] = []
            if number:
                read = self.read_changes_of_owner(
                    owner, before=number, limit=limit, blocks_max=max(1, blocks_max // partitions)
                )
                rows, more = yield from in_partition(partition, read)
                following[partition] = more or 0
            found.append(rows)
        order = sorted(
            (-logged_us, partition, index)
            for partition, rows in enumerate(found)
            for index, logged_us in enumerate(accumulate((row.logged_us for row in rows), min))
        )
        shown = [(partition, found[partition][index]) for _, partition, index in order[:limit]]
        for partition, rows in enumerate(found):
            theirs = [row.number for place, row in shown if place == partition]
            if len(theirs) < len(rows):
                following[partition] = theirs[-1] if theirs else numbers[partition]
        return shown, tuple(following) if any(following) else None

    def read_changes_of_owner(
        self, owner: str, *, before: int, limit: int, blocks_max: int
    ) -> Program[tuple[list[JournalRow], int | None]]:
        """Return an owner's changes in a partition with numbers below `before`, newest first, and the next `before`.

        The next `before` is None if there are no earlier changes.

        One call searches at most `blocks_max` blocks of the journal. Therefore it may return fewer than `limit` changes
        even if there are more.
        """
        covered = yield from owner_blocks.find_covered_position()
        found = yield from self._in_stretch(PositionRange(covered + 1, INT64_MAX), owner, before, limit)
        at, looked_at = position_of(before - 1), 0
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
        """Return the number after which the journal of a partition is complete; 0 if no change was removed from it."""
        pruned = yield from change_log.find_pruned_position()
        return max(0, self._last_below(pruned))

    def find_begins(self) -> Program[Numbers]:
        """Return the number of each partition after which the journal is complete there."""
        return tuple((yield from in_each_partition(self.find_begin)))

    def _last_below(self, position: int) -> int:
        return position * PLACES - 1

    def find_boards(self, changes: Iterable[tuple[int, int]], partitions: int) -> Program[dict[int, Board]]:
        """Return boards by key. `changes` has pairs of a partition and the key of a board whose changes are there.

        A deleted board is returned as long as the journal holds its deletion.
        """
        places = {key: partition for partition, key in changes}
        if not places:
            return {}
        found = yield from find_boards_by_key(sorted(places))
        for key in sorted(places.keys() - found.keys()):
            # If the board was moved, another partition than that of the changes has its deletion.
            others = (each for each in range(partitions) if each != places[key])
            for partition in (places[key], *others):
                rows = yield self._last_of_board.bind(board_key=key, limit=_LAST_BUNDLES).at(partition)
                found |= _find_deletions((key, row[-1]) for row in rows)
                if key in found:
                    break
        return found

    def find_deleted_boards(self, board_id: str, *, since: int) -> Program[dict[int, Board]]:
        """Read all bundles of a partition from `since` on. Return the boards with this id that they delete, by key."""
        named = f'"{board_id}'  # a segment's deletion has its number after the id
        rows = yield self._deleted.bind(position=position_of(since), nobody=owners_text([""]), named=named)
        return {key: board for key, board in _find_deletions(rows).items() if board.id == board_id}

    def find_owners(self, post_id: str, board_keys: Sequence[int], times_us: Iterable[int]) -> Program[set[str]]:
        """Return whose posts with an id a partition logged at these times, as far as it still knows the owners."""
        owners: set[str] = set()
        named, times = msgspec.json.encode(post_id).decode(), sorted(set(times_us))
        bounds = yield from change_log.find_positions([at + off for at in times for off in (-_APART_US, _APART_US)])
        for at_us, first, beyond in zip(times, bounds[::2], bounds[1::2], strict=True):
            bound = {"boards": board_keys, "first": first, "beyond": beyond, "at_us": at_us, "named": named}
            changes = (change for row in (yield self._with_id.bind(**bound)) for change in changes_of(row))
            posts = (change for change in changes if change.record is not None and change.record.post_id == post_id)
            owners |= {change.owner for change in posts if change.owner is not None}
        return owners

    def log_event(self, board: Board, kind: ChangeKind, now_us: int) -> Program[None]:
        """Log in the partition of a board that this transaction empties the board, or moves it to another partition.

        Each segment gets a row of its own; `is_told` says which rows callers see. After a move, readers of streams look
        for the board in the catalog again.
        """
        for partition, parts in by_partition(board.parts):
            events = [NewChange(part.key, "", "", "", record_of_event(kind)) for part in parts]
            yield from in_partition(partition, change_log.append_changes(events, now_us=now_us))

    def log_deleted(self, boards: Sequence[Board], now_us: int) -> Program[None]:
        """Log that this transaction deletes boards. Their earlier changes stay readable."""
        for partition, theirs in by_partition(part for board in boards for part in board.parts):
            for start in range(0, len(theirs), _DELETED_A_STATEMENT):
                some = theirs[start : start + _DELETED_A_STATEMENT]
                events = [
                    NewChange(board.key, "", "", "", record_of_deletion(_name_of(board), board.spec)) for board in some
                ]
                yield from in_partition(partition, change_log.append_changes(events, now_us=now_us))


def _bound(after: int, boards: Sequence[int] | None) -> dict[str, object]:
    position, place = divmod(after, PLACES)
    bound: dict[str, object] = {"position": position, "next": place + 1}
    return bound if boards is None else bound | {"boards": boards}


def padded(numbers: Numbers, partitions: int) -> Numbers:
    """Return a number for each partition."""
    return numbers + (0,) * (partitions - len(numbers))


def _choose_bundles(sizes: Mapping[int, _Sizes], limit: int) -> list[int]:
    """Return the partition of each bundle of a page with `limit` changes, in the order of the page."""
    ordered = sorted(
        (
            (logged_us, partition, index, count)
            for partition, found in sizes.items()
            for index, (logged_us, count) in enumerate(found.sized())
        )
    )
    held = accumulate((count for *_, count in ordered), initial=0)
    return [partition for (_, partition, *_), before in zip(ordered, held, strict=False) if before < limit]


def _find_deletions(bundles: Iterable[Sequence[Any]]) -> dict[int, Board]:
    """Return, by key, the boards that these bundles delete. A bundle is a pair of its `board_key` and `posts`."""
    deleted = {}
    for key, posts in bundles:
        for record in decode_records(posts):
            if record is not None and record.kind is ChangeKind.DELETED:
                board_id, _, segment = (record.board_id or "").partition(SEGMENT_SIGN)
                spec = msgspec.convert(record.spec, BoardSpec)
                deleted[key] = Board(key, board_id, spec, 0, 0, segment=int(segment or 0))
    return deleted


def _name_of(board: Board) -> str:
    """Return the id of a board, and for each segment but the first of the present ones also a number above 0."""
    if board.segment_of is None or board.segment == 0:
        return board.id
    return f"{board.id}{SEGMENT_SIGN}{abs(board.segment)}"


def is_told(board: Board | None, record: ChangeRecord | None) -> bool:
    """Return whether callers see a row about this board. Of what happens to all segments, they see the first row."""
    of_whole = record is not None and record.kind in _OF_WHOLE_BOARD
    return board is None or board.segment in (0, WHOLE) or not of_whole


def changes_of(row: Row) -> Iterator[JournalRow]:
    """Yield the changes of a bundle, in the order in which they happened."""
    position, board_key, at_us, owners, pieces, posts = row
    changes = zip(owners_of(owners), pieces_of(pieces), decode_records(posts), strict=True)
    for index, (owner, piece, record) in enumerate(changes):
        named = None if owner.startswith(NAMELESS) else owner or None
        half, changed_us = len(piece) >> 1, at_us
        if record is not None and record.version is not None and record.kind not in _KEEPING_VERSION:
            changed_us = record.version
        cells = piece[:half], piece[half:]
        yield JournalRow(position * PLACES + index, board_key, named, changed_us, *cells, record, at_us)


def board_key_of(row: Row) -> int:
    """Return the board key of a bundle."""
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
