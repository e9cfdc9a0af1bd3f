"""Where rows lie: in a table of a board's own, or in one that boards share, where each has the rows of its key.

The rule: tables, columns and indexes of rows are named here, from keys and never from a request. In a shared table the
board's key comes first in the primary key and in every index, so that none reads another's rows; statements are
compiled once a table, whatever the number of its boards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from querybuilder import (
    INTEGER,
    TEXT,
    Column,
    Condition,
    Query,
    add_column,
    asc,
    col,
    create_index,
    create_table,
    desc,
    param,
)
from querybuilder import Kind as SqlKind

from .records import Best, Board, ColumnSpec, Kind

ROWS_KEY = "board_key"  # the column of a shared table that tells boards apart, and in `scope` the parameter
SHARED_STATEMENTS_MAX = 1_024  # sets of statements of shared tables that are kept: a ranked column needs two
_SHARED_SIGNS = {Best.HIGH: "h", Best.LOW: "l"}


class Physical(NamedTuple):
    """A column of a table of rows."""

    name: str
    kind: SqlKind
    best: Best | None  # None: not ranked


@dataclass(frozen=True, slots=True)
class Layout:
    """A table of rows as boards with these columns see it."""

    table: str
    shared: bool
    columns: tuple[Physical, ...]

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The primary key."""
        return (ROWS_KEY, "owner") if self.shared else ("owner",)

    @property
    def kinds(self) -> dict[str, Any]:
        """The kind of each column of values."""
        return {column.name: column.kind for column in self.columns}

    def row(self, alias: str | None = None) -> tuple[Column, ...]:
        """What `entry_of` reads: owner, version, values."""
        return (col("owner", alias), col("updated_at", alias), *(col(one.name, alias) for one in self.columns))

    def scope(self, alias: str | None = None) -> tuple[Condition, ...]:
        """What keeps a statement to the rows of one board; bind it with `scope_of` the board."""
        return (col(ROWS_KEY, alias).eq(param(ROWS_KEY, INTEGER)),) if self.shared else ()


def layout_of(board: Board) -> Layout:
    """Where a board's rows are."""
    shared = board.table_key is not None
    table = entries_table(board.key) if board.table_key is None else shared_table(board.table_key)
    return Layout(table, shared, columns_of(board.spec.columns, shared=shared))


def scope_of(board: Board) -> dict[str, int]:
    """What the statements over its rows are bound with."""
    return {} if board.table_key is None else {ROWS_KEY: board.rows_key}


def entries_table(board_key: int) -> str:
    """The table of a board that has one of its own."""
    return f"entries_{board_key}"


def shared_table(table_key: int) -> str:
    """A table that boards share."""
    return f"entries_shared_{table_key}"


def columns_of(columns: Iterable[ColumnSpec], *, shared: bool) -> tuple[Physical, ...]:
    """The columns for a spec's. Those of a shared table also say what they hold, for boards may differ in that."""
    return tuple(_physical(index, column, shared=shared) for index, column in enumerate(columns))


def _physical(index: int, column: ColumnSpec, *, shared: bool) -> Physical:
    kind = TEXT if column.sorted or column.kind is Kind.TEXT else INTEGER
    best = column.best if column.sorted else None
    sign = ""
    if shared:
        sign = _SHARED_SIGNS[best] if best is not None else ("t" if kind is TEXT else "n")
    return Physical(f"c{index + 1}{sign}", kind, best)


def create_rows(layout: Layout) -> list[Query]:
    """Make the table and its indexes."""
    table = create_table(layout.table)
    if layout.shared:
        table = table.column(ROWS_KEY, INTEGER)
    table = table.column("owner", TEXT, sortable=True).column("updated_at", INTEGER)
    for column in layout.columns:
        table = table.column(column.name, column.kind, null=True, sortable=column.best is not None)
    queries: list[Query] = [table.primary_key(*layout.key_columns).clustered()]
    queries += [ranking_index(layout, column) for column in layout.columns if column.best is not None]
    return queries


def widen_rows(layout: Layout, added: Iterable[Physical]) -> list[Query]:
    """Add columns to the table, with their indexes."""
    queries: list[Query] = []
    for column in added:
        queries.append(add_column(layout.table, column.name, column.kind, null=True, sortable=column.best is not None))
        if column.best is not None:
            queries.append(ranking_index(layout, column))
    return queries


def index_name(layout: Layout, column: Physical) -> str:
    """The name of a column's ranking index."""
    return f"{layout.table}_{column.name}"


def ranking_index(layout: Layout, column: Physical) -> Query:
    """The ranking index of a column: best first, owners ascending within a tie both ways, no row without a value."""
    cell = col(column.name)
    order = desc(cell) if column.best is Best.HIGH else asc(cell)
    of_board = (asc(col(ROWS_KEY)),) if layout.shared else ()
    return create_index(
        index_name(layout, column), layout.table, *of_board, order, asc(col("owner")), where=cell.not_null()
    )
