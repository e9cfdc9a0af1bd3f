"""The rows on both sides of many places in one statement, so that a crowd of requests costs the store one step.

The rule: a place is a cell and an owner, and need not be taken; if it is, its row is the first of `after`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from querybuilder import INTEGER, TEXT, Built, Dialect, Select, Statement, asc, col, count, desc, param, rows, select

from .leaderboards import entries_table, physical
from .records import Best, Board, Entry
from .store import Rows

_decode: Callable[[str], list[list[Any]]] = msgspec.json.Decoder(list[list[Any]]).decode
_PLACE = "q"


class Neighbours(NamedTuple):
    """The rows around one place."""

    before: list[Entry]  # better ones, best first
    after: list[Entry]  # from the place on
    ties_before: int  # rows with the place's cell that stand before its owner


class NeighbourStatement:
    """The statement of one ranked column."""

    def __init__(self, dialect: Dialect, board: Board, index: int) -> None:
        self._dialect, self._table = dialect, entries_table(board.key)
        self._high = board.spec.columns[index].best is Best.HIGH
        self._cell, self._owner = col(physical(index)), col("owner")
        self._row = (self._owner, col("updated_at"), *(col(physical(i)) for i in range(len(board.spec.columns))))

    def bind(self, places: Iterable[tuple[int, str, str]], *, better_rows: int, worse_rows: int) -> Built:
        """The query for places (number, cell, owner); `read` reads its rows."""
        return self._statement.bind(places=places, better_rows=better_rows, worse_rows=worse_rows)

    @staticmethod
    def read(found: Rows, *, better_rows: int, worse_rows: int) -> list[Neighbours]:
        """The neighbours of the places, by number."""
        answers = []
        for _, tied_up, better, tied_down, worse, ties_before in sorted(found, key=lambda row: row[0]):
            before = [*_rows(tied_up), *_rows(better)][:better_rows]
            after = [*_rows(tied_down), *_rows(worse)][:worse_rows]
            answers.append(Neighbours([_entry(row) for row in reversed(before)], [_entry(row) for row in after], ties_before))
        return answers

    @cached_property
    def _statement(self) -> Statement:
        place_cell, place_owner = col("cell", _PLACE), col("owner", _PLACE)
        better = self._cell.gt(place_cell) if self._high else self._cell.lt(place_cell)
        worse = self._cell.lt(place_cell) if self._high else self._cell.gt(place_cell)
        tied = self._cell.eq(place_cell)
        return (
            select(
                col("number", _PLACE),
                self._up().where(tied, self._owner.lt(place_owner)).nested(),
                self._up().where(better).nested(),
                self._down().where(tied, self._owner.ge(place_owner)).nested(),
                self._down().where(worse).nested(),
                select(count()).from_(self._table).where(tied, self._owner.lt(place_owner)).scalar(),
            )
            .from_(rows(_PLACE, param("places"), number=INTEGER, cell=TEXT, owner=TEXT))
            .packed()
            .compile(self._dialect)
        )

    def _up(self) -> Select:
        order = (asc if self._high else desc)(self._cell), desc(self._owner)
        return select(*self._row).from_(self._table).order_by(*order).limit(param("better_rows"))

    def _down(self) -> Select:
        order = (desc if self._high else asc)(self._cell), asc(self._owner)
        return select(*self._row).from_(self._table).order_by(*order).limit(param("worse_rows"))


def _rows(nested: Any) -> list[list[Any]]:
    # Within a packed row some versions of SQLite hand the array through, others its text.
    return nested if isinstance(nested, list) else _decode(nested)


def _entry(row: list[Any]) -> Entry:
    return Entry(row[0], row[1], row[2:])
