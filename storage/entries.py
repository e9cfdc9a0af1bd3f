"""The statements of one board's rows by owner: reads, conditional writes, erasure, totals.

The rule: they are compiled once a board and bound per call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from querybuilder import (
    INTEGER,
    TEXT,
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
    this_transaction,
    union_all,
    update,
)

from .change_log import Appended, change_log
from .errors import LostRace
from .leaderboards import ALL_ENTRIES, CHANGES, entries_table, physical
from .migrate import BOARDS, TOTALS
from .posted import Happened, event_text
from .ranked_cells import RankedCells
from .rankings import Ranking, entry_of
from .records import Board, Entry, Kind
from .store import Program, Rows
from .total_shares import shares, stored_index, summed

_ROW_ALIAS = "v"
_ENTRY_ROW = -10  # no column index
UPDATE_STATEMENTS_MAX = 256  # sets of changed columns whose statement is kept, a board


class Entries:
    """Reading and writing programs over one board's rows, and a `Ranking` for each sorted column."""

    def __init__(self, dialect: Dialect, board: Board) -> None:
        self.board = board
        self.rankings = {index: Ranking(dialect, board, index) for index in board.sorted_indexes}
        self.ranked_cells = RankedCells(board)
        self.dialect = dialect
        self._table = entries_table(board.key)
        self._types: dict[str, Any] = {
            physical(index): TEXT if column.sorted or column.kind is Kind.TEXT else INTEGER
            for index, column in enumerate(board.spec.columns)
        }
        self._row = (col("owner"), col("updated_at"), *(col(name) for name in self._types))
        rows = select(*self._row).from_(self._table)
        by_owners = rows.where(col("owner").in_(param("owners"))).packed()
        self._by_owners = by_owners.compile(dialect)
        # In this order, which no two writers disagree on. The lock on the table that comes with it keeps the board from
        # being dropped or emptied until the transaction ends.
        self._held_by_owners = by_owners.locked(Lock.NO_KEY_UPDATE, asc(col("owner"))).compile(dialect)
        # An owner's rows and the board's totals in one statement: a point read is one step of the store.
        no_cells = (null(kind) for kind in self._types.values())
        totals = select(col("column_index"), lit(""), col("entries"), *no_cells).from_(TOTALS)
        self._by_owners_with_totals = (
            union_all(
                select(lit(_ENTRY_ROW), *self._row).from_(self._table).where(col("owner").in_(param("owners"))),
                totals.where(col("board_key").eq(board.key)),
            )
            .packed()
            .compile(dialect)
        )
        self._erase = delete(self._table).where(col("owner").eq(param("owner"))).compile(dialect)
        self._insert = (
            insert(self._table)
            .rows(param("rows"), owner=TEXT, updated_at=INTEGER, **self._types)
            .on_conflict("owner")
            .do_nothing()
            .compile(dialect)
        )
        self._updates: dict[tuple[int, ...], Statement] = {}

    def by_owners(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        """The entries of those owners that have one, in one statement."""
        rows = yield self._by_owners.bind(owners=owners)
        return {row[0]: entry_of(row) for row in rows}

    def hold_owners(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        """`by_owners`, for who is about to change them: nobody else can before the transaction ends."""
        rows = yield self._held_by_owners.bind(owners=owners)
        return {row[0]: entry_of(row) for row in rows}

    def with_totals(self, owners: Sequence[str]) -> Built:
        """One query for the entries of owners and the totals of the board; `read_with_totals` reads its rows."""
        return self._by_owners_with_totals.bind(owners=owners)

    def insert_new(self, entries: Iterable[Entry]) -> Built:
        """Insert rows where the owner is still absent; answers how many were."""
        return self._insert.bind(rows=[(entry.owner, entry.updated_at_us, *entry.cells) for entry in entries])

    def update_changed(self, indexes: tuple[int, ...], changed: Iterable[tuple[Entry, int]]) -> Built:
        """Write those columns of entries whose version is still the expected one; answers how many were.

        Only changed columns are named: an unchanged indexed column in SET costs twice and more.
        """
        statement = self._updates.get(indexes)
        if statement is None:
            if len(self._updates) >= UPDATE_STATEMENTS_MAX:
                self._updates.clear()
            statement = self._updates[indexes] = self._compile_update(indexes)
        rows = [
            (entry.owner, expected, entry.updated_at_us, *(entry.cells[index] for index in indexes))
            for entry, expected in changed
        ]
        return statement.bind(rows=rows)

    def _compile_update(self, indexes: tuple[int, ...]) -> Statement:
        names = [physical(index) for index in indexes]
        cells = {name: col(name, _ROW_ALIAS) for name in names}
        return (
            update(self._table)
            .set(updated_at=col("next", _ROW_ALIAS), **cells)
            .from_rows(
                _ROW_ALIAS,
                param("rows"),
                owner=TEXT,
                expected=INTEGER,
                next=INTEGER,
                **{name: self._types[name] for name in names},
            )
            .where(
                col("owner", self._table).eq(col("owner", _ROW_ALIAS)),
                col("updated_at", self._table).eq(col("expected", _ROW_ALIAS)),
            )
            .compile(self.dialect)
        )

    def erase(self, owner: str, *, now_us: int) -> Program[bool]:
        """Remove an owner's row, log that, and take it out of the totals; False where there was none."""
        return (yield from self.take_out(owner, Happened.ERASED, now_us=now_us)) is not None

    def take_out(self, owner: str, happened: Happened, *, now_us: int, place: int = 0) -> Program[Entry | None]:
        """Remove an owner's row and say in the log why, `place` changes having been logged before; None: no row."""
        entry = (yield from self.hold_owners([owner])).get(owner)
        if entry is None:
            return None
        yield self._erase.bind(owner=owner)
        detail = event_text(happened, entry.cells if happened is Happened.HIDDEN else (), entry.updated_at_us)
        previous = self.ranked_cells.text(entry.cells)
        change = Appended(self.board.key, owner, now_us, previous, self.ranked_cells.none, detail)
        yield from self._moved(entry, change, place, -1)
        return entry

    def put_back(self, entry: Entry, *, now_us: int, place: int = 0) -> Program[None]:
        """Insert the row of an owner who is shown again.

        Raises:
            LostRace: there is one.
        """
        inserted = yield self.insert_new([entry])
        if inserted[0][0] != 1:
            raise LostRace(f"{entry.owner!r} has a row already")
        others = [entry.cells[index] for index in self.ranked_cells.others]
        detail = event_text(Happened.SHOWN, others, entry.updated_at_us)
        following = self.ranked_cells.text(entry.cells)
        change = Appended(self.board.key, entry.owner, now_us, self.ranked_cells.none, following, detail)
        yield from self._moved(entry, change, place, 1)

    def _moved(self, entry: Entry, change: Appended, place: int, more: int) -> Program[None]:
        yield change_log(self.dialect).append([change], place=place)
        counted = {ALL_ENTRIES: more, CHANGES: 1}
        counted.update({index: more for index in self.rankings if entry.cells[index] is not None})
        yield add_totals(self.dialect, {self.board.key: counted})


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


def live_epochs(
    dialect: Dialect, board_keys: Iterable[int], *, held: bool = False, writing: bool = False
) -> Program[dict[int, int]]:
    """The boards of these keys that still exist, with their epochs; `held`: as they stay until the transaction ends.

    `writing`: have the transaction numbered, so that `Hidden.settled` waits for it from here on.
    """
    rows = yield _live_epochs(dialect, held, writing).bind(keys=list(board_keys))
    return {row[0]: row[1] for row in rows}


@lru_cache
def _live_epochs(dialect: Dialect, held: bool, writing: bool) -> Statement:
    epochs = select(col("board_key"), col("epoch"), *[this_transaction()] * writing).from_(BOARDS)
    epochs = epochs.where(col("board_key").in_(param("keys"))).packed()
    return (epochs.locked(Lock.SHARE, asc(col("board_key"))) if held else epochs).compile(dialect)
