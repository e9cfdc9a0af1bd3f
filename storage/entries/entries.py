"""The statements for one board's rows by owner: reads, conditional writes, erasure, totals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

from querybuilder import (
    INTEGER,
    Lock,
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
from storage.boards.boards import ALL_ENTRIES, CHANGES, add_up_shares
from storage.boards.closed_boards import hold_rows_key
from storage.boards.row_tables import ROWS_KEY, SHARED_STATEMENTS_MAX, Layout, layout_of, scope_of
from storage.errors import LostRaceError
from storage.log.cells import RankedCells
from storage.log.change_log import NewChange, change_log
from storage.log.log_record import ChangeKind, record_of_event
from storage.log.merging import Merger
from storage.records import Board, BoardSpec, Entry
from storage.schema.tables import BOARDS, TOTALS
from storage.store import Program

from .conditional_writes import RowWrites, writes_of
from .rankings import Ranking, decode_entry

_ENTRY_ROW = -10  # marks a result row that holds an entry instead of a total; no column has this index


class _EntryStatements:
    def __init__(self, layout: Layout) -> None:
        table, row, scope = layout.table, layout.row_columns(), layout.scope()
        found = select(*row).from_(table).where(*scope, col("owner").in_(param("owners")))
        self.by_owners = found.packed().prepared()
        # One statement reads the owners' rows and the board's totals, so a point read costs one round trip.
        no_cells = (null(kind) for kind in layout.kinds.values())
        totals = select(col("column_index"), lit(""), col("entries"), *no_cells).from_(TOTALS)
        self.with_totals = (
            union_all(
                select(lit(_ENTRY_ROW), *row).from_(table).where(*scope, col("owner").in_(param("owners"))),
                totals.where(col("board_key").eq(param("totals_key", INTEGER))),
            )
            .packed()
            .prepared()
        )
        self.erase = delete(table).where(*scope, col("owner").eq(param("owner"))).prepared()
        on_boards = select(col(ROWS_KEY), *row).from_(table)
        on_boards = on_boards.where(col(ROWS_KEY).in_(param("keys")), col("owner").eq(param("owner")))
        self.of_owner = on_boards.packed().prepared()


_statements_of = lru_cache(maxsize=SHARED_STATEMENTS_MAX)(_EntryStatements)


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _rules_of(spec: BoardSpec) -> tuple[RankedCells, Merger]:
    return RankedCells(spec), Merger(spec)


class Entries:
    """Programs that read and write one board's rows, its merge rules, and a `Ranking` for each sorted column.

    Boards with the same table and columns share statements, and boards with the same spec share rules.
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self.layout = layout_of(board)
        self.writes, self._sql = writes_of(self.layout), _statements_of(self.layout)
        self.ranked_cells, self.merger = _rules_of(board.spec)
        self._scope = scope_of(board)

    @cached_property
    def rankings(self) -> dict[int, Ranking]:
        """Return the rankings by column index. They are created on first use, because posts need none."""
        return {index: Ranking(self.board, index) for index in self.board.sorted_indexes}

    def find_entries(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        """Return the entries of these owners, by owner, in one statement. Owners without an entry are left out."""
        rows = yield self._sql.by_owners.bind(owners=owners, **self._scope)
        return {row[0]: decode_entry(row) for row in rows}

    def find_entries_with_totals(self, owners: Sequence[str]) -> Program[tuple[dict[str, Entry], dict[int, int]]]:
        """Return the result of `find_entries` and the board's totals by column index, in one statement."""
        rows = yield self._sql.with_totals.bind(owners=owners, totals_key=self.board.key, **self._scope)
        entries: dict[str, Entry] = {}
        stored: list[tuple[int, int]] = []
        for row in rows:
            if row[0] == _ENTRY_ROW:
                entries[row[1]] = Entry(row[1], row[2], list(row[3:]))
            else:
                stored.append((row[0], row[2]))
        return entries, add_up_shares(stored)

    def erase_entry(self, owner: str, *, now_us: int) -> Program[bool]:
        """Remove an owner's row, as `remove_entry` does; return False if there was no row."""
        return (yield from self.remove_entry(owner, ChangeKind.ERASED, now_us=now_us)) is not None

    def remove_entry(self, owner: str, happened: ChangeKind, *, now_us: int, place: int = 0) -> Program[Entry | None]:
        """Remove an owner's row, log `happened` as the reason and adjust the totals; return the entry, or None.

        `place`: how many changes this transaction has already logged.

        Raises:
            UnknownBoardError: the board was deleted.
            BoardChangedError: the board was archived.
        """
        if self.board.is_unreached:
            return None
        rows_key = yield from hold_rows_key(self.board)
        held = yield from self.writes.lock_rows([(rows_key, owner)])
        if not held:
            return None
        [(_, entry)] = held
        yield self._sql.erase.bind(owner=owner, **(self._scope and {ROWS_KEY: rows_key}))
        said = record_of_event(happened, entry.cells if happened is ChangeKind.HIDDEN else (), entry.updated_at_us)
        previous = self.ranked_cells.join_cells(entry.cells)
        change = NewChange(self.board.key, owner, previous, self.ranked_cells.none, said)
        yield from self._moved(entry, change, -1, now_us=now_us, place=place)
        return entry

    def restore_entry(self, entry: Entry, *, now_us: int, place: int = 0) -> Program[None]:
        """Insert the row of an owner who is shown again, log the change and adjust the totals.

        Raises:
            LostRaceError: the owner has a row already.
        """
        rows_key = yield from hold_rows_key(self.board)
        inserted = yield from self.writes.insert_rows([(rows_key, entry)])
        if inserted != 1:
            raise LostRaceError(f"{entry.owner!r} has a row already")
        others = [entry.cells[index] for index in self.ranked_cells.others]
        said = record_of_event(ChangeKind.SHOWN, others, entry.updated_at_us)
        following = self.ranked_cells.join_cells(entry.cells)
        change = NewChange(self.board.key, entry.owner, self.ranked_cells.none, following, said)
        yield from self._moved(entry, change, 1, now_us=now_us, place=place)

    def _moved(self, entry: Entry, change: NewChange, more: int, *, now_us: int, place: int) -> Program[None]:
        yield from change_log.append_changes([change], now_us=now_us, place=place)
        counted = {ALL_ENTRIES: more, CHANGES: 1}
        counted.update({index: more for index in self.board.sorted_indexes if entry.cells[index] is not None})
        yield from add_totals({self.board.key: counted})


def find_on_shared_tables(boards: Iterable[Entries], owner: str) -> Program[dict[int, Entry]]:
    """Return the owner's entries by board key. All boards have to be in shared tables; each table costs a statement."""
    tables: dict[_EntryStatements, dict[int, int]] = defaultdict(dict)  # board keys, by table and by rows key
    for entries in boards:
        tables[entries._sql][entries.board.rows_key] = entries.board.key
    found: dict[int, Entry] = {}
    for statements, by_rows_key in tables.items():
        rows = yield statements.of_owner.bind(keys=list(by_rows_key), owner=owner)
        found |= {by_rows_key[row[0]]: decode_entry(row[1:]) for row in rows}
    return found


def lock_boards_with_owner(boards: Iterable[Entries], owner: str) -> Program[list[Entries]]:
    """Lock the owner's entries and return the boards that have one. All boards have to be in shared tables."""
    tables: dict[RowWrites, dict[int, Entries]] = defaultdict(dict)
    for entries in boards:
        tables[entries.writes][entries.board.rows_key] = entries
    found: list[Entries] = []
    for writes, by_key in sorted(tables.items(), key=lambda table: min(table[1])):
        held = yield from writes.lock_rows([(rows_key, owner) for rows_key in by_key])
        found += [by_key[rows_key] for rows_key, _ in held]
    return found


def add_totals(changes: dict[int, dict[int, int]], *, share: int = 0) -> Program[None]:
    """Add to the totals of boards. Call this in the transaction that changes the rows.

    `changes`: what to add, by board key and column index. A total is stored in several rows, its shares. Transactions
    that change different shares do not wait for each other. A share is less than `TOTAL_SHARES`.
    """
    rows = [
        (key, index, share, count) for key, by_index in changes.items() for index, count in by_index.items() if count
    ]
    yield _ADD_TOTALS.bind(rows=sorted(rows))  # all writers use one order, so they never deadlock


_ADD_TOTALS = (
    insert(TOTALS)
    .rows(param("rows"), board_key=INTEGER, column_index=INTEGER, share=INTEGER, entries=INTEGER)
    .on_conflict("board_key", "column_index", "share")
    .do_update(entries=plus(col("entries", TOTALS), excluded("entries")))
    .prepared()
)


def read_live_epochs(board_keys: Iterable[int], *, held: bool = False) -> Program[dict[int, int]]:
    """Return the epochs of the boards that still exist, by board key. `held`: lock these boards in the catalog."""
    rows = yield (_HELD_BOARDS if held else _LIVE_BOARDS).bind(keys=list(board_keys))
    return {row[0]: row[1] for row in rows}


def lock_rows_keys(board_keys: Iterable[int]) -> Program[dict[int, int]]:
    """Lock the keys of the boards' rows in shared tables until the transaction ends, and return them by board key.

    A board that leaves a shared table, or is emptied there, leaves its old rows behind. Without the lock, a write to
    these old rows would be lost. A board in a table of its own needs no lock: a write to a dropped table fails.
    """
    rows = yield _HELD_BOARDS.bind(keys=list(board_keys))
    return {row[0]: row[2] for row in rows}


_BOARDS_BY_KEY = select(col("board_key"), col("epoch"), col("rows_key")).from_(BOARDS)
_BOARDS_BY_KEY = _BOARDS_BY_KEY.where(col("board_key").in_(param("keys"))).packed()
_LIVE_BOARDS = _BOARDS_BY_KEY.prepared()
_HELD_BOARDS = _BOARDS_BY_KEY.locked(Lock.SHARE, asc(col("board_key"))).prepared()
