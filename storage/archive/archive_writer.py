"""Writes a closed board's archive in steps, and removes its rows once the archive is complete.

    read_step ──> encode_blocks ──> store_step ──> … ──> the last store_step, which removes the rows
        ^________________________________│

An archive's parts (see `blocks`) are written in this order: tally, top and curve of each ranked column, then the
owners. Any process can do the next step, because the stored blocks show how much has been written.

The rows of all segments are merged into one archive, which is stored in the board's partition.

An archive shows its board at one moment. Posts cannot change a closed board, but an owner may still be erased, or a
post voided. A step is therefore stored only if the board has not changed since the step was read. The archive's first
block, its head, holds the board's count of changes. If the board's count has changed since, the next step starts the
archive again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

from config.settings import JobSettings
from predictor import Curve, Knot, encode_curve
from querybuilder import Bound, Lock, Prepared, col, count_if, param, select
from storage.boards.board_removal import delete_of_leaves, drop_rows
from storage.boards.boards import find_same_board
from storage.leaves.catalog_rows import RowKind, store_columns
from storage.leaves.entrants import forget_entrants
from storage.leaves.entries import Entries, add_totals
from storage.leaves.row_rankings import RowRanking
from storage.leaves.row_tables import SHARED_STATEMENTS_MAX, Layout, layout_of, scope_of
from storage.leaves.totals import CHANGES, find_totals_of, store_gates
from storage.log.bundles import ChangeKind
from storage.log.change_log import BoardEvent, log_board_events
from storage.records import Board, Entry, Leaf, Place
from storage.schema.placement import prepare_put
from storage.schema.tables import ARCHIVE_BLOCKS, CURVES, REFRESH_REQUESTS, TOTALS
from storage.segments.segmented_entries import SegmentedEntries
from storage.store import Program, in_partition

from .archive_reader import find_last_block
from .blocks import HEAD, OWNERS, Rows, SectionKind, TallyBlock, encode_rows, encode_tally, section_of
from .board_closing import ClosingStage


class _Progress(NamedTuple):
    part_index: int = 0  # the 0-based number of the part that is being written
    number: int = 0  # how many entries of this part are written
    last: str = ""  # the owner of the last written entry; in a tally, the cell of that entry


class ArchiveBlock(NamedTuple):
    section: str
    number: int  # how many entries of the section come before the block; in a section of curves, the segment's number
    entries: int  # how many entries the block has; in the section `HEAD`, the board's count of changes; of a curve, 0
    first: str  # the first owner of a block of owners, or the best cell of a tally block; empty in other sections
    last: str  # the last owner of a block of owners, or the worst cell of a tally block; empty in other sections
    document: bytes = b""  # the encoded content; empty until `encode_blocks` sets it


# A block whose `document` is still empty, and the function that returns the encoded content for `document`.
DraftBlock = tuple[ArchiveBlock, Callable[[], bytes]]


class ArchiveStep(NamedTuple):
    """An archive's next blocks, read from one snapshot. If `is_last` is set, they complete the archive."""

    changes: int  # the board's count of changes in the snapshot
    is_first: bool
    is_last: bool
    drafts: list[DraftBlock]


class _Part(NamedTuple):
    section: str
    # Reads the part from the given progress on. Returns the next blocks, and how many rows were read.
    read: Callable[[_Progress], Program[tuple[list[DraftBlock], int]]]
    stepwise: bool  # whether one step may read only some rows of the part


@dataclass(slots=True)
class ArchiveWriter:
    """Programs that write one board's archive. The closing job runs them in the board's partition.

    Only one process at a time may store steps. Between reading a step and storing it, the caller calls `encode_blocks`
    in another thread.
    """

    board: Board
    entries: Entries | SegmentedEntries
    limits: JobSettings

    def _parts(self) -> list[_Part]:
        parts = []
        for index in self.board.sorted_indexes:
            parts.append(_Part(section_of(SectionKind.TALLY, index), partial(self._read_tally, index), True))
            parts.append(_Part(section_of(SectionKind.TOP, index), partial(self._read_top, index), False))
            parts.append(_Part(section_of(SectionKind.CURVE, index), partial(self._read_curve, index), False))
        return [*parts, _Part(OWNERS, self._read_owners, True)]

    def is_begun(self) -> Program[bool]:
        """Return whether an archive was begun and the board has not changed since."""
        head = yield from find_last_block(self.board.key, HEAD)
        return head is not None and head[1] == (yield from self._count_changes())

    def _count_changes(self) -> Program[int]:
        totals = yield from find_totals_of([self.board])
        return totals[self.board.key].get(CHANGES, 0)

    def read_step(self) -> Program[ArchiveStep]:
        """Read the next blocks from one snapshot, with at most about `archive_step_rows` rows."""
        is_first = not (yield from self.is_begun())
        progress = _Progress() if is_first else (yield from self._find_progress())
        parts, left = self._parts(), self.limits.archive_step_rows
        found: list[DraftBlock] = []
        while progress.part_index < len(parts) and left > 0:
            part = parts[progress.part_index]
            blocks, rows = yield from part.read(progress)
            found += blocks
            left -= rows  # `left` is above 0 until something was read, so every step makes progress
            if part.stepwise and rows == self.limits.archive_step_rows:
                block, _ = blocks[-1]
                progress = _Progress(progress.part_index, block.number + block.entries, block.last)
            else:
                progress = _Progress(progress.part_index + 1)
        changes = yield from self._count_changes()
        return ArchiveStep(changes, is_first, progress.part_index >= len(parts), found)

    def _find_progress(self) -> Program[_Progress]:
        for index, part in reversed(list(enumerate(self._parts()))):
            found = yield from find_last_block(self.board.key, part.section)
            if found is not None:
                number, entries, last = found
                return _Progress(index, number + entries, last) if part.stepwise else _Progress(index + 1)
        return _Progress()

    def _read_tally(self, index: int, progress: _Progress) -> Program[tuple[list[DraftBlock], int]]:
        ranking = self.entries.rankings[index]
        rows = yield from ranking.tally_cells(self.limits.archive_step_rows, progress.last or None)
        section, number, size = section_of(SectionKind.TALLY, index), progress.number, self.limits.archive_block_rows
        blocks: list[DraftBlock] = []
        for start in range(0, len(rows), size):
            cells, ties = zip(*rows[start : start + size], strict=True)
            tally = TallyBlock(ranking.padding.keys_of_cells(cells), list(ties))
            block = ArchiveBlock(section, number, sum(ties), cells[0], cells[-1])
            blocks.append((block, partial(encode_tally, tally)))
            number += sum(ties)
        return blocks, len(rows)

    def _read_top(self, index: int, _progress: _Progress) -> Program[tuple[list[DraftBlock], int]]:
        entries = yield from self.entries.rankings[index].read_first_rows(self.limits.archive_top_rows)
        return self._cut_rows(section_of(SectionKind.TOP, index), 0, entries, {}), len(entries)

    def _cut_rows(
        self, section: str, number: int, entries: list[Entry], ties_before: dict[int, list[int]]
    ) -> list[DraftBlock]:
        size = self.limits.archive_block_rows
        blocks: list[DraftBlock] = []
        for start in range(0, len(entries), size):
            some = entries[start : start + size]
            rows = Rows(some, {index: before[start : start + size] for index, before in ties_before.items()})
            first, last = (some[0].owner, some[-1].owner) if section == OWNERS else ("", "")
            blocks.append((ArchiveBlock(section, number + start, len(some), first, last), partial(encode_rows, rows)))
        return blocks

    def _read_curve(self, index: int, _progress: _Progress) -> Program[tuple[list[DraftBlock], int]]:
        """Read each leaf's curve. For a leaf with at most `exact_top` entries, build an exact curve instead."""
        totals, exact_top = (yield from find_totals_of([self.board])), self.board.spec.predictor.exact_top
        blocks: list[DraftBlock] = []
        for number, part in enumerate(self.board.leaves):
            block = ArchiveBlock(section_of(SectionKind.CURVE, index), number, 0, "", "")
            if totals[part.key].get(index, 0) <= exact_top:
                curve = yield from in_partition(part.partition, build_exact_curve(part, index))
                blocks.append((block, partial(encode_curve, curve)))
                continue
            rows = yield _STORED_CURVE.bind(leaf_key=part.key, column_index=index).at(part.partition)
            if not rows:
                return [], 0
            blocks.append((block, partial(bytes, rows[0][0])))
        return blocks, 1

    def _read_owners(self, progress: _Progress) -> Program[tuple[list[DraftBlock], int]]:
        entries = yield from self.entries.read_by_owner(progress.last, self.limits.archive_step_rows)
        ties_before: dict[int, list[int]] = {}
        for index, ranking in self.entries.rankings.items():
            if ranking.timed and entries:
                ties_before[index] = yield from self._count_ties_before(index, entries, progress.last)
        return self._cut_rows(OWNERS, progress.number, entries, ties_before), len(entries)

    def _count_ties_before(self, index: int, entries: list[Entry], after: str) -> Program[list[int]]:
        """Count, for each entry, the tied rows that rank before it. `entries` are those after the owner `after`."""
        cells = sorted({cell for entry in entries if isinstance(cell := entry.cells[index], str)})
        passed: dict[str | int, int] = dict.fromkeys(cells, 0)
        for part in self.board.leaves:
            up_to = _ties_up_to(layout_of(part), index).bind(cells=cells, owner=after, **scope_of(part))
            for cell, before in (yield up_to.at(part.partition)):
                passed[cell] += int(before)
        ties_before = []
        for entry in entries:
            cell = entry.cells[index]
            ties_before.append(0 if cell is None else passed[cell])
            if cell is not None:
                passed[cell] += 1
        return ties_before

    def encode_blocks(self, found: Sequence[DraftBlock]) -> list[ArchiveBlock]:
        """Encode the blocks' documents. Call this in another thread, because encoding takes a lot of CPU time."""
        return [block._replace(document=encode()) for block, encode in found]

    def store_step(self, step: ArchiveStep, blocks: Sequence[ArchiveBlock], *, now_us: int) -> Program[Board | None]:
        """Store a step's blocks and return the board. The last step also marks it as archived and removes its rows.

        The board's segments stay in the catalog, because the journal and post ids refer to them. If the board has
        changed since the step was read, store nothing and return None.

        Raises:
            UnknownBoardError: the board was deleted.
        """
        # An erasure locks the same rows of the catalog, so the erasure waits until this transaction ends.
        board = yield from find_same_board(self.board, lock=Lock.UPDATE)
        totals = (yield from find_totals_of([board]))[board.key]
        if totals.get(CHANGES, 0) != step.changes:
            return None
        if step.is_first:
            yield from delete_of_leaves([ARCHIVE_BLOCKS], [board.key])
            yield self._write(ArchiveBlock(HEAD, 0, step.changes, "", ""))
        for block in blocks:
            yield self._write(block)
        return (yield from self._remove_rows(board, totals, now_us)) if step.is_last else board

    def _write(self, block: ArchiveBlock) -> Bound:
        return _PUT.bind(leaf_key=self.board.key, **block._asdict())

    def _remove_rows(self, board: Board, totals: dict[int, int], now_us: int) -> Program[Board]:
        stage = int(ClosingStage.ARCHIVED)
        yield from store_columns(board.key, archived_at=now_us, stage=stage, due_at=None, kind=RowKind.BOARD)
        gate = board.gate._replace(archived_us=now_us)
        archived = [replace(leaf, gate=gate) for leaf in board.leaves]
        if board.spec.entry is not None:
            yield from forget_entrants([(board.home, board.key)], counts=False)
        for leaf in board.leaves:
            yield from in_partition(leaf.partition, drop_rows(leaf))
        yield from delete_of_leaves([REFRESH_REQUESTS], [leaf.key for leaf in board.leaves])
        if board.is_spread:
            for leaf in board.leaves:
                yield from store_columns(leaf.key, archived_at=now_us)
                yield from in_partition(leaf.partition, delete_of_leaves([TOTALS], [leaf.key]))
            yield from add_totals({board.key: totals})
            archived.insert(0, Leaf(board.key, board.id, board.spec, Place(board.home), gate, board.family_key))
        yield from store_gates(archived)
        event = BoardEvent(ChangeKind.ARCHIVED, board.id, board.key, board.home)
        yield from log_board_events([event], now_us=now_us)
        return replace(board, leaves=(archived[0],))


def build_exact_curve(leaf: Leaf, column_index: int) -> Program[Curve]:
    """Build the exact curve for a column of a closed leaf with few entries. Every value in the column is a knot."""
    ranking = RowRanking(leaf, column_index)
    rows = yield from ranking.tally_cells(1 + leaf.spec.predictor.exact_top)
    knots, better_count = [], 0
    for cell, ties in rows:
        knots.append(Knot(ranking.padding.key_of_cell(cell), better_count, ties))
        better_count += ties
    errors = (0,) * max(0, len(knots) - 1)
    as_of_us = leaf.closed_us or 0
    return Curve(knots, total=better_count, as_of_us=as_of_us, method="scan", certificate=0.0, errors=errors)


_PUT = prepare_put(ARCHIVE_BLOCKS)
_STORED_CURVE = (
    select(col("document"))
    .from_(CURVES)
    .where(col("leaf_key").eq(param("leaf_key")), col("column_index").eq(param("column_index")))
    .prepared()
)


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _ties_up_to(layout: Layout, index: int) -> Prepared:
    cell = col(layout.columns[index].name)
    up_to = select(cell, count_if(col("owner").le(param("owner")))).from_(layout.table)
    return up_to.where(*layout.scope(), cell.in_(param("cells"))).group_by(cell).packed().prepared()
