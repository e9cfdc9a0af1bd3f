"""Names and creates the tables that hold the rows of leaves, with the indexes that order rankings.

A leaf has its own table, or shares a table with other leaves. In a shared table, a leaf's rows are those with its
`rows_key`. This key comes first in the primary key and in every index, so that a leaf never reads another leaf's rows.

All names of these tables, their columns and their indexes are built in this module, from keys and never from request
text.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from querybuilder import (
    INTEGER,
    TEXT,
    Column,
    Condition,
    CreateTable,
    add_column,
    asc,
    col,
    create_index,
    create_table,
    desc,
    param,
)
from querybuilder import SqlType as SqlKind
from storage.records import Best, ColumnKind, ColumnSpec, Leaf
from storage.schema.tables import ROW_TABLES_PREFIX
from storage.store import Program

# In shared tables, this column holds the `rows_key` of the row's leaf. The parameter of `Layout.scope` is named alike.
ROWS_KEY = "rows_key"
SHARED_STATEMENTS_MAX = 1_024  # the most sets of statements in a cache; leaves with equal table and columns share one
_SHARED_SIGNS = {Best.HIGH: "h", Best.LOW: "l"}


class RowColumn(NamedTuple):
    name: str
    kind: SqlKind
    best: Best | None  # None: not ranked


@dataclass(frozen=True, slots=True)
class Layout:
    """A table that holds leaves' rows, and those of its columns that the leaves of one spec use."""

    table: str
    shared: bool
    columns: tuple[RowColumn, ...]

    @property
    def key_kinds(self) -> dict[str, Any]:
        return {ROWS_KEY: INTEGER, "owner": TEXT} if self.shared else {"owner": TEXT}

    @property
    def kinds(self) -> dict[str, Any]:
        return {column.name: column.kind for column in self.columns}

    def row_columns(self, alias: str | None = None) -> tuple[Column, ...]:
        """List the columns that `decode_entry` reads: owner, version, values."""
        return (col("owner", alias), col("updated_at", alias), *(col(one.name, alias) for one in self.columns))

    def scope(self, alias: str | None = None) -> tuple[Condition, ...]:
        """List the conditions that limit a statement to one leaf's rows. `scope_of` returns their parameters."""
        return (col(ROWS_KEY, alias).eq(param(ROWS_KEY, INTEGER)),) if self.shared else ()


def layout_of(leaf: Leaf) -> Layout:
    shared = leaf.table_key is not None
    key = leaf.table_key
    table = entries_table(leaf.key, moves=leaf.rows_key) if key is None else shared_table(key)
    return Layout(table, shared, columns_of(leaf.spec.columns, shared=shared))


def scope_of(leaf: Leaf) -> dict[str, int]:
    return {} if leaf.table_key is None else {ROWS_KEY: leaf.rows_key}


def entries_table(leaf_key: int, *, moves: int = 0) -> str:
    """Name a leaf's own table. `moves`: how often the table has been renamed.

    Each move to another partition changes the name. So if a leaf moves away and back, a process that missed the moves
    writes to a name that no longer exists instead of to the new table. The name also changes when the leaf gets a
    season, because posts to a leaf without a season do not check whether it is closed.
    """
    return f"{ROW_TABLES_PREFIX}{leaf_key}" + (f"_{moves}" if moves else "")


def shared_table(table_key: int) -> str:
    return f"{ROW_TABLES_PREFIX}shared_{table_key}"


def columns_of(columns: Iterable[ColumnSpec], *, shared: bool) -> tuple[RowColumn, ...]:
    """List the database columns that a table of rows needs for the columns of a spec.

    Leaves with different specs may share a table. So in a shared table, a database column's name also says what kind of
    value the column holds.
    """
    found: list[RowColumn] = []
    for index, column in enumerate(columns):
        kind = TEXT if column.sorted or column.keeps_time or column.kind is ColumnKind.TEXT else INTEGER
        best = column.best if column.sorted else None
        sign = ""
        if shared:
            sign = _SHARED_SIGNS[best] if best is not None else ("t" if kind is TEXT else "n")
        found.append(RowColumn(f"c{index + 1}{sign}", kind, best))
    return tuple(found)


def name_columns(table_key: int, names: Iterable[str]) -> Layout:
    signs = {sign: best for best, sign in _SHARED_SIGNS.items()}
    columns = (RowColumn(name, INTEGER if name.endswith("n") else TEXT, signs.get(name[-1])) for name in names)
    return Layout(shared_table(table_key), True, tuple(columns))


def define_row_table(layout: Layout) -> CreateTable:
    table = create_table(layout.table)
    if layout.shared:
        table = table.column(ROWS_KEY, INTEGER)
    table = table.column("owner", TEXT, sortable=True).column("updated_at", INTEGER)
    for column in layout.columns:
        table = table.column(column.name, column.kind, null=True, sortable=column.best is not None)
    return table.primary_key(*layout.key_kinds).clustered()


def create_row_table(layout: Layout) -> Program[None]:
    yield define_row_table(layout).bind()
    for column in layout.columns:
        if column.best is not None:
            yield from create_ranking_index(layout, column)


def add_columns(layout: Layout, added: Iterable[RowColumn]) -> Program[None]:
    for column in added:
        sortable = column.best is not None
        yield add_column(layout.table, column.name, column.kind, sortable=sortable).bind()
        if sortable:
            yield from create_ranking_index(layout, column)


def index_name(layout: Layout, column: RowColumn) -> str:
    return f"{layout.table}_{column.name}"


def create_ranking_index(layout: Layout, column: RowColumn) -> Program[None]:
    """Create a column's ranking index, best value first. The index leaves out rows without a value.

    Equal values are ordered by owner, ascending, whether high or low values are best.
    """
    cell = col(column.name)
    order = desc(cell) if column.best is Best.HIGH else asc(cell)
    of_board = (asc(col(ROWS_KEY)),) if layout.shared else ()
    name, owner = index_name(layout, column), asc(col("owner"))
    yield create_index(name, layout.table, *of_board, order, owner, where=cell.not_null()).bind()
