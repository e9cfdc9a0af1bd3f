"""Archived boards: `ArchivedEntries` and `ArchivedRanking` return what the archive of a board holds.

Ranks and totals are those of the moment when the board was archived. If an owner is erased afterwards, the owner's
place stays empty, so nobody else's rank changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NoReturn

from predictor import Curve, decode_curve
from querybuilder import INTEGER, Lock, Prepared, Select, asc, col, desc, param, select, update
from storage.entries.entries import Entries
from storage.entries.exact_ranks import CountStart
from storage.entries.hidden_owners import hidden_statements
from storage.entries.neighbours import Neighbours
from storage.entries.rankings import Ranking
from storage.errors import ArchivedError
from storage.log.cells import Padding
from storage.log.log_record import ChangeKind
from storage.records import Board, Entry
from storage.schema.tables import ARCHIVE_BLOCKS
from storage.store import Program

from .blocks import OWNERS, Rows, SectionKind, TallyBlock, decode_rows, decode_tally, encode_rows, section_of

NOBODY = ""  # the owner of a row whose real owner was erased, or is hidden
_AFTER_ALL = "\U0010ffff"  # the name returned for an unknown owner; it sorts after every owner


class _BlockStatements:
    def __init__(self) -> None:
        number, first = col("number"), col("first")
        of_section = self._of_section(col("number"), col("document"))
        text, place = param("text"), param("place", INTEGER)

        def one(query: Select) -> Prepared:
            return query.limit(1).prepared()

        self.first_up_to = one(of_section.where(first.le(text)).order_by(desc(first)))
        self.first_from = one(of_section.where(first.ge(text)).order_by(asc(first)))
        self.at_place = one(of_section.where(number.le(place)).order_by(desc(number)))
        self.up_to_place = of_section.where(number.lt(place)).order_by(asc(number)).prepared()
        self.last = one(self._of_section(number, col("entries"), col("last")).order_by(desc(number)))
        self.directory = self._of_section(number, first).order_by(asc(first)).prepared()
        self.numbered = of_section.where(number.in_(param("numbers"))).prepared()
        self.held = of_section.locked(Lock.UPDATE, asc(number)).prepared()
        self.held_at = of_section.where(number.eq(place)).locked(Lock.UPDATE).prepared()
        changed = update(ARCHIVE_BLOCKS).set(document=param("document"))
        self.change = changed.where(*self._one_section(), number.eq(place)).prepared()

    def _of_section(self, *outputs: Any) -> Select:
        return select(*outputs).from_(ARCHIVE_BLOCKS).where(*self._one_section())

    @staticmethod
    def _one_section() -> tuple[Any, ...]:
        return col("board_key").eq(param("board_key")), col("section").eq(param("section"))


_BLOCK_STATEMENTS = _BlockStatements()


def find_last_block(board_key: int, section: int) -> Program[tuple[int, int, str] | None]:
    """Return facts about the last block of a section, or None if the section has no block.

    The facts are the number of entries in all earlier blocks, the number of entries in the last block, and the last
    owner or cell in that block.
    """
    rows = yield _BLOCK_STATEMENTS.last.bind(board_key=board_key, section=section)
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


class _Unavailable:
    """Replaces an object that needs the removed rows. Reading any attribute raises `ArchivedError`."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ArchivedError


class ArchivedRanking(Ranking):
    def __init__(self, board: Board, index: int) -> None:
        # Do not call the constructor of the base class: it compiles statements over a table that no longer exists.
        self.index, self._board_key, self._columns = index, board.key, len(board.spec.columns)
        self.padding = Padding.for_column(board.spec, board.spec.columns[index])
        self.timed = self.padding.timed
        self._reads = _BLOCK_STATEMENTS
        self._sql = self.neighbours = self.gaps = _Unavailable()  # type: ignore[assignment]

    def _block(self, statement: Prepared, section: int, **bound: Any) -> Program[tuple[int, bytes] | None]:
        rows = yield statement.bind(board_key=self._board_key, section=section, **bound)
        return (rows[0][0], rows[0][1]) if rows else None

    def _tally_of(self, text: str) -> Program[tuple[int, TallyBlock] | None]:
        """Find the tally block that can hold a cell; return the number of entries before the block, and the block.

        This is the last block that begins with this cell or a better one. Return None if there is no such block.
        """
        statement = self._reads.first_from if self.padding.high else self._reads.first_up_to
        found = yield from self._block(statement, section_of(SectionKind.TALLY, self.index), text=text)
        return None if found is None else (found[0], decode_tally(found[1]))

    def _tally_at(self, place: int) -> Program[tuple[int, TallyBlock] | None]:
        found = yield from self._block(self._reads.at_place, section_of(SectionKind.TALLY, self.index), place=place)
        return None if found is None else (found[0], decode_tally(found[1]))

    def _total(self) -> Program[int]:
        last = yield from find_last_block(self._board_key, section_of(SectionKind.TALLY, self.index))
        return 0 if last is None else last[0] + last[1]

    def _top(self, rows_max: int) -> Program[list[Entry]]:
        rows = yield self._reads.up_to_place.bind(
            board_key=self._board_key, section=section_of(SectionKind.TOP, self.index), place=rows_max
        )
        top = [entry for _, document in rows for entry in _widened(document, self._columns)]
        unseen = yield from _hidden_of([entry.owner for entry in top])
        return [_nobodys(entry, self.index) if entry.owner in unseen else entry for entry in top] if unseen else top

    def _whole_top(self) -> Program[list[Entry]]:
        return (yield from self._top(2**62))

    def read_curve(self) -> Program[Curve | None]:
        found = yield from self._block(self._reads.at_place, section_of(SectionKind.CURVE, self.index), place=0)
        return None if found is None else decode_curve(found[1])

    def count_better(self, cell: str) -> Program[int]:
        found = yield from self._tally_of(cell)
        return 0 if found is None else found[0] + found[1].count_better_than(self.padding.key_of_cell(cell))

    def count_better_up_to(self, cell: str, limit: int) -> Program[int]:
        return min(limit, (yield from self.count_better(cell)))

    def count_range(self, *, least: str, past: str) -> Program[int]:
        return (yield from self._less_than(past)) - (yield from self._less_than(least))

    def _less_than(self, text: str) -> Program[int]:
        """Return how many entries have a cell that sorts before `text`. `text` may be shorter than a cell."""
        # `count_better` needs a cell of full width, so missing digits become zeros. ":" sorts after every cell.
        width = len(self.padding.pad(self.padding.min_scaled))
        if text > "9" * width:
            return (yield from self._total())
        cell = text.ljust(width, "0")
        better = yield from self.count_better(cell)
        if not self.padding.high:
            return better
        ties, _ = yield from self.count_tied(cell)
        return (yield from self._total()) - better - ties

    def count_tied(self, cell: str, owner: str = "") -> Program[tuple[int, int]]:
        """Count the entries with this cell, and those of them that stand before `owner`.

        If equal values share a rank, the archive knows the order of tied entries only in its top. For all other owners,
        the second returned number is 0.
        """
        found = yield from self._tally_of(cell)
        ties = 0 if found is None else found[1].count_tied_with(self.padding.key_of_cell(cell))
        if ties < 2 or not owner:
            return ties, 0
        if self.timed:
            return ties, (yield from self._kept_place(owner))
        tied = [entry.owner for entry in (yield from self._whole_top()) if entry.cells[self.index] == cell]
        return ties, tied.index(owner) if owner in tied else 0

    def _kept_place(self, owner: str) -> Program[int]:
        found = yield from self._block(self._reads.first_up_to, OWNERS, text=owner)
        rows = Rows([], {}) if found is None else decode_rows(found[1])
        places = rows.ties_before.get(self.index, [])
        owners = [entry.owner for entry in rows.entries]
        return places[owners.index(owner)] if places and owner in owners else 0

    def find_row(self, start: CountStart | None, rank: int) -> Program[tuple[str, str] | None]:
        return (yield from self.find_row_after_skip(rank - 1))

    def find_row_after_skip(self, skip_rows: int, below: str | None = None) -> Program[tuple[str, str] | None]:
        """Skip rows from the top and return the next row's cell and owner, or None.

        Below the archived top, `_AFTER_ALL` replaces the owner, who is unknown.

        Raises:
            ArchivedError: `below` is given, but an archive can only skip rows from the top.
        """
        if below is not None:
            raise ArchivedError
        if skip_rows >= (yield from self._total()):
            return None
        found = yield from self._tally_at(skip_rows)
        assert found is not None, "the first block begins with the first entry"
        cell = self.padding.cell_of_key(found[1].key_at(skip_rows - found[0]))
        top = yield from self._top(skip_rows + 1)
        return cell, top[skip_rows].owner if skip_rows < len(top) else _AFTER_ALL

    def find_worst_row(self) -> Program[tuple[str, str] | None]:
        total = yield from self._total()
        return (yield from self.find_row_after_skip(total - 1)) if total else None

    def find_next_better(self, cell: str, owner: str) -> Program[tuple[str, str] | None]:
        """Return the next better cell, with `_AFTER_ALL` in place of its owner, who is unknown."""
        key = self.padding.key_of_cell(cell)
        found = yield from self._tally_of(cell)
        better = None if found is None else found[1].next_better_key(key)
        if better is None and found is not None and found[0]:
            previous = yield from self._tally_at(found[0] - 1)
            better = None if previous is None else previous[1].keys[-1]
        return None if better is None else (self.padding.cell_of_key(better), _AFTER_ALL)

    def read_first_rows(self, limit: int) -> Program[list[Entry]]:
        return (yield from self._top(limit))[:limit]

    def read_rows_after(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        top, start = yield from self._placed(cell, owner)
        if start < len(top) and self._is_at(top[start], cell, owner):
            start += 1
        if start == len(top):
            yield from self._check_end(len(top))
        return top[start : start + limit]

    def read_rows_before(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        top, start = yield from self._placed(cell, owner)
        return top[max(0, start - limit) : start]

    def read_rows_around(self, cell: str, owner: str, *, better_rows: int, worse_rows: int) -> Program[Neighbours]:
        top, start = yield from self._placed(cell, owner)
        if start == len(top):
            yield from self._check_end(len(top))
        first = max(0, start - better_rows)
        cells = [entry.cells[self.index] for entry in top]
        near = Neighbours(top[first:start], top[start : start + worse_rows], cells[:start].count(cell))
        if start - first >= 2 and cells[first] == cells[first + 1]:
            near.edge_ties = cells[:first].count(cells[first])
        return near

    def _placed(self, cell: str, owner: str) -> Program[tuple[list[Entry], int]]:
        """Return all rows of the archived top, and the index of the row with this cell and owner among them.

        If there is no such row, return the index of the first row that ranks after this cell and owner.
        """
        top, key = (yield from self._whole_top()), self.padding.key_of_cell(cell)
        for index, entry in enumerate(top):
            if self._is_at(entry, cell, owner):
                return top, index
        keys = [(self.padding.key_of_cell(str(entry.cells[self.index])), entry.owner) for entry in top]
        return top, sum(one < (key, owner) for one in keys)

    def _is_at(self, entry: Entry, cell: str, owner: str) -> bool:
        return entry.owner == owner and entry.cells[self.index] == cell

    def _check_end(self, top_rows: int) -> Program[None]:
        """Raise `ArchivedError` if the ranking had more rows than the archive keeps in its top."""
        if top_rows < (yield from self._total()):
            raise ArchivedError(f"the leaderboard was archived with its first {top_rows} rows by this column")


class ArchivedEntries(Entries):
    @cached_property
    def rankings(self) -> dict[int, Ranking]:
        return {index: ArchivedRanking(self.board, index) for index in self.board.sorted_indexes}

    def read_curve(self, column_index: int) -> Program[Curve | None]:
        ranking = self.rankings[column_index]
        assert isinstance(ranking, ArchivedRanking)
        return (yield from ranking.read_curve())

    def find_entries(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        """Return the entries of these owners, by owner. Owners who are currently hidden are left out."""
        unseen = yield from _hidden_of(owners)
        return (yield from self._kept([owner for owner in owners if owner not in unseen]))

    def of_hidden(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        unseen = yield from _hidden_of(owners)
        return (yield from self._kept([owner for owner in owners if owner in unseen]))

    def _kept(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        if not owners:
            return {}
        reads, key = _BLOCK_STATEMENTS, self.board.key
        if len(owners) == 1:
            rows = yield reads.first_up_to.bind(board_key=key, section=OWNERS, text=owners[0])
        else:
            directory = yield reads.directory.bind(board_key=key, section=OWNERS)
            numbers = {number for owner in owners if (number := _last_up_to(directory, owner)) is not None}
            rows = yield reads.numbered.bind(board_key=key, section=OWNERS, numbers=sorted(numbers))
        wanted, columns = set(owners), len(self.board.spec.columns)
        found = [entry for _, document in rows for entry in _widened(document, columns) if entry.owner in wanted]
        return {entry.owner: entry for entry in found}

    def remove_entry(self, owner: str, happened: ChangeKind, *, now_us: int, place: int = 0) -> Program[Entry | None]:
        """Erase an owner from the archive, and return the owner's entry, or None.

        The ranks of all other owners stay the same, and the change log gets no record. If `happened` is not `ERASED`,
        do nothing: a hidden owner stays in the archive, because readers of an archive look up which owners are hidden.
        """
        if happened is not ChangeKind.ERASED:
            return None
        reads, key = _BLOCK_STATEMENTS, self.board.key
        covering = yield reads.first_up_to.bind(board_key=key, section=OWNERS, text=owner)
        if not covering:
            return None
        held = yield reads.held_at.bind(board_key=key, section=OWNERS, place=covering[0][0])
        rows = decode_rows(held[0][1])
        owners = [entry.owner for entry in rows.entries]
        if owner not in owners:
            return None
        gone = owners.index(owner)
        entry = rows.entries.pop(gone)
        for places in rows.ties_before.values():
            del places[gone]
        yield reads.change.bind(board_key=key, section=OWNERS, place=held[0][0], document=encode_rows(rows))
        for index in self.board.sorted_indexes:
            yield from self._leave_place(index, owner)
        return entry

    def _leave_place(self, index: int, owner: str) -> Program[None]:
        """Replace an owner's row in the archived top of a column by a row of `NOBODY`."""
        reads, key, section = _BLOCK_STATEMENTS, self.board.key, section_of(SectionKind.TOP, index)
        for number, document in (yield reads.held.bind(board_key=key, section=section)):
            rows = decode_rows(document)
            if all(entry.owner != owner for entry in rows.entries):
                continue
            for place, entry in enumerate(rows.entries):
                if entry.owner == owner:
                    rows.entries[place] = _nobodys(entry, index)
            yield reads.change.bind(board_key=key, section=section, place=number, document=encode_rows(rows))


def _hidden_of(owners: Sequence[str]) -> Program[set[str]]:
    return (yield from hidden_statements.find_hidden([], owners)).hidden_owners


def _nobodys(entry: Entry, index: int) -> Entry:
    """Return an entry of `NOBODY` with the same cell in the column `index`, and None in all other columns."""
    return Entry(NOBODY, 0, [cell if at == index else None for at, cell in enumerate(entry.cells)])


def list_archives_of_owner(owner: str, *, after_key: int, limit: int) -> Program[list[int]]:
    """Return the keys of boards whose archives may hold an owner: the first `limit` keys above `after_key`."""
    covering = (col("section").eq(OWNERS), col("first").le(param("owner")), col("last").ge(param("owner")))
    found = select(col("board_key")).from_(ARCHIVE_BLOCKS).where(col("board_key").gt(param("after_key")), *covering)
    rows = yield found.order_by(asc(col("board_key"))).limit(limit).bind(owner=owner, after_key=after_key)
    return [row[0] for row in rows]


def _widened(document: bytes, columns: int) -> list[Entry]:
    """Decode the rows of a block, with None in columns that were added after the board was archived."""
    entries = decode_rows(document).entries
    for entry in entries:
        entry.cells.extend([None] * (columns - len(entry.cells)))
    return entries


def _last_up_to(directory: Sequence[Sequence[Any]], owner: str) -> int | None:
    """Return `number` of the last block that begins with this owner or an earlier one, or None."""
    place = bisect_right([first for _, first in directory], owner)
    return directory[place - 1][0] if place else None
