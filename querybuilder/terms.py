"""Builds the parts of a statement: columns, parameters, constants, functions, and conditions over these terms.

Compound parts have their own parentheses, so nesting never depends on precedence. A plain Python value always becomes a
bound constant.

Some terms tell a database what it cannot infer, such as a null's kind or a text's order. `clock_us` reads the server's
clock. Use it in selects only: if a write needs a time, read the time first and bind it, because Citus accepts no
volatile function in `do_update`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from querybuilder.arguments import Value, constant_kind
from querybuilder.dialect import SqlType
from querybuilder.errors import QueryError
from querybuilder.render import Node, Rendering, Written


class Direction(Enum):
    ASC = "ASC"
    DESC = "DESC"


ASC = Direction.ASC
DESC = Direction.DESC


class Condition(Written):
    """An SQL expression that is true, false or unknown (null) for each row."""

    __slots__ = ()


class RowSource(Node):
    """A select or a union that can be nested in parentheses inside another statement."""

    __slots__ = ()


class Term(Node):
    """An SQL expression with a value for each row, such as a column, a parameter or a function call."""

    __slots__ = ()

    def eq(self, other: Operand) -> Condition:
        return _compare(self, "=", other)

    def ne(self, other: Operand) -> Condition:
        return _compare(self, "<>", other)

    def lt(self, other: Operand) -> Condition:
        return _compare(self, "<", other)

    def le(self, other: Operand) -> Condition:
        return _compare(self, "<=", other)

    def gt(self, other: Operand) -> Condition:
        return _compare(self, ">", other)

    def ge(self, other: Operand) -> Condition:
        return _compare(self, ">=", other)

    def is_null(self) -> Condition:
        return Condition(lambda out: f"{self.render(out)} IS NULL")

    def not_null(self) -> Condition:
        return Condition(lambda out: f"{self.render(out)} IS NOT NULL")

    def in_(self, values: Param | RowSource) -> Condition:
        """Test whether this value is in `values`: a select of one column, or a parameter for a list."""
        if isinstance(values, RowSource):
            return Condition(lambda out: f"{self.render(out)} IN ({values.render(out)})")

        def write(out: Rendering) -> str:
            left, bound = self.render(out), out.list_parameter(values.name)
            if out.dialect.arrays:
                return f"{left} = ANY({bound})"
            return f"{left} IN (SELECT value FROM json_each({bound}))"

        return Condition(write)

    def as_(self, name: str) -> Aliased:
        """Name this term in the outputs of a select or of `returning`."""
        return Aliased(self, name)


Operand = Term | Value


def term(operand: Operand) -> Term:
    """Return a term unchanged, and a plain value as a bound constant. Raises QueryError for other types."""
    return operand if isinstance(operand, Term) else lit(operand)


def _compare(left: Term, operator: str, operand: Operand) -> Condition:
    if operand is None:
        raise QueryError("a comparison with None is never true: use is_null() or not_null()")
    right = term(operand)
    return Condition(lambda out: f"{left.render(out)} {operator} {right.render(out)}")


class Expression(Written, Term):
    """A term whose SQL a function writes. Other code cannot look at the parts of the term."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Aliased:
    inner: Term
    name: str


@dataclass(frozen=True, slots=True)
class Column(Term):
    name: str
    table: str | None = None

    def render(self, out: Rendering) -> str:
        prefix = "" if self.table is None else out.name(self.table) + "."
        return prefix + out.name(self.name)


@dataclass(frozen=True, slots=True)
class Param(Term):
    name: str
    kind: SqlType | None = None

    def render(self, out: Rendering) -> str:
        return out.parameter(self.name, self.kind)


@dataclass(frozen=True, slots=True)
class Ordering(Node):
    operand: Term
    direction: Direction

    def render(self, out: Rendering) -> str:
        return f"{self.operand.render(out)} {self.direction.value}"


def col(name: str, table: str | None = None) -> Column:
    """Name a column. `table`, which may be an alias, is needed if several sources have a column of this name."""
    return Column(name, table)


def excluded(name: str) -> Term:
    """Use, in `do_update`, the value that the insert would have written into a column."""
    return Expression(lambda out: f"excluded.{out.name(name)}")


def param(name: str, kind: SqlType | None = None) -> Param:
    """Declare a parameter, which gets its value in `bind`. Its kind is needed only if PostgreSQL cannot infer it."""
    return Param(name, kind)


def lit(value: Value) -> Term:
    """Bind a constant. Raises QueryError for floats, booleans and integers past 64 bits."""
    constant_kind(value)
    return Expression(lambda out: out.constant(value))


def null(kind: SqlType) -> Term:
    """Write a null with a type. A select in a union needs it where another select has a column of this type."""
    # Without the cast, PostgreSQL would infer the type text for a null in a select of a union.
    return Expression(lambda out: f"CAST(NULL AS {out.dialect.type_names[kind]})")


def count() -> Term:
    return Expression(lambda out: "count(*)")


def count_if(condition: Condition) -> Term:
    return Expression(lambda out: f"count(*) FILTER (WHERE {condition.render(out)})")


def min_(operand: Term) -> Term:
    return _call("min", operand)


def max_(operand: Term) -> Term:
    return _call("max", operand)


def sum_(operand: Term) -> Term:
    """Sum as a 64-bit integer, or null if there are no rows. The statement fails if the sum is too large."""
    # On PostgreSQL the sum of a bigint column is numeric, which drivers return as Decimal.
    return Expression(lambda out: f"sum({operand.render(out)}){'::bigint' if out.dialect.arrays else ''}")


def coalesce(first: Operand, second: Operand, *more: Operand) -> Term:
    return _call("coalesce", first, second, *more)


def lower_case(text: Operand) -> Term:
    """Lower the ASCII letters of a text. Whether other letters change depends on the database."""
    return _call("lower", text)


def as_text(value: Term) -> Term:
    return Expression(lambda out: f"CAST({value.render(out)} AS text)")


def length(text: Operand) -> Term:
    return _call("length", text)


def plus(left: Operand, right: Operand) -> Term:
    return _calculate(left, "+", right)


def minus(left: Operand, right: Operand) -> Term:
    return _calculate(left, "-", right)


def times(left: Operand, right: Operand) -> Term:
    return _calculate(left, "*", right)


def whole_part(left: Operand, right: Operand) -> Term:
    """Divide `left` by `right` as whole numbers. Both databases cut off the fraction."""
    return _calculate(left, "/", right)


def remainder(left: Operand, right: Operand) -> Term:
    """Take the remainder of `left` divided by `right`. `left` must be at least 0."""
    return _calculate(left, "%", right)


def advisory_lock(number: Operand, *, shared: bool) -> Term:
    """Take an advisory lock: a lock with a number, which lasts until the transaction ends.

    A shared row lock may overtake a waiting transaction, but advisory locks are granted in order. Use this term in a
    select that locks rows, so that it takes a row's advisory lock first. Select from one table only; equal numbers in
    other tables are different locks. For a null, or in a dialect without row locks, nothing is locked. The term's value
    is null or empty.
    """
    given, mode = term(number), "_shared" if shared else ""

    def write(out: Rendering) -> str:
        if not out.dialect.row_locks:
            return "NULL"
        return f"pg_advisory_xact_lock{mode}(CAST(tableoid AS integer), CAST({given.render(out)} AS integer))"

    return Expression(write)


def smaller_of(left: Operand, right: Operand) -> Term:
    """Take the smaller of two values. If one of them is null, the result depends on the database."""
    first, second = term(left), term(right)
    return Expression(lambda out: f"{out.dialect.smaller}({first.render(out)}, {second.render(out)})")


def larger_of(left: Operand, right: Operand) -> Term:
    """Take the larger of two values. If one of them is null, the result depends on the database."""
    first, second = term(left), term(right)
    return Expression(lambda out: f"{out.dialect.larger}({first.render(out)}, {second.render(out)})")


def collated(text: Term) -> Term:
    """Compare a text by code points, like a sortable column. The texts in `recursive` need this."""
    return Expression(lambda out: f"({text.render(out)}{out.dialect.collation})")


def part(text: Operand, start: int | Term, width: int) -> Term:
    """Cut `width` characters from a text, from the 1-based `start`, or fewer if the text ends earlier."""
    if (isinstance(start, int) and start < 1) or width < 1:
        raise QueryError("a part of a text starts at character 1 or later and has at least 1 character")
    whole, first = term(text), term(start)

    def write(out: Rendering) -> str:
        cast = "::int" if out.dialect.arrays else ""  # PostgreSQL's substr does not accept 64-bit integers
        return f"substr({whole.render(out)}, {first.render(out)}{cast}, {out.constant(width)}{cast})"

    return Expression(write)


def contains_text(text: Operand, piece: Operand) -> Condition:
    """Test whether a text contains a piece. Case matters, and no character is a wildcard."""
    whole, sought = term(text), term(piece)

    def write(out: Rendering) -> str:
        find = "strpos" if out.dialect.arrays else "instr"
        return f"({find}({whole.render(out)}, {sought.render(out)}) > 0)"

    return Condition(write)


def clock_us() -> Term:
    """Read the time in microseconds since 1970, by the clock of the store's machine. SQLite gives whole milliseconds.

    This is the time at which the statement runs, not the time at which the transaction began.
    """
    return Expression(lambda out: out.dialect.clock_us)


def all_of(*conditions: Condition) -> Condition:
    """Combine `conditions` that must all be true. Without any, the result is always true."""
    return _join(" AND ", conditions, "TRUE")


def any_of(*conditions: Condition) -> Condition:
    """Combine `conditions` of which at least one must be true. Without any, the result is never true."""
    return _join(" OR ", conditions, "FALSE")


def _call(function: str, *operands: Operand) -> Term:
    """Call an SQL function. `function` is always a constant of this module, never text from a caller."""
    terms = [term(one) for one in operands]
    return Expression(lambda out: f"{function}({', '.join(one.render(out) for one in terms)})")


def _calculate(left: Operand, operator: str, right: Operand) -> Term:
    first, second = term(left), term(right)
    return Expression(lambda out: f"({first.render(out)} {operator} {second.render(out)})")


def _join(word: str, conditions: tuple[Condition, ...], empty: str) -> Condition:
    return Condition(lambda out: f"({word.join(one.render(out) for one in conditions)})" if conditions else empty)


def asc(operand: Term) -> Ordering:
    return Ordering(operand, ASC)


def desc(operand: Term) -> Ordering:
    return Ordering(operand, DESC)


def seek(*keys: tuple[str | Column, Direction, Operand]) -> Condition:
    """Build a condition for the rows after a given row. `keys` has the row's value for each column of the sort order.

    The condition has the form `c1 <= v AND (c1 < v OR owner > o)`. With the first test, the database reads only a range
    of an index. With the OR alone, or with a row value as in `(c1, owner) < (v, o)`, SQLite would test every row.
    """
    if not keys:
        raise QueryError("seek needs at least one key")
    (column, direction, value), *rest = keys
    subject = col(column) if isinstance(column, str) else column
    beyond = subject.gt(value) if direction is ASC else subject.lt(value)
    if not rest:
        return beyond
    not_before = subject.ge(value) if direction is ASC else subject.le(value)
    return all_of(not_before, any_of(beyond, seek(*rest)))
