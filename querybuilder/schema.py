"""Builds statements that define tables, columns, indexes and database schemas.

Each call makes a single statement, because Citus requires separate statements. A definition cannot bind values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from querybuilder.dialect import SqlType, quote
from querybuilder.errors import QueryError
from querybuilder.render import Command, Node, Query, Rendering
from querybuilder.select import render_where
from querybuilder.terms import Column, Condition, Ordering, asc


class Definition(Command):
    __slots__ = ()
    is_definition: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ColumnDefinition(Node):
    name: str
    kind: SqlType
    null: bool = False
    sortable: bool = True

    def render(self, out: Rendering) -> str:
        sql = f"{out.name(self.name)} {out.dialect.type_names[self.kind]}"
        if self.sortable and self.kind is SqlType.TEXT:
            sql += out.dialect.collation
        return sql if self.null else sql + " NOT NULL"


@dataclass(frozen=True, slots=True)
class CreateTable(Query):
    is_definition: ClassVar[bool] = True

    name: str
    columns: tuple[ColumnDefinition, ...] = ()
    keys: tuple[str, ...] = ()
    is_clustered: bool = False
    guarded: bool = False

    @property
    def kinds(self) -> dict[str, SqlType]:
        """The `SqlType` of each column by name, in column order."""
        return {column.name: column.kind for column in self.columns}

    def column(self, name: str, kind: SqlType, *, null: bool = False, sortable: bool = True) -> CreateTable:
        """Add a column. If it is a `sortable` text column, both databases order its text by code point."""
        return replace(self, columns=(*self.columns, ColumnDefinition(name, kind, null, sortable)))

    def with_columns(self, /, **kinds: SqlType) -> CreateTable:
        added = (ColumnDefinition(name, kind) for name, kind in kinds.items())
        return replace(self, columns=(*self.columns, *added))

    def primary_key(self, *names: str) -> CreateTable:
        return replace(self, keys=names)

    def clustered(self) -> CreateTable:
        """Store the rows in the order of the primary key if the database can (SQLite: WITHOUT ROWID)."""
        return replace(self, is_clustered=True)

    def if_not_exists(self) -> CreateTable:
        return replace(self, guarded=True)

    def render(self, out: Rendering) -> str:
        if not self.columns:
            raise QueryError("a table needs at least one column")
        if self.is_clustered and not self.keys:
            raise QueryError("a clustered table needs a primary key")
        parts = [one.render(out) for one in self.columns]
        if self.keys:
            parts.append(f"PRIMARY KEY ({', '.join(map(out.name, self.keys))})")
        options = out.dialect.table_options + (out.dialect.clustered_options if self.is_clustered else ())
        tail = " " + ", ".join(options) if options else ""
        guard = "IF NOT EXISTS " if self.guarded else ""
        return f"CREATE TABLE {guard}{out.table(self.name)} ({', '.join(parts)}){tail}"


def create_table(name: str) -> CreateTable:
    return CreateTable(name)


def create_index(
    name: str, table: str, *orders: Ordering | Column, where: Condition | None = None, unique: bool = False
) -> Query:
    """Build a statement that creates an index. desc(col) makes a column descend. `where` cannot bind values."""
    ordered = [one if isinstance(one, Ordering) else asc(one) for one in orders]

    def write(out: Rendering) -> str:
        if not ordered:
            raise QueryError("an index needs at least one column")
        if any(not isinstance(one.operand, Column) or one.operand.table is not None for one in ordered):
            raise QueryError("an index takes plain columns without a table name")
        sql = f"CREATE {'UNIQUE ' if unique else ''}INDEX {out.name(name)}"
        sql += f" ON {out.table(table)} ({', '.join(one.render(out) for one in ordered)})"
        return sql + render_where(out, () if where is None else (where,))

    return Definition(write)


def add_column(table: str, name: str, kind: SqlType, *, sortable: bool = True) -> Query:
    """Build a statement that adds a column. Existing rows have null in it."""
    column = ColumnDefinition(name, kind, null=True, sortable=sortable)
    return Definition(lambda out: f"ALTER TABLE {out.table(table)} ADD COLUMN {column.render(out)}")


def rename_table(name: str, new_name: str) -> Query:
    """Build a statement that renames a table within its schema. The table's indexes keep their names."""
    return Definition(lambda out: f"ALTER TABLE {out.table(name)} RENAME TO {quote(out.dialect, new_name)}")


def drop_table(name: str, *, if_exists: bool = False) -> Query:
    return Definition(lambda out: f"DROP TABLE {'IF EXISTS ' if if_exists else ''}{out.table(name)}")


def create_schema_named(name: str) -> Query:
    """Build a statement that creates a database schema. PostgreSQL keeps the tables of different schemas apart."""
    return Definition(lambda out: f"CREATE SCHEMA {out.name(name)}")


# The session's settings rule out hash joins, so looking up each shard by an index is the only way that stays linear.
_CITUS_SIZES = """WITH sizes AS MATERIALIZED (
  SELECT (SELECT t.colocationid FROM pg_dist_shard AS s JOIN pg_dist_partition AS t USING (logicalrelid)
    WHERE s.shardid = z.shard_id) AS colocationid, sum(z.size)::bigint AS size FROM citus_shard_sizes() AS z GROUP BY 1
) SELECT n.nspname::text, (SELECT v.nodename || ':' || v.nodeport
    FROM pg_dist_partition AS t JOIN pg_dist_shard AS s USING (logicalrelid) JOIN pg_dist_placement AS p USING (shardid)
    JOIN pg_dist_node AS v USING (groupid)
    WHERE t.colocationid = d.colocationid AND p.shardstate = 1 AND v.noderole = 'primary' LIMIT 1), z.size
FROM pg_namespace AS n JOIN pg_dist_schema AS d ON d.schemaid = n.oid LEFT JOIN sizes AS z USING (colocationid)"""
# Kind 'r' is an ordinary table. The size of a table includes its indexes, so indexes are not added again.
_SIZES = """SELECT n.nspname::text, NULL::text, sum(pg_total_relation_size(c.oid))::bigint
FROM pg_namespace AS n JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relkind = 'r'"""


def measure_schemas(schemas: Condition, *, distributed: bool) -> Query:
    """Build a query that lists database schemas of PostgreSQL: the name, the server and the size in bytes of each.

    `schemas` is a condition on the column `nspname`, the name of a schema. If `distributed`, Citus stores the schemas
    on several servers, and a size is null if its server does not answer. If not, all schemas have null as their server.
    """

    def write(out: Rendering) -> str:
        listed, grouped = (_CITUS_SIZES, "") if distributed else (_SIZES, " GROUP BY n.nspname")
        return f"{listed} WHERE {schemas.render(out)}{grouped}"

    return Command(write)


def distribute_new_schemas() -> Query:
    """Make Citus put each schema created later in the transaction on one of its servers."""
    return Command(lambda out: "SET LOCAL citus.enable_schema_based_sharding = on")
