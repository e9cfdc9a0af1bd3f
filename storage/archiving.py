"""Writing a closed board's archive in steps, and letting its rows go once all of it is written.

    columns ──> tally, top and curve of each ──> owners ──> one transaction: archived, the rows are left to the sweeper

The rule: an archive is of one state of its board. Posts can't change that any more, but an owner may be erased: every
step is stored on the condition that the board's count of changes is what it was at the first one, and where it is not
the archive is begun anew. What stands in the store says where to go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from predictor import Curve, Knot, encode
from querybuilder import (
    Built,
    Dialect,
    Lock,
    Statement,
    asc,
    col,
    count,
    delete,
    insert,
    param,
    select,
    update,
)

from .archive_blocks import (
    HEAD,
    OWNERS,
    Rows,
    Tallied,
    curve_section,
    encode_rows,
    encode_tally,
    tally_section,
    top_section,
)
from .archives import block_reads
from .closing import Stage
from .entries import Entries
from .layouts import SHARED_STATEMENTS_MAX, Layout, scope_of
from .leaderboards import CHANGES, count_entries, existing, leave_table, with_state
from .migrate import ARCHIVE_BLOCKS, BOARDS, CURVES
from .rankings import entry_of
from .records import Board, Entry
from .store import Program

TIED_MAX = 1_000_000  # cells that several owners have, of which it is remembered how many were met


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """The bounds of archives; each is a setting of the same name."""

    archive_top_rows: int
    archive_block_rows: int
    archive_step_rows: int
    archive_boards_max: int


class _Kind(IntEnum):
    TALLY = 0
    TOP = 1
    CURVE = 2
    OWNERS = 3


class _Part(NamedTuple):
    """A section as it is written."""

    kind: _Kind
    column_index: int
    section: int


class Place(NamedTuple):
    """How far an archive is written."""

    part_index: int = 0
    number: int = 0  # entries of that part
    last: str = ""  # the last owner or cell of them


class Read(NamedTuple):
    """What a step read for one part, not encoded yet."""

    part: _Part
    number: int
    content: Tallied | Rows | Curve | bytes
    cells: Sequence[str] = ()  # of a tally


class Block(NamedTuple):
    """A row of the archives' table."""

    section: int
    number: int
    entries: int
    first: str
    last: str
    document: bytes


@dataclass(slots=True)
class Archiving:
    """One archive while it is written: a process that knows nothing of it begins with `begin`."""

    dialect: Dialect
    entries: Entries
    limits: ArchiveLimits
    place: Place = field(default_factory=Place)
    changes: int = 0  # of the board, when the archive was begun
    _tied: dict[int, dict[str, int]] = field(default_factory=dict)  # by column: cells, and how many were met

    @property
    def board(self) -> Board:
        """The board."""
        return self.entries.board

    def _parts(self) -> list[_Part]:
        parts = []
        for index in self.board.sorted_indexes:
            parts.append(_Part(_Kind.TALLY, index, tally_section(index)))
            parts.append(_Part(_Kind.TOP, index, top_section(index)))
            parts.append(_Part(_Kind.CURVE, index, curve_section(index)))
        return [*parts, _Part(_Kind.OWNERS, 0, OWNERS)]

    def begin(self) -> Program[None]:
        """Go on where the store says that it was left, or begin where the board is another one by now."""
        key = self.board.key
        self.changes = yield from self._changes_now()
        head = yield block_reads(self.dialect).last.bind(board_key=key, section=HEAD)
        if not head or head[0][1] != self.changes:
            yield self._clear()
            yield self._write(Block(HEAD, 0, self.changes, "", "", b""))
        self._tied, self.place = {}, Place()
        parts = self._parts()
        for index in reversed(range(len(parts))):
            rows = yield block_reads(self.dialect).last.bind(board_key=key, section=parts[index].section)
            if rows:
                number, entries, last = rows[0]
                whole = parts[index].kind in (_Kind.TOP, _Kind.CURVE)
                self.place = Place(index + 1) if whole else Place(index, number + entries, last)
                return

    def _changes_now(self) -> Program[int]:
        totals = yield from count_entries(self.dialect, [self.board.key])
        return totals[self.board.key].get(CHANGES, 0)

    def read(self) -> Program[tuple[list[Read], Place, dict[int, dict[str, int]]]]:
        """What comes next, of one snapshot; the place after it, and the ties met on the way."""
        parts, place, left = self._parts(), self.place, self.limits.archive_step_rows
        tied = self._tied
        found: list[Read] = []
        while place.part_index < len(parts) and left > 0:
            part = parts[place.part_index]
            if part.kind is _Kind.TALLY:
                read, rows = yield from self._read_tally(part, place)
            elif part.kind is _Kind.OWNERS:
                read, rows, tied = yield from self._read_owners(part, place, tied)
            else:
                read, rows = yield from self._read_whole(part)
            if read is not None:
                found.append(read)
            left -= max(1, rows)
            if part.kind in (_Kind.TOP, _Kind.CURVE) or rows < self.limits.archive_step_rows:
                place = Place(place.part_index + 1)
            elif isinstance(read, Read):
                place = _after(place, read)
        return found, place, tied

    def _read_tally(self, part: _Part, place: Place) -> Program[tuple[Read | None, int]]:
        ranking = self.entries.rankings[part.column_index]
        rows = yield from ranking.tallied(self.limits.archive_step_rows, place.last or None)
        if not rows:
            return None, 0
        cells = [row[0] for row in rows]
        tally = Tallied([ranking.padding.key(cell) for cell in cells], [row[1] for row in rows])
        return Read(part, place.number, tally, cells), len(rows)

    def _read_whole(self, part: _Part) -> Program[tuple[Read | None, int]]:
        ranking = self.entries.rankings[part.column_index]
        if part.kind is _Kind.CURVE:
            curve = yield from final_curve(self.dialect, self.entries, part.column_index)
            return (None if curve is None else Read(part, 0, curve)), 1
        rows = yield from ranking.first_rows(self.limits.archive_top_rows)
        return (Read(part, 0, Rows(rows, {})) if rows else None), len(rows)

    def _read_owners(
        self, part: _Part, place: Place, tied: dict[int, dict[str, int]]
    ) -> Program[tuple[Read | None, int, dict[int, dict[str, int]]]]:
        layout = self.entries.layout
        rows = yield _owners_after(self.dialect, layout).bind(
            owner=place.last, limit=self.limits.archive_step_rows, **scope_of(self.board)
        )
        if not rows:
            return None, 0, tied
        entries = [entry_of(row) for row in rows]
        places: dict[int, list[int]] = {}
        met = dict(tied)
        for index, ranking in self.entries.rankings.items():
            if ranking.timed:
                met[index], places[index] = yield from self._ties_before(index, entries, tied.get(index, {}))
        return Read(part, place.number, Rows(entries, places)), len(rows), met

    def _ties_before(
        self, index: int, entries: list[Entry], met: dict[str, int]
    ) -> Program[tuple[dict[str, int], list[int]]]:
        """For each of these rows, how many with the same cell stand before it; and those met by now."""
        cells = sorted({cell for entry in entries if isinstance(cell := entry.cells[index], str)})
        statement = _counted_cells(self.dialect, self.entries.layout, index)
        rows = yield statement.bind(cells=cells, **scope_of(self.board))
        several = {row[0] for row in rows if row[1] > 1}
        met = dict(met) if len(met) < TIED_MAX else {}
        places = []
        for entry in entries:
            cell, before = entry.cells[index], 0
            if isinstance(cell, str) and cell in several:
                if cell not in met:
                    _, met[cell] = yield from self.entries.rankings[index].count_tied(cell, entry.owner)
                before = met[cell]
                met[cell] += 1
            places.append(before)
        return met, places

    def read_all(self) -> Program[tuple[int, list[Read]] | None]:
        """The board's count of changes and all of it, of one snapshot; None where that is more than one step."""
        changes = yield from self._changes_now()
        found, place, _ = yield from self.read()
        return (changes, found) if self.is_whole(place) else None

    def store_all(self, changes: int, blocks: Sequence[Block], *, now_us: int) -> Program[Board | None]:
        """The whole archive at once, and `finish`."""
        self.changes = changes
        yield self._clear()
        for block in blocks:
            yield self._write(block)
        return (yield from self.finish(now_us))

    def _clear(self) -> Built:
        written = delete(ARCHIVE_BLOCKS).where(col("board_key").eq(param("key")))
        return written.build(self.dialect, key=self.board.key)

    def encoded(self, found: Sequence[Read]) -> list[Block]:
        """The blocks of what was read: work for a thread of its own."""
        return [block for read in found for block in _blocks(read, self.limits.archive_block_rows)]

    def store(self, blocks: Sequence[Block]) -> Program[bool]:
        """Write blocks; False where the board has changed since the archive was begun."""
        if (yield from self._changes_now()) != self.changes:
            return False
        for block in blocks:
            yield self._write(block)
        return True

    def _write(self, block: Block) -> Built:
        return _insert(self.dialect).bind(board_key=self.board.key, **block._asdict())

    def advanced(self, place: Place, tied: dict[int, dict[str, int]]) -> None:
        """Take note that what was read up to this place is stored."""
        self.place, self._tied = place, tied

    def is_whole(self, place: Place) -> bool:
        """Whether nothing comes after this place."""
        return place.part_index >= len(self._parts())

    def finish(self, now_us: int) -> Program[Board | None]:
        """Let the rows of a board go, whose archive is whole; None where it has changed since that was begun.

        Raises:
            UnknownBoard: it was deleted.
        """
        board = yield from existing(self.dialect, self.board.id, lock=Lock.UPDATE)  # who erases an owner holds it
        if board.key != self.board.key or (yield from self._changes_now()) != self.changes:
            return None
        archived = replace(board, archived_us=now_us)
        yield (
            update(BOARDS)
            .set(archived_at=now_us, stage=int(Stage.ARCHIVED), due_at=param("never"))
            .where(col("board_key").eq(param("key")))
            .build(self.dialect, key=board.key, never=None)
        )
        yield from leave_table(self.dialect, board)
        return (yield from with_state(self.dialect, archived))


def final_curve(dialect: Dialect, entries: Entries, column_index: int) -> Program[Curve | bytes | None]:
    """The last curve of a closed board's column: the stored one, or where every rank is counted one of all values."""
    board = entries.board
    totals = yield from count_entries(dialect, [board.key])
    if totals[board.key].get(column_index, 0) > board.spec.predictor.exact_top:
        rows = yield _stored_curve(dialect).bind(board_key=board.key, column_index=column_index)
        return bytes(rows[0][0]) if rows else None
    return (yield from curve_of_all(entries, column_index))


def curve_of_all(entries: Entries, column_index: int) -> Program[Curve]:
    """The exact curve of a closed board's column that has few entries: every value is a knot."""
    board = entries.board
    ranking = entries.rankings[column_index]
    rows = yield from ranking.tallied(1 + board.spec.predictor.exact_top)
    knots, better_count = [], 0
    for cell, ties in rows:
        knots.append(Knot(ranking.padding.key(cell), better_count, ties))
        better_count += ties
    errors = (0,) * max(0, len(knots) - 1)
    as_of_us = board.closed_us or 0
    return Curve(knots, total=better_count, as_of_us=as_of_us, method="scan", certificate=0.0, errors=errors)


def _after(place: Place, read: Read) -> Place:
    if isinstance(read.content, Tallied):
        return Place(place.part_index, read.number + sum(read.content.ties), read.cells[-1])
    assert isinstance(read.content, Rows)
    return Place(place.part_index, read.number + len(read.content.entries), read.content.entries[-1].owner)


def _blocks(read: Read, block_rows: int) -> Iterator[Block]:
    content, number, section = read.content, read.number, read.part.section
    if isinstance(content, Tallied):
        for start in range(0, len(content.keys), block_rows):
            end = start + block_rows
            tally, cells = Tallied(content.keys[start:end], content.ties[start:end]), read.cells[start:end]
            entries = sum(tally.ties)
            yield Block(section, number, entries, cells[0], cells[-1], encode_tally(tally))
            number += entries
    elif isinstance(content, Rows):
        for start in range(0, len(content.entries), block_rows):
            end = start + block_rows
            entries_of = content.entries[start:end]
            places = {index: before[start:end] for index, before in content.ties_before.items()}
            first, last = (entries_of[0].owner, entries_of[-1].owner) if section == OWNERS else ("", "")
            yield Block(section, number + start, len(entries_of), first, last, encode_rows(Rows(entries_of, places)))
    else:
        yield Block(section, 0, 0, "", "", encode(content) if isinstance(content, Curve) else content)


@lru_cache
def _insert(dialect: Dialect) -> Statement:
    names = ("board_key", *Block._fields)
    block = insert(ARCHIVE_BLOCKS).values(**{name: param(name) for name in names})
    return block.on_conflict("board_key", "section", "number").overwrite().compile(dialect)


@lru_cache
def _stored_curve(dialect: Dialect) -> Statement:
    one = (col("board_key").eq(param("board_key")), col("column_index").eq(param("column_index")))
    return select(col("document")).from_(CURVES).where(*one).compile(dialect)


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _owners_after(dialect: Dialect, layout: Layout) -> Statement:
    rows = select(*layout.row()).from_(layout.table).where(*layout.scope(), col("owner").gt(param("owner")))
    return rows.order_by(asc(col("owner"))).limit(param("limit")).packed().compile(dialect)


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _counted_cells(dialect: Dialect, layout: Layout, index: int) -> Statement:
    cell = col(layout.columns[index].name)
    counted = select(cell, count()).from_(layout.table).where(*layout.scope(), cell.in_(param("cells")))
    return counted.group_by(cell).packed().compile(dialect)
