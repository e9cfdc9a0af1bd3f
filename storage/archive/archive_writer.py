"""Writing a closed board's archive in steps, and removing its rows once the archive is complete.

    begin_or_resume ──> read_step ──> encode_blocks ──> store_blocks ──> note_progress ──> … ──> finish
                            ^__________________________________________________│

The parts are written in this order: tally, top and curve of each ranked column, then the owners. Another process can
continue an archive, because the stored blocks show how much of it is written.

An archive shows its board at one moment. Posts cannot change a closed board, but an owner may still be erased. So each
step is stored only if the board's count of changes is the same as when the archive was begun. Otherwise the archive is
begun anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from config.settings import JobSettings
from predictor import Curve, Knot, encode_curve
from querybuilder import Bound, Lock, Prepared, asc, col, count, delete, insert, param, select, update
from storage.boards.boards import CHANGES, drop_rows, find_board, find_totals, store_state
from storage.boards.row_tables import SHARED_STATEMENTS_MAX, Layout, scope_of
from storage.entries.entries import Entries
from storage.entries.rankings import decode_entry
from storage.records import Board, Entry
from storage.schema.tables import ARCHIVE_BLOCKS, BOARDS, CURVES
from storage.store import Program

from .archive_reader import find_last_block
from .blocks import (
    HEAD,
    OWNERS,
    Rows,
    TallyBlock,
    curve_section,
    encode_rows,
    encode_tally,
    tally_section,
    top_section,
)
from .board_closing import ClosingStage

# For at most about this many cells of a column, the writer remembers how many rows with the cell it has read. Beyond
# that, the writer drops all these numbers. When it needs such a number again, it counts rows on the board.
TIED_MAX = 1_000_000


class _SectionKind(IntEnum):
    TALLY = 0
    TOP = 1
    CURVE = 2
    OWNERS = 3


class _Part(NamedTuple):
    kind: _SectionKind
    column_index: int
    section: int


class ArchiveProgress(NamedTuple):
    """The progress of an archive that is being written."""

    part_index: int = 0  # the part that is being written
    number: int = 0  # number of entries of this part that are written
    last: str = ""  # the owner of the last written entry, or its cell if the part is a tally


class PartContent(NamedTuple):
    part: _Part
    number: int  # number of entries of the part before this content
    content: TallyBlock | Rows | Curve | bytes
    cells: Sequence[str] = ()  # the cells of a tally, one per key


class ArchiveBlock(NamedTuple):
    """A row of the table of archives."""

    section: int
    number: int  # number of entries in the earlier blocks of the section
    entries: int
    first: str
    last: str
    document: bytes


@dataclass(slots=True)
class ArchiveWriter:
    """Writes one archive. Call `begin_or_resume` first, even if another process has begun the archive.

    The caller runs each program in a transaction. Between two transactions it calls `encode_blocks` in another thread.
    """

    entries: Entries
    limits: JobSettings
    progress: ArchiveProgress = field(default_factory=ArchiveProgress)
    changes: int = 0  # the board's count of changes when the archive was begun
    _tied: dict[int, dict[str, int]] = field(default_factory=dict)  # number of rows read, by column index and cell

    @property
    def board(self) -> Board:
        return self.entries.board

    def _parts(self) -> list[_Part]:
        parts = []
        for index in self.board.sorted_indexes:
            parts.append(_Part(_SectionKind.TALLY, index, tally_section(index)))
            parts.append(_Part(_SectionKind.TOP, index, top_section(index)))
            parts.append(_Part(_SectionKind.CURVE, index, curve_section(index)))
        return [*parts, _Part(_SectionKind.OWNERS, 0, OWNERS)]

    def begin_or_resume(self) -> Program[None]:
        """Continue after the stored blocks, or begin anew if the board has changed since the archive was begun."""
        key = self.board.key
        self.changes = yield from self._changes_now()
        head = yield from find_last_block(key, HEAD)
        if head is None or head[1] != self.changes:
            yield self._clear()
            yield self._write(ArchiveBlock(HEAD, 0, self.changes, "", "", b""))
        self._tied, self.progress = {}, ArchiveProgress()
        parts = self._parts()
        for index in reversed(range(len(parts))):
            found = yield from find_last_block(key, parts[index].section)
            if found is not None:
                number, entries, last = found
                whole = parts[index].kind in (_SectionKind.TOP, _SectionKind.CURVE)
                self.progress = ArchiveProgress(index + 1) if whole else ArchiveProgress(index, number + entries, last)
                return

    def _changes_now(self) -> Program[int]:
        totals = yield from find_totals([self.board.key])
        return totals[self.board.key].get(CHANGES, 0)

    def read_step(self) -> Program[tuple[list[PartContent], ArchiveProgress, dict[int, dict[str, int]]]]:
        """Read the next rows from one snapshot, at most about `archive_step_rows`. Do not change the writer.

        Return the content that was read, the progress after this step, and the ties counted so far. Once the blocks are
        stored, pass the progress and the ties to `note_progress`.
        """
        parts, place, left = self._parts(), self.progress, self.limits.archive_step_rows
        tied = self._tied
        found: list[PartContent] = []
        while place.part_index < len(parts) and left > 0:
            part = parts[place.part_index]
            if part.kind is _SectionKind.TALLY:
                read, rows = yield from self._read_tally(part, place)
            elif part.kind is _SectionKind.OWNERS:
                read, rows, tied = yield from self._read_owners(part, place, tied)
            else:
                read, rows = yield from self._read_whole(part)
            if read is not None:
                found.append(read)
            left -= max(1, rows)
            if part.kind in (_SectionKind.TOP, _SectionKind.CURVE) or rows < self.limits.archive_step_rows:
                place = ArchiveProgress(place.part_index + 1)
            elif isinstance(read, PartContent):
                place = _after(place, read)
        return found, place, tied

    def _read_tally(self, part: _Part, place: ArchiveProgress) -> Program[tuple[PartContent | None, int]]:
        ranking = self.entries.rankings[part.column_index]
        rows = yield from ranking.tally_cells(self.limits.archive_step_rows, place.last or None)
        if not rows:
            return None, 0
        cells = [row[0] for row in rows]
        tally = TallyBlock([ranking.padding.key_of_cell(cell) for cell in cells], [row[1] for row in rows])
        return PartContent(part, place.number, tally, cells), len(rows)

    def _read_whole(self, part: _Part) -> Program[tuple[PartContent | None, int]]:
        ranking = self.entries.rankings[part.column_index]
        if part.kind is _SectionKind.CURVE:
            curve = yield from find_final_curve(self.entries, part.column_index)
            return (None if curve is None else PartContent(part, 0, curve)), 1
        rows = yield from ranking.read_first_rows(self.limits.archive_top_rows)
        return (PartContent(part, 0, Rows(rows, {})) if rows else None), len(rows)

    def _read_owners(
        self, part: _Part, place: ArchiveProgress, tied: dict[int, dict[str, int]]
    ) -> Program[tuple[PartContent | None, int, dict[int, dict[str, int]]]]:
        layout = self.entries.layout
        rows = yield _owners_after(layout).bind(
            owner=place.last, limit=self.limits.archive_step_rows, **scope_of(self.board)
        )
        if not rows:
            return None, 0, tied
        entries = [decode_entry(row) for row in rows]
        places: dict[int, list[int]] = {}
        tied_after = dict(tied)
        for index, ranking in self.entries.rankings.items():
            if ranking.timed:
                tied_after[index], places[index] = yield from self._ties_before(index, entries, tied.get(index, {}))
        return PartContent(part, place.number, Rows(entries, places)), len(rows), tied_after

    def _ties_before(
        self, index: int, entries: list[Entry], rows_read: dict[str, int]
    ) -> Program[tuple[dict[str, int], list[int]]]:
        """Count, for each of these rows, the rows with the same cell that rank before it.

        `rows_read` holds, by cell, how many rows were read earlier. Return a copy of `rows_read` that also counts the
        given rows, and a list with one result for each given row.
        """
        cells = sorted({cell for entry in entries if isinstance(cell := entry.cells[index], str)})
        statement = _counted_cells(self.entries.layout, index)
        rows = yield statement.bind(cells=cells, **scope_of(self.board))
        several = {row[0] for row in rows if row[1] > 1}
        rows_read = dict(rows_read) if len(rows_read) < TIED_MAX else {}
        places = []
        for entry in entries:
            cell, before = entry.cells[index], 0
            if isinstance(cell, str) and cell in several:
                if cell not in rows_read:
                    _, rows_read[cell] = yield from self.entries.rankings[index].count_tied(cell, entry.owner)
                before = rows_read[cell]
                rows_read[cell] += 1
            places.append(before)
        return rows_read, places

    def read_whole_board(self) -> Program[tuple[int, list[PartContent]] | None]:
        """Return the board's count of changes and its whole archive, or None if the board is too large for one step."""
        changes = yield from self._changes_now()
        found, place, _ = yield from self.read_step()
        return (changes, found) if self.is_complete(place) else None

    def store_whole_archive(
        self, changes: int, blocks: Sequence[ArchiveBlock], *, now_us: int
    ) -> Program[Board | None]:
        self.changes = changes
        yield self._clear()
        for block in blocks:
            yield self._write(block)
        return (yield from self.finish(now_us))

    def _clear(self) -> Bound:
        written = delete(ARCHIVE_BLOCKS).where(col("board_key").eq(param("key")))
        return written.bind(key=self.board.key)

    def encode_blocks(self, found: Sequence[PartContent]) -> list[ArchiveBlock]:
        """Encode the contents of parts as blocks. This is CPU work: run it in another thread."""
        return [block for read in found for block in _blocks(read, self.limits.archive_block_rows)]

    def store_blocks(self, blocks: Sequence[ArchiveBlock]) -> Program[bool]:
        """Write blocks. Return False, and write nothing, if the board has changed since the archive was begun."""
        if (yield from self._changes_now()) != self.changes:
            return False
        for block in blocks:
            yield self._write(block)
        return True

    def _write(self, block: ArchiveBlock) -> Bound:
        return _INSERT.bind(board_key=self.board.key, **block._asdict())

    def note_progress(self, place: ArchiveProgress, tied: dict[int, dict[str, int]]) -> None:
        """Note that everything up to `place` is stored. Both arguments come from `read_step`."""
        self.progress, self._tied = place, tied

    def is_complete(self, place: ArchiveProgress) -> bool:
        return place.part_index >= len(self._parts())

    def finish(self, now_us: int) -> Program[Board | None]:
        """Mark the board as archived and remove its rows. Its archive has to be complete.

        Return None, and do nothing, if the board has changed since the archive was begun.

        Raises:
            UnknownBoardError: the board was deleted.
        """
        # An erasure locks this row of the catalog too, so it waits until this transaction ends.
        board = yield from find_board(self.board.id, lock=Lock.UPDATE)
        if board.key != self.board.key or (yield from self._changes_now()) != self.changes:
            return None
        archived = replace(board, archived_us=now_us)
        yield (
            update(BOARDS)
            .set(archived_at=now_us, stage=int(ClosingStage.ARCHIVED), due_at=param("never"))
            .where(col("board_key").eq(param("key")))
            .bind(key=board.key, never=None)
        )
        yield from drop_rows(board)
        return (yield from store_state(archived))


def find_final_curve(entries: Entries, column_index: int) -> Program[Curve | bytes | None]:
    """Return the last curve of a closed board's column.

    Usually, this is the stored curve, encoded as bytes, or None if it is missing. If the column has so few entries that
    every rank is counted, build an exact curve through all values instead.
    """
    board = entries.board
    totals = yield from find_totals([board.key])
    if totals[board.key].get(column_index, 0) > board.spec.predictor.exact_top:
        rows = yield _STORED_CURVE.bind(board_key=board.key, column_index=column_index)
        return bytes(rows[0][0]) if rows else None
    return (yield from build_exact_curve(entries, column_index))


def build_exact_curve(entries: Entries, column_index: int) -> Program[Curve]:
    """Return the exact curve of a column with few entries on a closed board. Every value is a knot."""
    board = entries.board
    ranking = entries.rankings[column_index]
    rows = yield from ranking.tally_cells(1 + board.spec.predictor.exact_top)
    knots, better_count = [], 0
    for cell, ties in rows:
        knots.append(Knot(ranking.padding.key_of_cell(cell), better_count, ties))
        better_count += ties
    errors = (0,) * max(0, len(knots) - 1)
    as_of_us = board.closed_us or 0
    return Curve(knots, total=better_count, as_of_us=as_of_us, method="scan", certificate=0.0, errors=errors)


def _after(place: ArchiveProgress, read: PartContent) -> ArchiveProgress:
    if isinstance(read.content, TallyBlock):
        return ArchiveProgress(place.part_index, read.number + sum(read.content.ties), read.cells[-1])
    assert isinstance(read.content, Rows)
    return ArchiveProgress(place.part_index, read.number + len(read.content.entries), read.content.entries[-1].owner)


def _blocks(read: PartContent, block_rows: int) -> Iterator[ArchiveBlock]:
    content, number, section = read.content, read.number, read.part.section
    if isinstance(content, TallyBlock):
        for start in range(0, len(content.keys), block_rows):
            end = start + block_rows
            tally, cells = TallyBlock(content.keys[start:end], content.ties[start:end]), read.cells[start:end]
            entries = sum(tally.ties)
            yield ArchiveBlock(section, number, entries, cells[0], cells[-1], encode_tally(tally))
            number += entries
    elif isinstance(content, Rows):
        for start in range(0, len(content.entries), block_rows):
            end = start + block_rows
            entries_of = content.entries[start:end]
            places = {index: before[start:end] for index, before in content.ties_before.items()}
            first, last = (entries_of[0].owner, entries_of[-1].owner) if section == OWNERS else ("", "")
            yield ArchiveBlock(
                section, number + start, len(entries_of), first, last, encode_rows(Rows(entries_of, places))
            )
    else:
        yield ArchiveBlock(section, 0, 0, "", "", encode_curve(content) if isinstance(content, Curve) else content)


_INSERT = (
    insert(ARCHIVE_BLOCKS)
    .values(**{name: param(name) for name in ("board_key", *ArchiveBlock._fields)})
    .on_conflict("board_key", "section", "number")
    .overwrite()
    .prepared()
)


_STORED_CURVE = (
    select(col("document"))
    .from_(CURVES)
    .where(col("board_key").eq(param("board_key")), col("column_index").eq(param("column_index")))
    .prepared()
)


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _owners_after(layout: Layout) -> Prepared:
    rows = select(*layout.row_columns()).from_(layout.table).where(*layout.scope(), col("owner").gt(param("owner")))
    return rows.order_by(asc(col("owner"))).limit(param("limit")).packed().prepared()


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _counted_cells(layout: Layout, index: int) -> Prepared:
    cell = col(layout.columns[index].name)
    counted = select(cell, count()).from_(layout.table).where(*layout.scope(), cell.in_(param("cells")))
    return counted.group_by(cell).packed().prepared()
