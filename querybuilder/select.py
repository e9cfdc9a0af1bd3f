"""Builds selects and unions, and the sources that they read, and can pack a whole result into one row.

Packing is faster because SQLite fetches rows in another thread, where each row may wait for the interpreter lock
(docs/decisions.md, "Packed statements").
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self

from querybuilder.arguments import constant_kind
from querybuilder.dialect import Dialect, SqlType
from querybuilder.errors import QueryError
from querybuilder.render import Command, Node, Query, Rendering, Statement, Written
from querybuilder.terms import Aliased, Condition, Expression, Operand, Ordering, Param, RowSource, Term, asc, lit, term

SUBQUERY_ALIAS = "s"


class Lock(Enum):
    """A lock on the rows that a select finds; it lasts until the transaction ends."""

    SHARE = "FOR SHARE"  # other transactions cannot change the rows
    NO_KEY_UPDATE = "FOR NO KEY UPDATE"  # others cannot change the rows or read them with a lock
    NEXT = "FOR NO KEY UPDATE SKIP LOCKED"  # like NO_KEY_UPDATE, but rows that others have locked are left out
    UPDATE = "FOR UPDATE"  # others cannot change the rows, read them with a lock or refer to their keys


Output = Term | Aliased
RowBound = int | Term


def render_where(out: Rendering, conditions: Sequence[Condition]) -> str:
    return " WHERE " + " AND ".join(one.render(out) for one in conditions) if conditions else ""


def render_orders(out: Rendering, orders: Sequence[Ordering]) -> str:
    return " ORDER BY " + ", ".join(one.render(out) for one in orders) if orders else ""


def render_outputs(out: Rendering, outputs: Sequence[Output]) -> str:
    return ", ".join(
        f"{one.inner.render(out)} AS {out.name(one.name)}" if isinstance(one, Aliased) else one.render(out)
        for one in outputs
    )


def as_outputs(outputs: Sequence[Operand | Aliased]) -> tuple[Output, ...]:
    return tuple(one if isinstance(one, Aliased) else term(one) for one in outputs)


@dataclass(frozen=True, slots=True)
class Rows(Node):
    alias: str
    parameter: Param
    columns: tuple[tuple[str, SqlType], ...]

    def render(self, out: Rendering) -> str:
        if not self.columns:
            raise QueryError("rows need at least one column")
        kinds = tuple(kind for _, kind in self.columns)
        if out.dialect.arrays:
            arrays = ", ".join(out.rows_parameter(self.parameter.name, kinds))
            names = ", ".join(out.name(name) for name, _ in self.columns)
            return f"unnest({arrays}) AS {out.name(self.alias)}({names})"
        cells = ", ".join(
            f"json_extract(value, '$[{index}]') AS {out.name(name)}" for index, (name, _) in enumerate(self.columns)
        )
        (bound,) = out.rows_parameter(self.parameter.name, kinds)
        return f"(SELECT {cells} FROM json_each({bound})) AS {out.name(self.alias)}"


def rows(alias: str, parameter: Param, /, **kinds: SqlType) -> Rows:
    """Declare a source for `from_`. `bind` gets its rows, as tuples or lists with one cell for each of `kinds`."""
    return Rows(alias, parameter, tuple(kinds.items()))


def _derived(inner: RowSource, alias: str) -> Node:
    return Written(lambda out: f"({inner.render(out)}) AS {out.name(alias)}")


def _source(given: str | RowSource | Rows, alias: str | None) -> Node:
    if isinstance(given, Rows):
        if alias is not None:
            raise QueryError("rows have an alias of their own already")
        return given
    if isinstance(given, RowSource):
        return _derived(given, alias or SUBQUERY_ALIAS)
    return Written(lambda out: out.table(given) + ("" if alias is None else f" AS {out.name(alias)}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowQuery(RowSource, Query):
    orders: tuple[Ordering, ...] = ()
    limit_rows: Term | None = None
    is_packed: bool = False

    @property
    @abstractmethod
    def width(self) -> int:
        """Return the number of columns in the result."""

    def order_by(self, *orders: Term | Ordering) -> Self:
        """Add terms to the sort order. The databases sort nulls differently, so exclude nulls with `not_null`.

        In a union, each term is the name of an output that every one of its selects has.
        """
        return replace(self, orders=self.orders + _orderings(orders))

    def limit(self, limit_rows: RowBound) -> Self:
        """Limit the number of rows. A union with a limit needs an order, and its limit covers the rows of all selects.

        If an index has the union's order, the database reads at most this many rows for each of its selects.
        """
        return replace(self, limit_rows=_bound(limit_rows))

    def packed(self) -> Self:
        """Return the whole result as one JSON row if the dialect supports it. `Built.packed` is True in this case.

        No output may be bytes: JSON has no form for them, so SQLite refuses them.
        """
        return replace(self, is_packed=True)

    def scalar(self) -> Term:
        """Use this query, which must have one column, as a term. If it finds no row, the term is null."""
        return Expression(lambda out: f"({self.render(out)})")

    def nested(self) -> Term:
        """Use all rows of this query as one term of an outer query, a JSON array of arrays.

        This query may use columns of the outer query. The value of the term is the text of the array. If the outer
        query is `packed`, the value may be the array itself, depending on the version of SQLite.
        """

        def write(out: Rendering) -> str:
            inner, cells, rows = self._named(out)
            if out.dialect.packs:
                return f"(WITH {rows}({cells}) AS ({inner}) SELECT json_group_array(json_array({cells})) FROM {rows})"
            # No WITH here, because Citus does not accept a WITH in a subquery that is a term.
            aggregate = f"coalesce(json_agg(json_build_array({cells})), '[]')::text"
            return f"(SELECT {aggregate} FROM ({inner}) AS {rows}({cells}))"

        return Expression(write)

    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(dialect)
        if not (self.is_packed and dialect.packs):
            return out.statement(self.render(out))
        # SQLite keeps the order of the inner query: it drops an inner ORDER BY only under count, min and max.
        inner, cells, rows = self._named(out)
        head = f"WITH {rows}({cells}) AS ({inner})"
        return out.statement(f"{head} SELECT json_group_array(json_array({cells})) FROM {rows}", packed=True)

    def _named(self, out: Rendering) -> tuple[str, str, str]:
        """Render this query. Return its SQL, a text of new names for its columns, and a new name for the query.

        The caller writes `WITH query(columns) AS (SQL)`. Names inside the SQL could hide a column that ORDER BY uses.
        """
        inner = self.render(out)
        rows = out.fresh_name("p")
        cells = ", ".join(out.name(f"p{index}") for index in range(self.width))
        return inner, cells, rows


@dataclass(frozen=True, slots=True)
class Select(RowQuery):
    outputs: tuple[Output, ...]
    source: Node | None = None
    joins: tuple[Node, ...] = ()
    conditions: tuple[Condition, ...] = ()
    groups: tuple[Term, ...] = ()
    offset_rows: Term | None = None
    lock: Lock | None = None
    lock_orders: tuple[Ordering, ...] = ()

    def from_(self, given: str | RowSource | Rows, alias: str | None = None) -> Select:
        """Set the source of the rows. A subquery gets the alias `s` unless another one is given."""
        return replace(self, source=_source(given, alias))

    def join(self, given: str | RowSource | Rows, on: Condition, *, alias: str | None = None) -> Select:
        return self._joined("JOIN", _source(given, alias), on)

    def left_join(self, given: str | RowSource | Rows, on: Condition, *, alias: str | None = None) -> Select:
        return self._joined("LEFT JOIN", _source(given, alias), on)

    def join_lateral(self, given: RowSource, alias: str) -> Select:
        """Join each row with a select, which may use that row's columns. Rows without a match are dropped."""

        def write(out: Rendering) -> str:
            if not out.dialect.lateral:
                raise QueryError("a joined select can't use the rows before it in this dialect")
            return _derived(given, alias).render(out)

        return self._joined("CROSS JOIN LATERAL", Written(write))

    def _joined(self, words: str, given: Node, on: Condition | None = None) -> Select:
        def write(out: Rendering) -> str:
            return f" {words} {given.render(out)}" + ("" if on is None else f" ON {on.render(out)}")

        return replace(self, joins=(*self.joins, Written(write)))

    def where(self, *conditions: Condition) -> Select:
        return replace(self, conditions=self.conditions + conditions)

    def group_by(self, *groups: Term) -> Select:
        return replace(self, groups=self.groups + groups)

    def offset(self, offset_rows: RowBound) -> Select:
        return replace(self, offset_rows=_bound(offset_rows))

    def locked(self, lock: Lock | None, *in_order: Term | Ordering) -> Select:
        """Lock the rows that the select finds, one by one, in the order of `in_order`, unless `lock` is None.

        Transactions that all lock in the same order never deadlock. A dialect without row locks ignores this call.
        """
        return replace(self, lock=lock, lock_orders=_orderings(in_order))

    @property
    def width(self) -> int:
        return len(self.outputs)

    def render(self, out: Rendering) -> str:
        if not self.outputs:
            raise QueryError("a select needs at least one term")
        sql = "SELECT " + render_outputs(out, self.outputs)
        if self.source is not None:
            sql += " FROM " + self.source.render(out)
        for join in self.joins:
            sql += join.render(out)
        sql += render_where(out, self.conditions)
        if self.groups:
            sql += " GROUP BY " + ", ".join(one.render(out) for one in self.groups)
        locks = self.lock is not None and out.dialect.row_locks
        sql += render_orders(out, self.orders + self.lock_orders if locks else self.orders)
        if self.limit_rows is not None:
            sql += " LIMIT " + self.limit_rows.render(out)
        if self.offset_rows is not None:
            sql += " OFFSET " + self.offset_rows.render(out)
        return f"{sql} {self.lock.value}" if self.lock is not None and locks else sql


@dataclass(frozen=True, slots=True)
class Union(RowQuery):
    arms: tuple[Select, ...]

    @property
    def width(self) -> int:
        return self.arms[0].width

    def render(self, out: Rendering) -> str:
        if len({arm.width for arm in self.arms}) != 1:
            raise QueryError("a union needs selects with the same number of terms")
        if not self.orders:
            if self.limit_rows is not None:
                raise QueryError("a union with a limit needs an order: which arm comes first is not promised")
            return self._render_wrapped(out, self.arms)
        if any(arm.orders or arm.limit_rows is not None or arm.offset_rows is not None for arm in self.arms):
            raise QueryError("the arms of an ordered union have no order, limit or offset of their own")
        if self.limit_rows is None or out.dialect.merges_arms:
            sql = " UNION ALL ".join(arm.render(out) for arm in self.arms)
        else:
            # Each select gets the limit, too. The first rows of the union are among the first rows of its selects.
            sql = self._render_wrapped(
                out, [replace(arm, orders=self.orders, limit_rows=self.limit_rows) for arm in self.arms]
            )
        sql += render_orders(out, self.orders)
        return sql if self.limit_rows is None else f"{sql} LIMIT {self.limit_rows.render(out)}"

    @staticmethod
    def _render_wrapped(out: Rendering, arms: Sequence[Select]) -> str:
        return " UNION ALL ".join(
            f"SELECT * FROM ({arm.render(out)}) AS {out.name(f'a{index}')}" for index, arm in enumerate(arms)
        )


def _orderings(orders: Sequence[Term | Ordering]) -> tuple[Ordering, ...]:
    return tuple(one if isinstance(one, Ordering) else asc(one) for one in orders)


def _bound(rows_max: RowBound) -> Term:
    if isinstance(rows_max, Term):
        return rows_max
    if constant_kind(rows_max) is not SqlType.INTEGER or rows_max < 0:
        raise QueryError("a limit or offset is a term or an integer of at least 0")
    return lit(rows_max)


def select(*outputs: Operand | Aliased) -> Select:
    return Select(as_outputs(outputs))


def union_all(*arms: Select) -> Union:
    """Build a union of all rows from the selects in `arms`.

    Set an order and a limit on the union or on the selects. If only selects have an order, any select may come first.
    """
    return Union(arms)


def recursive(name: str, *columns: str, seed: Select, step: Select, final: Select) -> Query:
    """Build a recursive query: `seed` gives the first rows, `step` runs until it adds no row, `final` reads all rows.

    `step` and `final` read from a table `name` with the columns `columns`. In this table, each run of `step` finds the
    rows that the previous run added.
    """

    def write(out: Rendering) -> str:
        names = ", ".join(out.name(column) for column in columns)
        arms = f"{seed.render(out)} UNION ALL {step.render(out)}"
        return f"WITH RECURSIVE {out.name(name)}({names}) AS ({arms}) {final.render(out)}"

    return Command(write)
