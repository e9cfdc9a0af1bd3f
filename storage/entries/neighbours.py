"""Read the rows on both sides of many places in one or two statements, so that many requests need few statements.

A place is a pair of a cell and an owner. If a row with this cell and this owner exists, it is the first row of
`Neighbours.after`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import msgspec

from querybuilder import (
    INTEGER,
    TEXT,
    Column,
    Condition,
    Prepared,
    Term,
    Union,
    asc,
    col,
    count,
    desc,
    if_dialect,
    param,
    rows,
    select,
    sum_,
    union_all,
)
from storage.boards.boards import CHANGES, STATE
from storage.boards.row_tables import SHARED_STATEMENTS_MAX, Layout, layout_of, scope_of
from storage.boards.total_shares import stored_indexes
from storage.records import Best, Board, Entry
from storage.schema.tables import TOTALS
from storage.store import Program, Row

_decode: Callable[[str], list[list[Any]]] = msgspec.json.Decoder(list[list[Any]]).decode
_PLACE = "q"
_OWN = "e"


@dataclass(slots=True)
class Neighbours:
    """The rows around one place."""

    before: list[Entry]  # the better rows, best first
    after: list[Entry]  # the row at the place, if there is one, and the worse rows, best first
    ties_before: int  # number of rows with the place's cell that stand before the place's owner
    # Number of rows with the cell of `before[0]` that stand before that row. 0 unless `before[1]` has the same cell.
    edge_ties: int = 0


class OwnersNeighbours(NamedTuple):
    """The rows around an owner's row, and the totals of the board from the same snapshot."""

    near: Neighbours
    totals: dict[int, int]  # by index: the total of the ranked column, `CHANGES`, and `STATE` if it is stored


class _NeighbourStatements:
    def __init__(self, layout: Layout, index: int) -> None:
        self._layout, self._index = layout, index
        column = layout.columns[index]
        self._table, self._high, self._name = layout.table, column.best is Best.HIGH, column.name
        self._cell, self._owner = col(self._name), col("owner")
        self._row = layout.row_columns()

    @cached_property
    def of_places(self) -> Prepared:
        place = rows(_PLACE, param("places"), number=INTEGER, cell=TEXT, owner=TEXT)
        outputs = self._around(col("cell", _PLACE), col("owner", _PLACE))
        return select(col("number", _PLACE), *outputs).from_(place).packed().prepared()

    @cached_property
    def ties_before(self) -> Prepared:
        place = rows(_PLACE, param("places"), number=INTEGER, cell=TEXT, owner=TEXT)
        ties = self._ties(col("cell", _PLACE), col("owner", _PLACE))
        return select(col("number", _PLACE), ties).from_(place).packed().prepared()

    @cached_property
    def of_owners(self) -> Prepared:
        asked = rows(_PLACE, param("owners"), number=INTEGER, owner=TEXT)
        cell, owner = col(self._name, _OWN), col("owner", _OWN)
        return (
            select(
                col("number", _PLACE),
                *self._around(cell, owner),
                self._total(self._index),
                self._total(CHANGES),
                self._total(STATE),
            )
            .from_(asked)
            .join(self._table, owner.eq(col("owner", _PLACE)), alias=_OWN)
            .where(*self._layout.scope(_OWN), cell.not_null())
            .packed()
            .prepared()
        )

    def _total(self, column_index: int) -> Term:
        found = select(sum_(col("entries"))).from_(TOTALS).where(col("board_key").eq(param("totals_key", INTEGER)))
        stored = col("column_index")
        return found.where(
            if_dialect("row_locks", stored.in_(stored_indexes(column_index)), stored.eq(column_index))
        ).scalar()

    def _around(self, cell: Column, owner: Column) -> tuple[Term, ...]:
        better = self._cell.gt(cell) if self._high else self._cell.lt(cell)
        worse = self._cell.lt(cell) if self._high else self._cell.gt(cell)
        tied = self._cell.eq(cell)
        up = (asc if self._high else desc)(self._cell), desc(self._owner)
        down = (desc if self._high else asc)(self._cell), asc(self._owner)
        return (
            self._either(tied, self._owner.lt(owner), better).order_by(*up).limit(param("better_rows")).nested(),
            self._either(tied, self._owner.ge(owner), worse).order_by(*down).limit(param("worse_rows")).nested(),
            self._ties(cell, owner),
        )

    def _ties(self, cell: Column, owner: Column) -> Term:
        tied = select(count()).from_(self._table).where(*self._layout.scope(), self._cell.eq(cell))
        return tied.where(self._owner.lt(owner)).scalar()

    def _either(self, tied: Condition, on_its_side: Condition, beyond: Condition) -> Union:
        """Select a place's ties on one side and the rows beyond. The caller orders and limits both parts together."""
        rows_of = select(*self._row).from_(self._table).where(*self._layout.scope())
        return union_all(rows_of.where(tied, on_its_side), rows_of.where(beyond))


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _shared_statements(layout: Layout, index: int) -> _NeighbourStatements:
    return _NeighbourStatements(layout, index)


class NeighbourReads:
    """Programs that read the rows around places of one ranked column of a board."""

    def __init__(self, board: Board, index: int) -> None:
        make = _NeighbourStatements if board.table_key is None else _shared_statements
        self._sql = make(layout_of(board), index)
        self._scope, self._board_key, self._index = scope_of(board), board.key, index

    def read_around_place(self, cell: str, owner: str, *, better_rows: int, worse_rows: int) -> Program[Neighbours]:
        (row,) = yield self._sql.of_places.bind(
            places=[(0, cell, owner)], better_rows=better_rows, worse_rows=worse_rows, **self._scope
        )
        near = _neighbours(row)
        yield from self._count_edges([(cell, near)])
        return near

    def read_around_owners(
        self, owners: Sequence[str], *, better_rows: int, worse_rows: int
    ) -> Program[dict[int, OwnersNeighbours]]:
        """Return the rows around each owner that has a value in the column, by the owner's index in `owners`."""
        found = yield self._sql.of_owners.bind(
            owners=list(enumerate(owners)),
            better_rows=better_rows,
            worse_rows=worse_rows,
            totals_key=self._board_key,
            **self._scope,
        )
        near = {
            row[0]: OwnersNeighbours(
                _neighbours(row),
                {self._index: row[4] or 0, CHANGES: row[5] or 0, **({STATE: row[6]} if row[6] else {})},
            )
            for row in found
        }
        yield from self._count_edges([(each.near.after[0].cells[self._index], each.near) for each in near.values()])
        return near

    def _count_edges(self, places: Iterable[tuple[Any, Neighbours]]) -> Program[None]:
        """Fill in `edge_ties` of the rows around many places. The edge of a place is the first row of `before`.

        If the edge and the place have the same cell, `edge_ties` follows from `ties_before`. One statement counts the
        ties of all other edges.
        """
        index = self._index
        to_count: list[Neighbours] = []
        for cell, near in places:
            if len(near.before) < 2 or near.before[0].cells[index] != near.before[1].cells[index]:
                continue
            if near.before[0].cells[index] == cell:
                near.edge_ties = near.ties_before - len(near.before)
            else:
                to_count.append(near)
        if to_count:
            edges = (
                (number, near.before[0].cells[index], near.before[0].owner) for number, near in enumerate(to_count)
            )
            for number, ties in (yield self._sql.ties_before.bind(places=edges, **self._scope)):
                to_count[number].edge_ties = ties


def _neighbours(row: Row) -> Neighbours:
    before, after = _rows(row[1]), _rows(row[2])
    return Neighbours([_entry(each) for each in reversed(before)], [_entry(each) for each in after], row[3])


def _rows(nested: Any) -> list[list[Any]]:
    # For an array within a packed row, some versions of SQLite return the array itself, and others its JSON text.
    return nested if isinstance(nested, list) else _decode(nested)


def _entry(row: list[Any]) -> Entry:
    return Entry(row[0], row[1], row[2:])
