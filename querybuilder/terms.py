"""What stands inside a statement: columns, parameters, constants, functions, and the conditions over them.

The rule it keeps: every compound piece brings its own parentheses, so that nesting never depends on precedence, and
a plain Python value anywhere is a bound constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from querybuilder.arguments import Value, constant_kind
from querybuilder.dialect import Kind
from querybuilder.errors import BadValue, IncompleteQuery
from querybuilder.render import Node, Rendering


class Direction(Enum):
    """Which way an order runs."""

    ASC = "ASC"
    DESC = "DESC"


ASC = Direction.ASC
DESC = Direction.DESC


class Term(Node):
    """Something with a value in every row."""

    __slots__ = ()

    @property
    def value_kind(self) -> Kind | None:
        """The kind of its values where it is known."""
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
        """Membership in one bound list (a parameter or a sequence of text or integers) or in a one-column select."""
        if isinstance(values, Param | RowSource):
            return Membership(self, values)
        if isinstance(values, str | bytes):
            raise BadValue("in_ takes a sequence of values, not one text")
        return Membership(self, tuple(values))

    def as_(self, name: str) -> Aliased:
        """This term under a name, in the list of a select or a returning."""
        return Aliased(self, name)


class Condition(Node):
    """Something that is true, false or unknown in every row."""

    __slots__ = ()


class RowSource(Node):
    """A select or a union that can stand in parentheses inside another statement."""

    __slots__ = ()


Operand = Term | Value


def term(operand: Operand) -> Term:
    """A term as it is, a plain value as a bound constant. Raises BadValue for any other type."""
    return operand if isinstance(operand, Term) else lit(operand)


def comparand(operand: Operand) -> Term:
    """Like `term`, but refuses None: a comparison with null is never true, `is_null` is what was meant."""
    if operand is None:
        raise BadValue("a comparison with None is never true: use is_null() or not_null()")
    return term(operand)


@dataclass(frozen=True, slots=True)
class Aliased:
    """A term and the name that it has in the result."""

    inner: Term
    name: str


@dataclass(frozen=True, slots=True)
class Column(Term):
    name: str
    table: str | None = None
    kind: Kind | None = None

    @property
    def value_kind(self) -> Kind | None:
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
    kind: Kind | None = None

    @property
    def value_kind(self) -> Kind | None:
        return self.kind

    def render(self, out: Rendering) -> str:
        return out.parameter(self.name, self.kind)


@dataclass(frozen=True, slots=True)
class Literal(Term):
    value: Value

    @property
    def value_kind(self) -> Kind | None:
        return constant_kind(self.value)

    def render(self, out: Rendering) -> str:
        return out.constant(self.value)


@dataclass(frozen=True, slots=True)
class Call(Term):
    function: str  # one of this module's own constants, never from outside
    operands: tuple[Term, ...]
    kind: Kind | None = None

    @property
    def value_kind(self) -> Kind | None:
        return self.kind or next((kind for kind in (one.value_kind for one in self.operands) if kind), None)

    def render(self, out: Rendering) -> str:
        return f"{self.function}({', '.join(one.render(out) for one in self.operands)})"


@dataclass(frozen=True, slots=True)
class Sum(Term):
    operand: Term

    def render(self, out: Rendering) -> str:
        # PostgreSQL sums bigint as numeric, which drivers answer as Decimal.
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


def col(name: str, table: str | None = None, *, kind: Kind | None = None) -> Column:
    """A column, of a table or alias where several have the name; `kind=BLOB` lets packing refuse it at compile."""
    return Column(name, table, kind)


def excluded(name: str) -> Excluded:
    """In `do_update`: the value that the insert would have written."""
    return Excluded(name)


def param(name: str, kind: Kind | None = None) -> Param:
    """A value given to `bind`. The kind is needed only where PostgreSQL has nothing to infer it from."""
    return Param(name, kind)


def lit(value: Value) -> Literal:
    """A constant, bound. Raises BadValue for floats, booleans and integers past 64 bits."""
    constant_kind(value)
    return Literal(value)


def count() -> Term:
    """How many rows."""
    return Count()


def count_if(condition: Condition) -> Term:
    """How many rows meet the condition."""
    return Count(condition)


def min_(operand: Term) -> Term:
    return Call("min", (operand,))


def max_(operand: Term) -> Term:
    return Call("max", (operand,))


def sum_(operand: Term) -> Term:
    """The sum as a 64-bit integer, null over no rows; both databases fail where it does not fit."""
    return Sum(operand)


def coalesce(first: Operand, second: Operand, *more: Operand) -> Term:
    """The first of them that is not null."""
    return Call("coalesce", tuple(map(term, (first, second, *more))))


def plus(left: Operand, right: Operand) -> Term:
    return Arithmetic("+", term(left), term(right))


def minus(left: Operand, right: Operand) -> Term:
    return Arithmetic("-", term(left), term(right))


def times(left: Operand, right: Operand) -> Term:
    return Arithmetic("*", term(left), term(right))


def whole_part(left: Operand, right: Operand) -> Term:
    """How often `right` fits into `left`: a whole number, cut towards 0 on both databases."""
    return Arithmetic("/", term(left), term(right))


def smaller_of(left: Operand, right: Operand) -> Term:
    """The smaller of two values; what it is where one is null differs between databases."""
    return Smaller(term(left), term(right))


def all_of(*conditions: Condition) -> Condition:
    """True where all are; of none, true."""
    return Junction("AND", conditions)


def any_of(*conditions: Condition) -> Condition:
    """True where one is; of none, false."""
    return Junction("OR", conditions)


def not_(condition: Condition) -> Condition:
    return Negation(condition)


def asc(operand: Term) -> Ordering:
    return Ordering(operand, ASC)


def desc(operand: Term) -> Ordering:
    return Ordering(operand, DESC)


def seek(*keys: tuple[str | Column, Direction, Operand]) -> Condition:
    """Rows strictly after these values in the order of the keys, which must be that of the query.

    `c1 <= v AND (c1 < v OR owner > o)`: the first test is a range that an index can start from, which neither the
    plain OR nor (on SQLite, which tests the tuple again on every row) a row value gives.
    """
    if not keys:
        raise IncompleteQuery("seek needs at least one key")
    (column, direction, value), *rest = keys
    subject = col(column) if isinstance(column, str) else column
    beyond = subject.gt(value) if direction is ASC else subject.lt(value)
    if not rest:
        return beyond
    not_before = subject.ge(value) if direction is ASC else subject.le(value)
    return all_of(not_before, any_of(beyond, seek(*rest)))
