"""The rows on both sides of many places in one statement, so that a crowd of requests costs the store one step.

The rule: a place is a cell and an owner, and need not be taken; if it is, its row is the first of `after`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from querybuilder import (
    INTEGER,
    TEXT,
    Built,
    Column,
    Dialect,
    Select,
    Statement,
    Term,
    asc,
    col,
    count,
    desc,
    param,
    rows,
    select,
)

from .leaderboards import CHANGES, entries_table, physical
from .migrate import TOTALS
from .records import Best, Board, Entry
from .store import Row, Rows

_decode: Callable[[str], list[list[Any]]] = msgspec.json.Decoder(list[list[Any]]).decode
_PLACE = "q"
_OWN = "e"


class Neighbours(NamedTuple):
    """The rows around one place."""

    before: list[Entry]  # better ones, best first
    after: list[Entry]  # from the place on
    ties_before: int  # rows with the place's cell that stand before its owner


class OwnersNeighbours(NamedTuple):
    """The rows around an owner's own, in one snapshot with the totals of its board."""

    near: Neighbours
    totals: dict[int, int]  # of the ranked column and of changes


class NeighbourStatement:
    """The statements of one ranked column."""

    def __init__(self, dialect: Dialect, board: Board, index: int) -> None:
        self._dialect, self._table = dialect, entries_table(board.key)
        self._board_key, self._index = board.key, index
        self._high = board.spec.columns[index].best is Best.HIGH
        self._name = physical(index)
        self._cell, self._owner = col(self._name), col("owner")
        self._row = (self._owner, col("updated_at"), *(col(physical(i)) for i in range(len(board.spec.columns))))

    def of_places(self, places: Iterable[tuple[int, str, str]], *, better_rows: int, worse_rows: int) -> Built:
        """The query for places (number, cell, owner); `read_places` reads its rows."""
        return self._of_places.bind(places=places, better_rows=better_rows, worse_rows=worse_rows)

    def of_owners(self, owners: Iterable[tuple[int, str]], *, better_rows: int, worse_rows: int) -> Built:
        """The query for the rows of owners (number, owner); `read_owners` reads its rows."""
        return self._of_owners.bind(owners=owners, better_rows=better_rows, worse_rows=worse_rows)

    @staticmethod
    def read_places(found: Rows, *, better_rows: int, worse_rows: int) -> list[Neighbours]:
        """The neighbours of the places, by number."""
        ordered = sorted(found, key=lambda row: row[0])
        return [_neighbours(row, better_rows=better_rows, worse_rows=worse_rows) for row in ordered]

    def read_owners(self, found: Rows, *, better_rows: int, worse_rows: int) -> dict[int, OwnersNeighbours]:
        """The neighbours of those owners that have a value in the column, by number."""
        return {
            row[0]: OwnersNeighbours(
                _neighbours(row, better_rows=better_rows, worse_rows=worse_rows),
                {self._index: row[6] or 0, CHANGES: row[7] or 0},
            )
            for row in found
        }

    @cached_property
    def _of_places(self) -> Statement:
        place = rows(_PLACE, param("places"), number=INTEGER, cell=TEXT, owner=TEXT)
        outputs = self._around(col("cell", _PLACE), col("owner", _PLACE))
        return select(col("number", _PLACE), *outputs).from_(place).packed().compile(self._dialect)

    @cached_property
    def _of_owners(self) -> Statement:
        asked = rows(_PLACE, param("owners"), number=INTEGER, owner=TEXT)
        cell, owner = col(self._name, _OWN), col("owner", _OWN)
        totals = select(col("entries")).from_(TOTALS).where(col("board_key").eq(self._board_key))
        return (
            select(
                col("number", _PLACE),
                *self._around(cell, owner),
                totals.where(col("column_index").eq(self._index)).scalar(),
                totals.where(col("column_index").eq(CHANGES)).scalar(),
            )
            .from_(asked)
            .join(self._table, owner.eq(col("owner", _PLACE)), alias=_OWN)
            .where(cell.not_null())
            .packed()
            .compile(self._dialect)
        )

    def _around(self, cell: Column, owner: Column) -> tuple[Term, ...]:
        better = self._cell.gt(cell) if self._high else self._cell.lt(cell)
        worse = self._cell.lt(cell) if self._high else self._cell.gt(cell)
        tied = self._cell.eq(cell)
        return (
            self._up().where(tied, self._owner.lt(owner)).nested(),
            self._up().where(better).nested(),
            self._down().where(tied, self._owner.ge(owner)).nested(),
            self._down().where(worse).nested(),
            select(count()).from_(self._table).where(tied, self._owner.lt(owner)).scalar(),
        )

    def _up(self) -> Select:
        order = (asc if self._high else desc)(self._cell), desc(self._owner)
        return select(*self._row).from_(self._table).order_by(*order).limit(param("better_rows"))

    def _down(self) -> Select:
        order = (desc if self._high else asc)(self._cell), asc(self._owner)
        return select(*self._row).from_(self._table).order_by(*order).limit(param("worse_rows"))


def _neighbours(row: Row, *, better_rows: int, worse_rows: int) -> Neighbours:
    before = [*_rows(row[1]), *_rows(row[2])][:better_rows]
    after = [*_rows(row[3]), *_rows(row[4])][:worse_rows]
    return Neighbours([_entry(each) for each in reversed(before)], [_entry(each) for each in after], row[5])


def _rows(nested: Any) -> list[list[Any]]:
    # Within a packed row some versions of SQLite hand the array through, others its text.
    return nested if isinstance(nested, list) else _decode(nested)


def _entry(row: list[Any]) -> Entry:
    return Entry(row[0], row[1], row[2:])
