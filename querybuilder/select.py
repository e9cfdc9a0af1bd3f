"""Select and union, with packing of a whole result into one row.

Packing exists because SQLite fetches rows in another thread, and each row may wait for the interpreter lock
(docs/decisions.md, "Packed statements").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from querybuilder.arguments import constant_kind
from querybuilder.dialect import Dialect, SqlType
from querybuilder.errors import BadValueError, IncompleteQueryError, InexpressibleError
from querybuilder.render import Node, Query, Rendering, Statement
from querybuilder.sources import Derived, Pieces, Rows, Source, source
from querybuilder.terms import (
    Aliased,
    Condition,
    Operand,
    Ordering,
    RowSource,
    Scalar,
    Term,
    asc,
    lit,
    term,
)


class Lock(Enum):
    """A lock on the rows that a select finds; it lasts until the transaction ends."""

    SHARE = "FOR SHARE"  # others cannot change the rows
    NO_KEY_UPDATE = "FOR NO KEY UPDATE"  # others cannot change the rows or read them with a lock
    UPDATE = "FOR UPDATE"  # others cannot change the rows, read them with a lock or refer to their keys


Output = Term | Aliased
RowBound = int | Term


def render_where(out: Rendering, conditions: Sequence[Condition]) -> str:
    """Return ` WHERE …`, or an empty text if there are no conditions."""
    return " WHERE " + " AND ".join(one.render(out) for one in conditions) if conditions else ""


def render_orders(out: Rendering, orders: Sequence[Ordering]) -> str:
    """Return ` ORDER BY …`, or an empty text if there is no order."""
    return " ORDER BY " + ", ".join(one.render(out) for one in orders) if orders else ""


def render_outputs(out: Rendering, outputs: Sequence[Output]) -> str:
    return ", ".join(
        f"{one.inner.render(out)} AS {out.name(one.name)}" if isinstance(one, Aliased) else one.render(out)
        for one in outputs
    )


def as_outputs(outputs: Sequence[Operand | Aliased]) -> tuple[Output, ...]:
    return tuple(one if isinstance(one, Aliased) else term(one) for one in outputs)


@dataclass(frozen=True, slots=True)
class Join(Node):
    source: Source
    on: Condition
    outer: bool

    def render(self, out: Rendering) -> str:
        text = self.source.render(out)
        return f" {'LEFT ' if self.outer else ''}JOIN {text} ON {self.on.render(out)}"


@dataclass(frozen=True, slots=True)
class Select(RowSource, Query):
    outputs: tuple[Output, ...]
    source: Source | None = None
    joins: tuple[Join, ...] = ()
    laterals: tuple[Derived, ...] = ()
    pieces: Pieces | None = None
    conditions: tuple[Condition, ...] = ()
    groups: tuple[Term, ...] = ()
    orders: tuple[Ordering, ...] = ()
    limit_rows: Term | None = None
    offset_rows: Term | None = None
    lock: Lock | None = None
    lock_orders: tuple[Ordering, ...] = ()
    is_packed: bool = False

    def from_(self, given: str | RowSource | Rows, alias: str | None = None) -> Select:
        """Set the source of the rows. A subquery gets the alias `s` unless another one is given."""
        return replace(self, source=source(given, alias))

    def join(self, given: str | RowSource | Rows, on: Condition, *, alias: str | None = None) -> Select:
        return replace(self, joins=(*self.joins, Join(source(given, alias), on, outer=False)))

    def left_join(self, given: str | RowSource | Rows, on: Condition, *, alias: str | None = None) -> Select:
        return replace(self, joins=(*self.joins, Join(source(given, alias), on, outer=True)))

    def join_lateral(self, given: RowSource, alias: str) -> Select:
        """Join each row with a select, which may use that row's columns. Rows without a match are dropped."""
        return replace(self, laterals=(*self.laterals, Derived(given, alias)))

    def each_piece(self, text: Term, alias: str) -> Select:
        """Join each row with the pieces of a text that is split at commas. `col("value", alias)` is the piece.

        The text must not contain quotes or backslashes. An empty text has one empty piece or none, depending on the
        database.
        """
        return replace(self, pieces=Pieces(text, alias))

    def where(self, *conditions: Condition) -> Select:
        return replace(self, conditions=self.conditions + conditions)

    def group_by(self, *groups: Term) -> Select:
        return replace(self, groups=self.groups + groups)

    def order_by(self, *orders: Term | Ordering) -> Select:
        """Add terms to the sort order. The databases sort nulls differently, so exclude nulls with `not_null`."""
        return replace(self, orders=self.orders + _orderings(orders))

    def limit(self, limit_rows: RowBound) -> Select:
        return replace(self, limit_rows=_bound(limit_rows))

    def offset(self, offset_rows: RowBound) -> Select:
        return replace(self, offset_rows=_bound(offset_rows))

    def packed(self) -> Select:
        """Return the whole result as one JSON row if the dialect supports it. `Built.packed` is True in this case."""
        return replace(self, is_packed=True)

    def locked(self, lock: Lock, *in_order: Term | Ordering) -> Select:
        """Lock the rows that are found, one after the other, in the order of `in_order`.

        Transactions that all lock in the same order never deadlock. A dialect without row locks ignores this call.
        """
        return replace(self, lock=lock, lock_orders=_orderings(in_order))

    def scalar(self) -> Scalar:
        """Return this select of one column as a term, which is null if the select has no row."""
        return Scalar(replace(self, is_packed=False))

    def nested(self) -> Nested:
        """Return all rows of this select as one term, a JSON array of arrays. It may use columns of the outer select.

        The value of the term is the text of the array. Within a packed row it may be the array itself, depending on
        the version of SQLite.
        """
        return Nested(replace(self, is_packed=False))

    def compile(self, dialect: Dialect) -> Statement:
        return _compile(self, dialect, packed=self.is_packed)

    def kinds(self) -> tuple[SqlType | None, ...]:
        """Return the kind of each output, or None if the kind is unknown."""
        return tuple((one.inner if isinstance(one, Aliased) else one).value_kind for one in self.outputs)

    def render(self, out: Rendering) -> str:
        if not self.outputs:
            raise IncompleteQueryError("a select needs at least one term")
        sql = "SELECT " + render_outputs(out, self.outputs)
        if self.source is not None:
            sql += " FROM " + self.source.render(out)
        for join in self.joins:
            sql += join.render(out)
        for lateral in self.laterals:
            if not out.dialect.lateral:
                raise InexpressibleError("a joined select can't use the rows before it in this dialect")
            sql += f" CROSS JOIN LATERAL {lateral.render(out)}"
        if self.pieces is not None:
            sql += f" CROSS JOIN {self.pieces.render(out)}"
        sql += render_where(out, self.conditions)
        if self.groups:
            sql += " GROUP BY " + ", ".join(one.render(out) for one in self.groups)
        locks = self.lock is not None and out.dialect.row_locks
        sql += render_orders(out, self.orders + self.lock_orders if locks else self.orders)
        if self.limit_rows is not None:
            sql += " LIMIT " + self.limit_rows.render(out)
        if self.offset_rows is not None:
            gap = out.dialect.no_limit if self.limit_rows is None else ""
            sql += f" {gap}OFFSET {self.offset_rows.render(out)}"
        return f"{sql} {self.lock.value}" if self.lock is not None and locks else sql


@dataclass(frozen=True, slots=True)
class Nested(Term):
    query: Select | Union

    @property
    def value_kind(self) -> SqlType | None:
        return SqlType.TEXT

    def render(self, out: Rendering) -> str:
        if SqlType.BLOB in self.query.kinds():
            raise InexpressibleError("bytes cannot be nested: JSON has no form for them")
        inner = self.query.render(out)
        rows = out.fresh_name("p")
        cells = ", ".join(out.name(f"p{index}") for index in range(len(self.query.kinds())))
        if out.dialect.packs:
            return f"(WITH {rows}({cells}) AS ({inner}) SELECT json_group_array(json_array({cells})) FROM {rows})"
        return (
            f"(WITH {rows}({cells}) AS ({inner}) "
            f"SELECT coalesce(json_agg(json_build_array({cells})), '[]')::text FROM {rows})"
        )


@dataclass(frozen=True, slots=True)
class Union(RowSource, Query):
    arms: tuple[Select, ...]
    orders: tuple[Ordering, ...] = ()
    limit_rows: Term | None = None
    is_packed: bool = False

    def order_by(self, *orders: Term | Ordering) -> Union:
        """Add terms to the sort order of all rows. Each term is the name of an output that every arm has."""
        return replace(self, orders=self.orders + _orderings(orders))

    def limit(self, limit_rows: RowBound) -> Union:
        """Limit the rows of all arms together. A union with a limit needs an order.

        If an index has the same order, the database reads at most this many rows of each arm.
        """
        return replace(self, limit_rows=_bound(limit_rows))

    def packed(self) -> Union:
        return replace(self, is_packed=True)

    def scalar(self) -> Scalar:
        return Scalar(replace(self, is_packed=False))

    def nested(self) -> Nested:
        return Nested(replace(self, is_packed=False))

    def compile(self, dialect: Dialect) -> Statement:
        return _compile(self, dialect, packed=self.is_packed)

    def kinds(self) -> tuple[SqlType | None, ...]:
        """Return BLOB for each output that is bytes in at least one arm, and None for the others.

        Raises IncompleteQueryError if the arms have different numbers of outputs.
        """
        if len({len(arm.outputs) for arm in self.arms}) != 1:
            raise IncompleteQueryError("a union needs selects with the same number of terms")
        columns = zip(*(arm.kinds() for arm in self.arms), strict=True)
        return tuple(SqlType.BLOB if SqlType.BLOB in column else None for column in columns)

    def render(self, out: Rendering) -> str:
        self.kinds()
        if not self.orders:
            if self.limit_rows is not None:
                raise IncompleteQueryError("a union with a limit needs an order: which arm comes first is not promised")
            return self._render_wrapped(out, self.arms)
        if any(arm.orders or arm.limit_rows is not None or arm.offset_rows is not None for arm in self.arms):
            raise IncompleteQueryError("the arms of an ordered union have no order, limit or offset of their own")
        if self.limit_rows is None or out.dialect.merges_arms:
            sql = " UNION ALL ".join(arm.render(out) for arm in self.arms)
        else:
            # Each arm gets the limit, too: the first rows of the union are among the first rows of its arms.
            sql = self._render_wrapped(
                out, [replace(arm, orders=self.orders, limit_rows=self.limit_rows) for arm in self.arms]
            )
        sql += render_orders(out, self.orders)
        return sql if self.limit_rows is None else f"{sql} LIMIT {self.limit_rows.render(out)}"

    @staticmethod
    def _render_wrapped(out: Rendering, arms: Sequence[Select]) -> str:
        """Put each arm into a subquery, because SQL allows an arm its own order or limit only there."""
        return " UNION ALL ".join(
            f"SELECT * FROM ({arm.render(out)}) AS {out.name(f'a{index}')}" for index, arm in enumerate(arms)
        )


@dataclass(frozen=True, slots=True)
class Recursive(Query):
    name: str
    columns: tuple[str, ...]
    seed: Select
    step: Select
    final: Select

    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(dialect)
        columns = ", ".join(out.name(column) for column in self.columns)
        arms = f"{self.seed.render(out)} UNION ALL {self.step.render(out)}"
        return out.statement(f"WITH RECURSIVE {out.name(self.name)}({columns}) AS ({arms}) {self.final.render(out)}")


def _compile(query: Select | Union, dialect: Dialect, *, packed: bool) -> Statement:
    out = Rendering(dialect)
    if not (packed and dialect.packs):
        return out.statement(query.render(out))
    if SqlType.BLOB in query.kinds():
        raise InexpressibleError("bytes cannot be packed: JSON has no form for them")
    inner = query.render(out)
    # The outputs get their names outside the query. Inside, an alias could hide a column that the ORDER BY names.
    # SQLite keeps the order of the inner query: it drops an inner ORDER BY only under count, min and max.
    whole = out.fresh_name("p")
    cells = ", ".join(out.name(f"p{index}") for index in range(len(query.kinds())))
    head = f"WITH {whole}({cells}) AS ({inner})"
    return out.statement(f"{head} SELECT json_group_array(json_array({cells})) FROM {whole}", packed=True)


def _orderings(orders: Sequence[Term | Ordering]) -> tuple[Ordering, ...]:
    return tuple(one if isinstance(one, Ordering) else asc(one) for one in orders)


def _bound(rows_max: RowBound) -> Term:
    if isinstance(rows_max, Term):
        return rows_max
    if constant_kind(rows_max) is not SqlType.INTEGER or rows_max < 0:
        raise BadValueError("a limit or offset is a term or an integer of at least 0")
    return lit(rows_max)


def select(*outputs: Operand | Aliased) -> Select:
    return Select(as_outputs(outputs))


def union_all(*arms: Select) -> Union:
    """Return a union of all rows of all arms.

    Give an order and a limit either to the union or to its arms. If the arms have them, any arm may come first.
    """
    return Union(arms)


def recursive(name: str, *columns: str, seed: Select, step: Select, final: Select) -> Recursive:
    """Return a recursive query: `final` selects from the rows of `seed` and of every step.

    Each step starts from the rows of the step before. `step` and `final` read the rows from a table called `name`,
    which has these columns.
    """
    return Recursive(name, columns, seed, step, final)
