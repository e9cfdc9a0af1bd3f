"""The statements of one board's rows by owner: reads, conditional writes, erasure, totals.

The rule: they are compiled once for all boards of one table and one spec, and bound per call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

from querybuilder import (
    INTEGER,
    Built,
    Dialect,
    Lock,
    Statement,
    asc,
    col,
    delete,
    excluded,
    insert,
    lit,
    null,
    param,
    plus,
    select,
    union_all,
)

from .change_log import Appended, change_log
from .closures import hold_rows
from .errors import LostRace
from .layouts import ROWS_KEY, SHARED_STATEMENTS_MAX, Layout, layout_of, scope_of
from .leaderboards import ALL_ENTRIES, CHANGES
from .merging import Merger
from .migrate import BOARDS, TOTALS
from .posted import Happened, said_of_event
from .ranked_cells import RankedCells
from .rankings import Ranking, entry_of
from .records import Board, Entry
from .row_writes import RowWrites, shared_writes
from .store import Program, Rows
from .total_shares import shares, stored_index, summed

_ENTRY_ROW = -10  # no column index


class EntryStatements:
    """The statements of a layout."""

    def __init__(self, dialect: Dialect, layout: Layout) -> None:
        table, row, scope = layout.table, layout.row(), layout.scope()
        found = select(*row).from_(table).where(*scope, col("owner").in_(param("owners")))
        self.by_owners = found.packed().compile(dialect)
        # An owner's rows and the board's totals in one statement: a point read is one step of the store.
        no_cells = (null(kind) for kind in layout.kinds.values())
        totals = select(col("column_index"), lit(""), col("entries"), *no_cells).from_(TOTALS)
        self.with_totals = (
            union_all(
                select(lit(_ENTRY_ROW), *row).from_(table).where(*scope, col("owner").in_(param("owners"))),
                totals.where(col("board_key").eq(param("totals_key", INTEGER))),
            )
            .packed()
            .compile(dialect)
        )
        self.erase = delete(table).where(*scope, col("owner").eq(param("owner"))).compile(dialect)
        self._dialect, self._layout = dialect, layout

    @cached_property
    def _of_owner(self) -> Statement:
        found = select(col(ROWS_KEY), *self._layout.row()).from_(self._layout.table)
        mine = found.where(col(ROWS_KEY).in_(param("keys")), col("owner").eq(param("owner")))
        return mine.packed().compile(self._dialect)

    def of_owner(self, owner: str, rows_keys: Sequence[int]) -> Program[dict[int, Entry]]:
        """The owner's entries on boards that share this table, by the boards' keys in it."""
        rows = yield self._of_owner.bind(keys=rows_keys, owner=owner)
        return {row[0]: entry_of(row[1:]) for row in rows}


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _shared_statements(dialect: Dialect, layout: Layout) -> EntryStatements:
    return EntryStatements(dialect, layout)


class Pattern:
    """What boards of one table and one spec have in common: nearly everything, so that opening one costs little."""

    def __init__(self, dialect: Dialect, board: Board) -> None:
        self.spec, self.dialect = board.spec, dialect
        self.layout = layout_of(board)
        shared = self.layout.shared
        self.writes = (shared_writes if shared else RowWrites)(dialect, self.layout)
        self.sql = (_shared_statements if shared else EntryStatements)(dialect, self.layout)
        self.ranked_cells = RankedCells(board)
        self.merger = Merger(board)
        self.sorted_indexes = board.sorted_indexes


class Entries:
    """Reading and writing programs over one board's rows, and a `Ranking` for each sorted column."""

    def __init__(self, dialect: Dialect, board: Board, pattern: Pattern | None = None) -> None:
        self.pattern = pattern or Pattern(dialect, board)
        self.board, self.dialect = board, dialect
        self.layout, self.writes = self.pattern.layout, self.pattern.writes
        self.ranked_cells, self._sql = self.pattern.ranked_cells, self.pattern.sql
        self._scope = scope_of(board)

    @cached_property
    def rankings(self) -> dict[int, Ranking]:
        """By column index. Posts need none."""
        return {index: Ranking(self.dialect, self.board, index) for index in self.board.sorted_indexes}

    def by_owners(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        """The entries of those owners that have one, in one statement."""
        rows = yield self._sql.by_owners.bind(owners=owners, **self._scope)
        return {row[0]: entry_of(row) for row in rows}

    def with_totals(self, owners: Sequence[str]) -> Built:
        """One query for the entries of owners and the totals of the board; `read_with_totals` reads its rows."""
        return self._sql.with_totals.bind(owners=owners, totals_key=self.board.key, **self._scope)

    def erase(self, owner: str, *, now_us: int) -> Program[bool]:
        """Remove an owner's row, log that, and take it out of the totals; False where there was none.

        Raises:
            UnknownBoard: it was deleted.
            BoardChanged: it was archived.
        """
        return (yield from self.take_out(owner, Happened.ERASED, now_us=now_us)) is not None

    def take_out(self, owner: str, happened: Happened, *, now_us: int, place: int = 0) -> Program[Entry | None]:
        """Remove an owner's row and say in the log why, `place` changes having been logged before; None: no row.

        Raises:
            UnknownBoard: the board was deleted.
            BoardChanged: it was archived.
        """
        if self.board.is_unreached:
            return None
        rows_key = yield from hold_rows(self.dialect, self.board)
        held = yield from self.writes.hold([(rows_key, owner)])
        if not held:
            return None
        [(_, entry)] = held
        yield self._sql.erase.bind(owner=owner, **(self._scope and {ROWS_KEY: rows_key}))
        said = said_of_event(happened, entry.cells if happened is Happened.HIDDEN else (), entry.updated_at_us)
        previous = self.ranked_cells.text(entry.cells)
        change = Appended(self.board.key, owner, previous, self.ranked_cells.none, said)
        yield from self._moved(entry, change, -1, now_us=now_us, place=place)
        return entry

    def put_back(self, entry: Entry, *, now_us: int, place: int = 0) -> Program[None]:
        """Insert the row of an owner who is shown again.

        Raises:
            LostRace: there is one.
        """
        rows_key = yield from hold_rows(self.dialect, self.board)
        inserted = yield self.writes.insert_new([(rows_key, entry)])
        if inserted[0][0] != 1:
            raise LostRace(f"{entry.owner!r} has a row already")
        others = [entry.cells[index] for index in self.ranked_cells.others]
        said = said_of_event(Happened.SHOWN, others, entry.updated_at_us)
        following = self.ranked_cells.text(entry.cells)
        change = Appended(self.board.key, entry.owner, self.ranked_cells.none, following, said)
        yield from self._moved(entry, change, 1, now_us=now_us, place=place)

    def _moved(self, entry: Entry, change: Appended, more: int, *, now_us: int, place: int) -> Program[None]:
        yield change_log(self.dialect).append([change], now_us=now_us, place=place)
        counted = {ALL_ENTRIES: more, CHANGES: 1}
        counted.update({index: more for index in self.pattern.sorted_indexes if entry.cells[index] is not None})
        yield add_totals(self.dialect, {self.board.key: counted})


def with_owner(boards: Iterable[Entries], owner: str) -> Program[list[Entries]]:
    """Those of these boards, in shared tables, that have an entry of the owner, which is held: a statement a table."""
    tables: dict[RowWrites, dict[int, Entries]] = defaultdict(dict)
    for entries in boards:
        tables[entries.writes][entries.board.rows_key] = entries
    found: list[Entries] = []
    for writes, by_key in sorted(tables.items(), key=lambda table: min(table[1])):
        held = yield from writes.hold([(rows_key, owner) for rows_key in by_key])
        found += [by_key[rows_key] for rows_key, _ in held]
    return found


def read_with_totals(rows: Rows) -> tuple[dict[str, Entry], dict[int, int]]:
    """Entries by owner and totals by column index, from the rows of `with_totals`."""
    entries: dict[str, Entry] = {}
    stored: list[tuple[int, int]] = []
    for row in rows:
        if row[0] == _ENTRY_ROW:
            entries[row[1]] = Entry(row[1], row[2], list(row[3:]))
        else:
            stored.append((row[0], row[2]))
    return entries, summed(stored)


def add_totals(dialect: Dialect, changes: dict[int, dict[int, int]], *, spread: int = 0) -> Built:
    """Add to the counted entries by board key and column index, in the transaction that changes the rows.

    Any number as `spread` chooses the share that is added to, where transactions would wait for each other.
    """
    share = spread % shares(dialect)
    rows = [
        (key, stored_index(index, share), count)
        for key, by_index in changes.items()
        for index, count in by_index.items()
        if count
    ]
    return _add_totals(dialect).bind(rows=sorted(rows))  # one order for all who write: no deadlock


@lru_cache
def _add_totals(dialect: Dialect) -> Statement:
    return (
        insert(TOTALS)
        .rows(param("rows"), board_key=INTEGER, column_index=INTEGER, entries=INTEGER)
        .on_conflict("board_key", "column_index")
        .do_update(entries=plus(col("entries", TOTALS), excluded("entries")))
        .compile(dialect)
    )


def live_epochs(dialect: Dialect, board_keys: Iterable[int], *, held: bool = False) -> Program[dict[int, int]]:
    """The boards of these keys that still exist, with their epochs; `held`: as they stay until the transaction ends."""
    rows = yield _live_epochs(dialect, held).bind(keys=list(board_keys))
    return {row[0]: row[1] for row in rows}


@lru_cache
def _live_epochs(dialect: Dialect, held: bool) -> Statement:
    epochs = select(col("board_key"), col("epoch")).from_(BOARDS)
    epochs = epochs.where(col("board_key").in_(param("keys"))).packed()
    return (epochs.locked(Lock.SHARE, asc(col("board_key"))) if held else epochs).compile(dialect)


def held_rows_keys(dialect: Dialect, board_keys: Iterable[int]) -> Program[dict[int, int]]:
    """Under which key the rows of boards in shared tables are, by board key; so they stay until the transaction ends.

    Rows of a table that goes away are protected by its name; a board that leaves a shared one, or is emptied there,
    leaves its rows behind, and what is written to them is lost.
    """
    rows = yield _held_rows_keys(dialect).bind(keys=list(board_keys))
    return {row[0]: row[1] for row in rows}


@lru_cache
def _held_rows_keys(dialect: Dialect) -> Statement:
    keys = select(col("board_key"), col("rows_key")).from_(BOARDS).where(col("board_key").in_(param("keys"))).packed()
    return keys.locked(Lock.SHARE, asc(col("board_key"))).compile(dialect)
