"""The parts of a statement: columns, parameters, constants, functions, and the conditions over them.

Compound parts have their own parentheses, so nesting never depends on precedence. A plain Python value always becomes a
bound constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from querybuilder.arguments import Value, constant_kind
from querybuilder.dialect import SqlType
from querybuilder.errors import BadValueError, IncompleteQueryError
from querybuilder.render import Node, Rendering


class Direction(Enum):
    ASC = "ASC"
    DESC = "DESC"


ASC = Direction.ASC
DESC = Direction.DESC


class Term(Node):
    """An expression, which has a value in every row."""

    __slots__ = ()

    @property
    def value_kind(self) -> SqlType | None:
        """Return the kind of the values, or None if the kind is unknown."""
        return None

    def eq(self, other: Operand) -> Condition:
        return Comparison("=", self, comparand(other))

    def ne(self, other: Operand) -> Condition:
        return Comparison("<>", self, comparand(other))

    def lt(self, other: Operand) -> Condition:
        return Comparison("<", self, comparand(other))

    def le(self, other: Operand) -> Condition:
        return Comparison("<=", self, comparand(other))

    def gt(self, other: Operand) -> Condition:
        return Comparison(">", self, comparand(other))

    def ge(self, other: Operand) -> Condition:
        return Comparison(">=", self, comparand(other))

    def is_null(self) -> Condition:
        return NullTest(self, wanted=True)

    def not_null(self) -> Condition:
        return NullTest(self, wanted=False)

    def in_(self, values: Param | Sequence[Value] | RowSource) -> Condition:
        """Return whether the value is in a list or in a select of one column. A list holds texts or integers."""
        if isinstance(values, Param | RowSource):
            return Membership(self, values)
        if isinstance(values, str | bytes):
            raise BadValueError("in_ takes a sequence of values, not one text")
        return Membership(self, tuple(values))

    def as_(self, name: str) -> Aliased:
        """Name this term in the outputs of a select or of `returning`."""
        return Aliased(self, name)


class Condition(Node):
    """An expression that is true, false or unknown in every row."""

    __slots__ = ()


class RowSource(Node):
    """A select or a union that can stand in parentheses inside another statement."""

    __slots__ = ()


Operand = Term | Value


def term(operand: Operand) -> Term:
    """Return a term unchanged, and a plain value as a bound constant. Raises BadValueError for other types."""
    return operand if isinstance(operand, Term) else lit(operand)


def comparand(operand: Operand) -> Term:
    """Return the operand as a term. Raise BadValueError for None, because no comparison with null is true."""
    if operand is None:
        raise BadValueError("a comparison with None is never true: use is_null() or not_null()")
    return term(operand)


@dataclass(frozen=True, slots=True)
class Aliased:
    inner: Term
    name: str


@dataclass(frozen=True, slots=True)
class Column(Term):
    name: str
    table: str | None = None
    kind: SqlType | None = None

    @property
    def value_kind(self) -> SqlType | None:
        return self.kind

    def render(self, out: Rendering) -> str:
        prefix = "" if self.table is None else out.name(self.table) + "."
        return prefix + out.name(self.name)


@dataclass(frozen=True, slots=True)
class Excluded(Term):
    name: str

    def render(self, out: Rendering) -> str:
        return f"excluded.{out.name(self.name)}"


@dataclass(frozen=True, slots=True)
class Param(Term):
    name: str
    kind: SqlType | None = None

    @property
    def value_kind(self) -> SqlType | None:
        return self.kind

    def render(self, out: Rendering) -> str:
        return out.parameter(self.name, self.kind)


@dataclass(frozen=True, slots=True)
class Literal(Term):
    value: Value

    @property
    def value_kind(self) -> SqlType | None:
        return constant_kind(self.value)

    def render(self, out: Rendering) -> str:
        return out.constant(self.value)


@dataclass(frozen=True, slots=True)
class Call(Term):
    function: str  # the name of an SQL function: always a constant of this package, never text from a caller
    operands: tuple[Term, ...]
    kind: SqlType | None = None

    @property
    def value_kind(self) -> SqlType | None:
        return self.kind or next((kind for kind in (one.value_kind for one in self.operands) if kind), None)

    def render(self, out: Rendering) -> str:
        return f"{self.function}({', '.join(one.render(out) for one in self.operands)})"


@dataclass(frozen=True, slots=True)
class Sum(Term):
    operand: Term

    def render(self, out: Rendering) -> str:
        # On PostgreSQL the sum of a bigint column is numeric, which drivers return as Decimal.
        cast = "::bigint" if out.dialect.arrays else ""
        return f"sum({self.operand.render(out)}){cast}"


@dataclass(frozen=True, slots=True)
class Count(Term):
    condition: Condition | None = None

    def render(self, out: Rendering) -> str:
        return "count(*)" if self.condition is None else f"count(*) FILTER (WHERE {self.condition.render(out)})"


@dataclass(frozen=True, slots=True)
class Arithmetic(Term):
    operator: str
    left: Term
    right: Term

    def render(self, out: Rendering) -> str:
        left = self.left.render(out)
        return f"({left} {self.operator} {self.right.render(out)})"


@dataclass(frozen=True, slots=True)
class Smaller(Term):
    left: Term
    right: Term

    def render(self, out: Rendering) -> str:
        left = self.left.render(out)
        return f"{out.dialect.smaller}({left}, {self.right.render(out)})"


@dataclass(frozen=True, slots=True)
class Scalar(Term):
    source: RowSource

    def render(self, out: Rendering) -> str:
        return f"({self.source.render(out)})"


@dataclass(frozen=True, slots=True)
class Comparison(Condition):
    operator: str
    left: Term
    right: Term

    def render(self, out: Rendering) -> str:
        left = self.left.render(out)
        return f"{left} {self.operator} {self.right.render(out)}"


@dataclass(frozen=True, slots=True)
class NullTest(Condition):
    operand: Term
    wanted: bool

    def render(self, out: Rendering) -> str:
        return f"{self.operand.render(out)} {'IS NULL' if self.wanted else 'IS NOT NULL'}"


@dataclass(frozen=True, slots=True)
class Membership(Condition):
    operand: Term
    values: Param | RowSource | tuple[Value, ...]

    def render(self, out: Rendering) -> str:
        left = self.operand.render(out)
        if isinstance(self.values, RowSource):
            return f"{left} IN ({self.values.render(out)})"
        if isinstance(self.values, Param):
            bound = out.list_parameter(self.values.name)
        else:
            bound = out.list_constant(self.values)
        return f"{left} = ANY({bound})" if out.dialect.arrays else f"{left} IN (SELECT value FROM json_each({bound}))"


@dataclass(frozen=True, slots=True)
class Junction(Condition):
    word: str
    conditions: tuple[Condition, ...]

    def render(self, out: Rendering) -> str:
        if not self.conditions:
            return "TRUE" if self.word == "AND" else "FALSE"
        return "(" + f" {self.word} ".join(one.render(out) for one in self.conditions) + ")"


@dataclass(frozen=True, slots=True)
class Negation(Condition):
    condition: Condition

    def render(self, out: Rendering) -> str:
        return f"NOT ({self.condition.render(out)})"


@dataclass(frozen=True, slots=True)
class Ordering(Node):
    operand: Term
    direction: Direction

    def render(self, out: Rendering) -> str:
        return f"{self.operand.render(out)} {self.direction.value}"


def col(name: str, table: str | None = None, *, kind: SqlType | None = None) -> Column:
    """Return a column. `table`, which may be an alias, is needed if several sources have a column of this name.

    A packed query that has a column with `kind=BLOB` cannot be compiled.
    """
    return Column(name, table, kind)


def excluded(name: str) -> Excluded:
    """Return the value that the insert would have written. Use it in `do_update`."""
    return Excluded(name)


def param(name: str, kind: SqlType | None = None) -> Param:
    """Return a parameter, which gets its value in `bind`. Its kind is needed only if PostgreSQL cannot infer it."""
    return Param(name, kind)


def lit(value: Value) -> Literal:
    """Return a bound constant. Raises BadValueError for floats, booleans and integers past 64 bits."""
    constant_kind(value)
    return Literal(value)


def count() -> Term:
    return Count()


def count_if(condition: Condition) -> Term:
    return Count(condition)


def min_(operand: Term) -> Term:
    return Call("min", (operand,))


def max_(operand: Term) -> Term:
    return Call("max", (operand,))


def sum_(operand: Term) -> Term:
    """Return the sum as a 64-bit integer, or null if there are no rows. The statement fails if the sum is too large."""
    return Sum(operand)


def coalesce(first: Operand, second: Operand, *more: Operand) -> Term:
    return Call("coalesce", tuple(map(term, (first, second, *more))))


def plus(left: Operand, right: Operand) -> Term:
    return Arithmetic("+", term(left), term(right))


def minus(left: Operand, right: Operand) -> Term:
    return Arithmetic("-", term(left), term(right))


def times(left: Operand, right: Operand) -> Term:
    return Arithmetic("*", term(left), term(right))


def whole_part(left: Operand, right: Operand) -> Term:
    """Return `left` divided by `right` as a whole number. Both databases cut the fraction off."""
    return Arithmetic("/", term(left), term(right))


def smaller_of(left: Operand, right: Operand) -> Term:
    """Return the smaller of two values. If one of them is null, the result depends on the database."""
    return Smaller(term(left), term(right))


def all_of(*conditions: Condition) -> Condition:
    """Return whether all conditions are true. Without conditions the result is true."""
    return Junction("AND", conditions)


def any_of(*conditions: Condition) -> Condition:
    """Return whether at least one condition is true. Without conditions the result is false."""
    return Junction("OR", conditions)


def not_(condition: Condition) -> Condition:
    return Negation(condition)


def asc(operand: Term) -> Ordering:
    return Ordering(operand, ASC)


def desc(operand: Term) -> Ordering:
    return Ordering(operand, DESC)


def seek(*keys: tuple[str | Column, Direction, Operand]) -> Condition:
    """Return a condition for rows strictly after these values. The keys must be in the query's sort order.

    The condition has the form `c1 <= v AND (c1 < v OR owner > o)`. With the first test, the database reads only a range
    of an index. With the OR alone, or with a row value as in `(c1, owner) < (v, o)`, SQLite would test every row.
    """
    if not keys:
        raise IncompleteQueryError("seek needs at least one key")
    (column, direction, value), *rest = keys
    subject = col(column) if isinstance(column, str) else column
    beyond = subject.gt(value) if direction is ASC else subject.lt(value)
    if not rest:
        return beyond
    not_before = subject.ge(value) if direction is ASC else subject.le(value)
    return all_of(not_before, any_of(beyond, seek(*rest)))
