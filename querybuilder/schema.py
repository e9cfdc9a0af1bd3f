"""Definitions of tables, columns and indexes.

Each call makes a single statement, because Citus requires separate statements. A definition cannot bind values. Its
only constants are the defaults of columns, which may contain only a few kinds of characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from querybuilder.arguments import constant_kind
from querybuilder.dialect import Dialect, SqlType
from querybuilder.errors import BadValueError, IncompleteQueryError, InexpressibleError
from querybuilder.render import Query, Rendering, Statement
from querybuilder.select import render_where
from querybuilder.terms import ASC, Column, Condition, Ordering

# Without quotes and backslashes, a text means the same in every dialect and with any settings of the server.
_DEFAULT_TEXT = re.compile(r"[A-Za-z0-9_.:-]{0,64}")

Default = int | str | None


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    name: str
    kind: SqlType
    null: bool
    default: Default
    sortable: bool

    def render(self, out: Rendering) -> str:
        sql = f"{out.name(self.name)} {out.dialect.type_names[self.kind]}"
        if self.sortable and self.kind is SqlType.TEXT:
            sql += out.dialect.collation
        if not self.null:
            sql += " NOT NULL"
        return sql if self.default is None else f"{sql} DEFAULT {_default_text(self.default)}"


def _define(name: str, kind: SqlType, *, null: bool, default: Default, sortable: bool) -> ColumnDefinition:
    if default is not None and constant_kind(default) is not kind:
        raise BadValueError(f"the default of column {name!r} does not have the column's type")
    return ColumnDefinition(name, kind, null, default, sortable)


def _default_text(default: int | str) -> str:
    if isinstance(default, int):
        return str(int(default))
    if not _DEFAULT_TEXT.fullmatch(default):
        raise BadValueError("a text default has at most 64 of A-Z a-z 0-9 _ . : -")
    return f"'{default}'"


@dataclass(frozen=True, slots=True)
class NumberedColumn:
    """A column that the database fills with numbers, in the order in which rows are inserted."""

    name: str

    def render(self, out: Rendering) -> str:
        return f"{out.name(self.name)} {out.dialect.numbered_column} NOT NULL"


@dataclass(frozen=True, slots=True)
class TransactionColumn:
    """A column that the database fills with the number of the transaction that inserts the row."""

    name: str

    def render(self, out: Rendering) -> str:
        if not out.dialect.transaction:
            raise InexpressibleError("transactions have no numbers in this dialect")
        integer = out.dialect.type_names[SqlType.INTEGER]
        return f"{out.name(self.name)} {integer} NOT NULL DEFAULT {out.dialect.transaction}"


@dataclass(frozen=True, slots=True)
class CreateTable(Query):
    name: str
    columns: tuple[ColumnDefinition | NumberedColumn | TransactionColumn, ...] = ()
    keys: tuple[str, ...] = ()
    is_clustered: bool = False
    guarded: bool = False

    def column(
        self, name: str, kind: SqlType, *, null: bool = False, default: Default = None, sortable: bool = True
    ) -> CreateTable:
        """Add a column. If it is a `sortable` column of text, both databases order its text by code point."""
        definition = _define(name, kind, null=null, default=default, sortable=sortable)
        return replace(self, columns=(*self.columns, definition))

    def numbered(self, name: str) -> CreateTable:
        """Add a `NumberedColumn`, which no insert names. On SQLite it must be the primary key."""
        return replace(self, columns=(*self.columns, NumberedColumn(name)))

    def in_transaction(self, name: str) -> CreateTable:
        """Add a `TransactionColumn`, which no insert names.

        Compiling fails for a dialect whose transactions have no numbers.
        """
        return replace(self, columns=(*self.columns, TransactionColumn(name)))

    def primary_key(self, *names: str) -> CreateTable:
        return replace(self, keys=names)

    def clustered(self) -> CreateTable:
        """Store the rows in the order of the primary key if the database can (SQLite: WITHOUT ROWID)."""
        return replace(self, is_clustered=True)

    def if_not_exists(self) -> CreateTable:
        return replace(self, guarded=True)

    def compile(self, dialect: Dialect) -> Statement:
        if not self.columns:
            raise IncompleteQueryError("a table needs at least one column")
        if self.is_clustered and not self.keys:
            raise IncompleteQueryError("a clustered table needs a primary key")
        out = _ddl(dialect)
        parts = [one.render(out) for one in self.columns]
        if self.keys:
            parts.append(f"PRIMARY KEY ({', '.join(map(out.name, self.keys))})")
        options = dialect.table_options + (dialect.clustered_options if self.is_clustered else ())
        tail = " " + ", ".join(options) if options else ""
        return out.statement(
            f"CREATE TABLE {_unless_there(self.guarded)}{out.name(self.name)} ({', '.join(parts)}){tail}"
        )


@dataclass(frozen=True, slots=True)
class CreateIndex(Query):
    name: str
    table: str
    orders: tuple[Ordering, ...]
    condition: Condition | None = None
    unique: bool = False
    guarded: bool = False

    def if_not_exists(self) -> CreateIndex:
        return replace(self, guarded=True)

    def compile(self, dialect: Dialect) -> Statement:
        if not self.orders:
            raise IncompleteQueryError("an index needs at least one column")
        if any(not isinstance(one.operand, Column) or one.operand.table is not None for one in self.orders):
            raise InexpressibleError("an index takes plain columns without a table name")
        out = _ddl(dialect)
        sql = f"CREATE {'UNIQUE ' if self.unique else ''}INDEX {_unless_there(self.guarded)}{out.name(self.name)}"
        sql += f" ON {out.name(self.table)} ({', '.join(one.render(out) for one in self.orders)})"
        return out.statement(sql + render_where(out, () if self.condition is None else (self.condition,)))


@dataclass(frozen=True, slots=True)
class AddColumn(Query):
    table: str
    definition: ColumnDefinition

    def compile(self, dialect: Dialect) -> Statement:
        out = _ddl(dialect)
        return out.statement(f"ALTER TABLE {out.name(self.table)} ADD COLUMN {self.definition.render(out)}")


@dataclass(frozen=True, slots=True)
class Renumber(Query):
    table: str
    column: str
    numbers: Dialect

    def compile(self, dialect: Dialect) -> Statement:
        if not dialect.transaction:
            raise InexpressibleError("transactions have no numbers in this dialect")
        out = _ddl(dialect)
        table, column = out.name(self.table), out.name(self.column)
        return out.statement(f"ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT {self.numbers.transaction}")


@dataclass(frozen=True, slots=True)
class Drop(Query):
    what: str  # TABLE or INDEX, from this module only
    name: str
    guarded: bool = False

    def if_exists(self) -> Drop:
        return replace(self, guarded=True)

    def compile(self, dialect: Dialect) -> Statement:
        out = _ddl(dialect)
        return out.statement(f"DROP {self.what} {'IF EXISTS ' if self.guarded else ''}{out.name(self.name)}")


def _ddl(dialect: Dialect) -> Rendering:
    return Rendering(dialect, without_arguments="a definition")


def _unless_there(guarded: bool) -> str:
    return "IF NOT EXISTS " if guarded else ""


def create_table(name: str) -> CreateTable:
    return CreateTable(name)


def create_index(
    name: str, table: str, *orders: Ordering | Column, where: Condition | None = None, unique: bool = False
) -> CreateIndex:
    """Return a new index. Plain columns ascend; desc(col) makes one descend. `where` must not bind values."""
    ordered = tuple(one if isinstance(one, Ordering) else Ordering(one, ASC) for one in orders)
    return CreateIndex(name, table, ordered, where, unique)


def add_column(
    table: str, name: str, kind: SqlType, *, null: bool = True, default: Default = None, sortable: bool = True
) -> AddColumn:
    """Return a statement that adds a column. Raises IncompleteQueryError if existing rows would get no value."""
    if not null and default is None:
        raise IncompleteQueryError("a column added to an existing table should be nullable or have a default")
    return AddColumn(table, _define(name, kind, null=null, default=default, sortable=sortable))


def renumber(table: str, column: str, numbers: Dialect) -> Renumber:
    """Return a statement that replaces the default of a column made by `CreateTable.in_transaction`.

    Afterwards, inserted rows get the transaction number as `numbers` computes it; see `numbered_from`. Existing rows
    keep their numbers.
    """
    return Renumber(table, column, numbers)


def drop_table(name: str) -> Drop:
    return Drop("TABLE", name)


def drop_index(name: str) -> Drop:
    return Drop("INDEX", name)
