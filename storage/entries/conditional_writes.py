"""Lock the rows that posts change, and write each row only if its version is unchanged.

One statement covers all boards that share a table, so the cost of a transaction does not grow with the number of
boards. In a shared table, the key of a board in that table and an owner identify a row. In a board's own table, the
owner does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from querybuilder import (
    INTEGER,
    TEXT,
    Lock,
    Prepared,
    all_of,
    asc,
    col,
    insert,
    param,
    rows,
    select,
    update,
)
from storage.boards.row_tables import ROWS_KEY, SHARED_STATEMENTS_MAX, Layout
from storage.records import Entry
from storage.store import Program

UPDATE_STATEMENTS_MAX = 256  # most compiled statements kept for a table; each is for one set of changed columns
_ROW_ALIAS = "v"
_HELD = "e"

RowId = tuple[int, str]  # the board's key in the table, and the owner


class RowWrites:
    """Programs that lock and write the rows of one table. Their statements are compiled once."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._kinds = layout.kinds
        self._key_kinds: dict[str, Any] = {ROWS_KEY: INTEGER, "owner": TEXT} if layout.shared else {"owner": TEXT}
        self._hold = self._compile_hold()
        self._insert = (
            insert(layout.table)
            .rows(param("rows"), **self._key_kinds, updated_at=INTEGER, **self._kinds)
            .on_conflict(*layout.key_columns)
            .do_nothing()
            .prepared()
        )
        self._updates: dict[tuple[int, ...], Prepared] = {}

    def _compile_hold(self) -> Prepared:
        # All writers lock rows in this order. The statement also locks the table, so nobody drops or empties it before
        # the transaction ends.
        table, row = self._layout.table, self._layout.row_columns(_HELD)
        if not self._layout.shared:
            asked = select(*row).from_(table, _HELD).where(col("owner", _HELD).in_(param("owners")))
            return asked.packed().locked(Lock.NO_KEY_UPDATE, asc(col("owner", _HELD))).prepared()
        key, owner = col(ROWS_KEY, _HELD), col("owner", _HELD)
        return (
            select(key, *row)
            .from_(rows(_ROW_ALIAS, param("rows"), **self._key_kinds))
            .join(table, all_of(key.eq(col(ROWS_KEY, _ROW_ALIAS)), owner.eq(col("owner", _ROW_ALIAS))), alias=_HELD)
            .packed()
            .locked(Lock.NO_KEY_UPDATE, asc(key), asc(owner))
            .prepared()
        )

    def lock_rows(self, wanted: Sequence[RowId]) -> Program[list[tuple[int, Entry]]]:
        """Read the wanted rows that exist, and lock them until the transaction ends."""
        if self._layout.shared:
            found = yield self._hold.bind(rows=sorted(wanted))
            return [(key, Entry(owner, version, cells)) for key, owner, version, *cells in found]
        key = wanted[0][0] if wanted else 0
        found = yield self._hold.bind(owners=[owner for _, owner in wanted])
        return [(key, Entry(owner, version, cells)) for owner, version, *cells in found]

    def insert_rows(self, entries: Iterable[tuple[int, Entry]]) -> Program[int]:
        """Insert the rows that the table does not have yet; return how many were inserted."""
        made: list[tuple[Any, ...]]
        if self._layout.shared:
            made = [(key, entry.owner, entry.updated_at_us, *entry.cells) for key, entry in entries]
        else:
            made = [(entry.owner, entry.updated_at_us, *entry.cells) for _, entry in entries]
        made.sort(key=itemgetter(0, 1))  # all writers use one order, so they never deadlock
        inserted = yield self._insert.bind(rows=made)
        return int(inserted[0][0])

    def update_rows(self, indexes: tuple[int, ...], changed: Iterable[tuple[int, Entry, int]]) -> Program[int]:
        """Write some columns of the entries whose stored version is still the expected one.

        Return how many were written. `indexes` should name only columns that changed: an unchanged indexed column in
        SET makes the update at least twice as expensive.
        """
        statement = self._updates.get(indexes)
        if statement is None:
            if len(self._updates) >= UPDATE_STATEMENTS_MAX:
                self._updates.clear()
            statement = self._updates[indexes] = self._compile_update(indexes)
        values = (
            (key, entry.owner, expected, entry.updated_at_us, *[entry.cells[index] for index in indexes])
            for key, entry, expected in changed
        )
        written = yield statement.bind(rows=list(values) if self._layout.shared else [value[1:] for value in values])
        return int(written[0][0])

    def _compile_update(self, indexes: tuple[int, ...]) -> Prepared:
        table, names = self._layout.table, [self._layout.columns[index].name for index in indexes]
        cells = {name: col(name, _ROW_ALIAS) for name in names}
        same_row = [col(name, table).eq(col(name, _ROW_ALIAS)) for name in self._key_kinds]
        return (
            update(table)
            .set(updated_at=col("next", _ROW_ALIAS), **cells)
            .from_rows(
                _ROW_ALIAS,
                param("rows"),
                **self._key_kinds,
                expected=INTEGER,
                next=INTEGER,
                **{name: self._kinds[name] for name in names},
            )
            .where(*same_row, col("updated_at", table).eq(col("expected", _ROW_ALIAS)))
            .prepared()
        )


writes_of = lru_cache(maxsize=SHARED_STATEMENTS_MAX)(RowWrites)
