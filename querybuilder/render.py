"""Turns a builder (a `Query`) into SQL text, which is compiled once, and arguments, which come with each run.

    Query ── prepared() ──> Prepared ── bind(**params) ──> Bound ── build(dialect) ──> Built, ready to execute
                               └── one Statement for each dialect, compiled when it is first needed

Binding has to be fast, so `Statement.__init__` computes everything that does not depend on the values, and
`Statement.build` only picks values out of a dict.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

import msgspec

from querybuilder.arguments import Encoder, array_type, constant_kind
from querybuilder.dialect import Dialect, SqlType, quote
from querybuilder.errors import QueryError

STATEMENT_KINDS = ("select", "insert", "update", "delete", "with", "other")

# A slot says where an argument comes from. It is the name of a parameter or the index of a constant. If an encoder
# turns a parameter into several arguments, the slot is the pair of the parameter's name and the argument's index.
Slot = str | int | tuple[str, int]


class Built(msgspec.Struct, frozen=True, gc=False):
    """A query that is ready to execute: its SQL text and its arguments.

    Each run of a query creates a `Built`. Creating a msgspec struct is several times faster than creating a dataclass.
    """

    sql: str
    arguments: tuple[object, ...]  # in the order of the placeholders
    packed: bool  # whether the result is a single JSON text: an array with one array for each row
    kind: str  # one of STATEMENT_KINDS: the first word of the text in lower case, or `other`
    returns_rows: bool
    schema: str | None = None  # the schema of the tables; None: the connection's schema, or a table of the system


class Statement:
    """A compiled query, which is immutable, so threads and requests may share it."""

    __slots__ = ("_constants", "_encoders", "_kind", "_pick", "_returns_rows", "_schema", "packed", "parameters", "sql")

    def __init__(self, sql: str, out: Rendering, *, packed: bool) -> None:
        self.sql, self.packed, self._schema = sql, packed, out.schema
        word = sql.partition(" ")[0].lower()
        self._kind = word if word in STATEMENT_KINDS else "other"
        self._returns_rows = word in ("select", "with") or " RETURNING " in sql
        self._constants: dict[Any, object] = dict(enumerate(out.constants))
        self._encoders = out.encoders
        self._pick = _picker(tuple(out.slots))
        scalars = frozenset(slot for slot in out.slots if isinstance(slot, str))
        self.parameters = scalars | out.encoders.keys()

    def build(self, params: Mapping[str, object]) -> Built:
        """Build the query with these arguments, ready to execute.

        Raises QueryError for missing or unknown names, and for a list or rows that would not arrive unchanged.
        """
        if len(params) != len(self.parameters):
            raise self._mismatch(params)
        values: Mapping[Any, object] = params
        if self._encoders:
            values = self._encoded(params)
        elif self._constants:
            values = {**self._constants, **params}
        try:
            return Built(self.sql, self._pick(values), self.packed, self._kind, self._returns_rows, self._schema)
        except KeyError:
            raise self._mismatch(params) from None

    def _encoded(self, params: Mapping[str, object]) -> dict[Any, object]:
        if params.keys() != self.parameters:
            raise self._mismatch(params)
        values: dict[Any, object] = {**self._constants, **params}
        for name, encoder in self._encoders.items():
            for index, argument in enumerate(encoder.encode(params[name])):
                values[name, index] = argument
        return values

    def _mismatch(self, params: Mapping[str, object]) -> QueryError:
        missing = sorted(self.parameters - params.keys())
        unknown = sorted(params.keys() - self.parameters)
        return QueryError(f"missing parameters {missing}, unknown parameters {unknown}: {self.sql}")


def _picker(slots: tuple[Slot, ...]) -> Callable[[Mapping[Slot, object]], tuple[object, ...]]:
    if not slots:
        return lambda values: ()
    if len(slots) == 1:
        only = slots[0]
        return lambda values: (values[only],)  # an itemgetter of one key would return a value, not a tuple
    return itemgetter(*slots)


class Rendering:
    """The state while a query is compiled: the names, constants and placeholders so far.

    The placeholder `?` is positional, so callers must render the parts of a statement in the order of the SQL.
    """

    def __init__(self, dialect: Dialect, *, binds_values: bool = True) -> None:
        self.dialect = dialect
        self._binds_values = binds_values
        self.schema: str | None = None  # of the last table that has one; all tables of a statement are in one schema
        self._shard: int | None = None  # of the last table, if the dialect reads shards
        self.slots: list[Slot] = []
        self.constants: list[object] = []
        self.encoders: dict[str, Encoder] = {}
        self._numbers: dict[tuple[object, ...], str] = {}  # PostgreSQL only: the placeholder $n of each value
        self._names: set[str] = set()  # the names in lower case, because SQLite ignores case

    def name(self, identifier: str) -> str:
        """Quote an identifier, and keep `fresh_name` from returning it from now on."""
        quoted = quote(self.dialect, identifier)
        self._names.add(identifier.lower())
        return quoted

    def table(self, identifier: str) -> str:
        """Quote the name of a table, with its schema, as FROM needs it. Before a column, use `name` instead."""
        schema, quoted = self.dialect.schema_of(identifier), self.name(identifier)
        if schema is None:
            return quoted
        self.schema = schema
        if self.dialect.shard_of is not None:
            self._shard = self.dialect.shard_of(schema, identifier)
            quoted = self.name(f"{identifier}_{self._shard}")
        return f"{quote(self.dialect, schema)}.{quoted}"

    def fresh_name(self, stem: str) -> str:
        """Create a quoted name that is not used in anything rendered so far."""
        while stem in self._names:
            stem += "_"
        return self.name(stem)

    def constant(self, value: object) -> str:
        """Add a placeholder for a constant, on PostgreSQL with a cast. Without one, PostgreSQL would infer text."""
        kind = constant_kind(value)
        return self._placeholder(("constant", kind, value), len(self.constants), cast=kind, constant=value)

    def parameter(self, name: str, kind: SqlType | None) -> str:
        if name in self.encoders:
            raise QueryError(f"parameter {name} is used both as a scalar and as a list")
        return self._placeholder(("parameter", kind, name), name, cast=kind)

    def list_parameter(self, name: str) -> str:
        return self._encoded(name, Encoder(None, self.dialect.arrays), [None])[0]

    def rows_parameter(self, name: str, kinds: tuple[SqlType, ...]) -> list[str]:
        """Add the placeholders of a batch of rows: one for a JSON text of all rows, or one array for each column."""
        casts: list[str | None] = [None]
        if self.dialect.arrays:
            casts = [array_type(self.dialect, kind) for kind in kinds]
        elif SqlType.BLOB in kinds:
            raise QueryError("bytes cannot travel in bulk on SQLite: JSON has no form for them")
        return self._encoded(name, Encoder(kinds, self.dialect.arrays), casts)

    def statement(self, sql: str, *, packed: bool = False) -> Statement:
        """Finish the statement with the text `sql`, after all parts of the text have been rendered."""
        if self._shard is not None:
            # A shard stays for a while after it was moved to another node. Then this condition divides by zero.
            here = f"pg_dist_placement JOIN pg_dist_local_group USING (groupid) WHERE shardid = {self._shard}"
            sql = f"SELECT * FROM ({sql}) AS {self.fresh_name('r')} WHERE (SELECT 1 / count(*) FROM {here}) = 1"
        return Statement(sql, self, packed=packed)

    def _encoded(self, name: str, encoder: Encoder, casts: Sequence[str | None]) -> list[str]:
        known = self.encoders.setdefault(name, encoder)
        if known != encoder or name in self.slots:
            raise QueryError(f"parameter {name} is used in two different ways")
        return [
            self._placeholder(("encoded", name, index), (name, index)) + (f"::{cast}" if cast else "")
            for index, cast in enumerate(casts)
        ]

    def _placeholder(
        self, identity: tuple[object, ...], slot: Slot, *, cast: SqlType | None = None, constant: object = None
    ) -> str:
        if not self._binds_values:
            raise QueryError("a definition cannot bind values")
        if not self.dialect.numbered:
            self._add(slot, constant)
            return "?"
        # A value that is used twice gets one placeholder: GROUP BY must see the same expression as the select list.
        number = self._numbers.get(identity)
        if number is None:
            self._add(slot, constant)
            number = self._numbers[identity] = f"${len(self.slots)}"
        return f"{number}::{self.dialect.type_names[cast]}" if cast else number

    def _add(self, slot: Slot, constant: object) -> None:
        self.slots.append(slot)
        if isinstance(slot, int):
            self.constants.append(constant)


class Node(ABC):
    __slots__ = ()

    @abstractmethod
    def render(self, out: Rendering) -> str:
        """Render this piece. Request names and placeholders from `out` in the order of the SQL text."""


@dataclass(frozen=True, slots=True)
class Written(Node):
    """A piece of SQL that calls the function `write` to render itself. `write` must do what `Node.render` describes."""

    write: Callable[[Rendering], str]

    def render(self, out: Rendering) -> str:
        return self.write(out)


class Query(Node):
    """A builder for a whole statement. Builders are immutable, so every method returns a new builder."""

    __slots__ = ()
    is_definition: ClassVar[bool] = False  # whether the statement defines or drops something, and so binds no values

    def compile(self, dialect: Dialect) -> Statement:
        """Compile the statement for this dialect. Raises a QueryError if the dialect cannot express the query."""
        out = Rendering(dialect, binds_values=not self.is_definition)
        return out.statement(self.render(out))

    def count_changed(self, rows: Sequence[Sequence[Any]]) -> int:
        """Count the rows of a table that a run of the statement changed. `rows` is what the run returned."""
        return 0

    def prepared(self) -> Prepared:
        return Prepared(self)

    def bind(self, /, **params: object) -> Bound:
        """Bind arguments to this query, like `Prepared.bind`, but for rare queries, because the SQL is not kept."""
        return Bound(Prepared(self), params)


class Command(Written, Query):
    __slots__ = ()


class Prepared:
    """A query that is compiled once for each dialect, when a store of that dialect first runs it."""

    __slots__ = ("_query", "count_changed", "is_definition", "statements")

    def __init__(self, query: Query) -> None:
        self._query = query
        self.count_changed = query.count_changed
        self.is_definition = query.is_definition
        self.statements: dict[Dialect, Statement] = {}

    def bind(self, /, **params: object) -> Bound:
        """Bind arguments: scalars, sequences for `in_`, and iterables of rows for bulk writes.

        `Bound.build` checks them.
        """
        return Bound(self, params)

    def compile(self, dialect: Dialect) -> Statement:
        statement = self.statements.get(dialect)
        if statement is None:
            statement = self.statements[dialect] = self._query.compile(dialect)
        return statement


class Bound(msgspec.Struct, frozen=True, gc=False):
    """A query with its arguments, for any dialect. A program (a generator) yields it to a store, which builds the SQL.

    A store with several partitions has one dialect for each of them, and builds the query in the dialect of
    `partition`. If `partition` is None, it uses the partition for which the program runs.
    """

    query: Prepared
    params: dict[str, object]
    partition: int | None = None

    def at(self, partition: int) -> Bound:
        """Send the query to the partition with this number, unless it already has a partition."""
        return Bound(self.query, self.params, partition) if self.partition is None else self

    def build(self, dialect: Dialect) -> Built:
        """Build the query's SQL text and arguments in a dialect.

        Raises a QueryError if the dialect cannot express the query, or if a name or value of the arguments is wrong.
        """
        query = self.query
        statement = query.statements.get(dialect) or query.compile(dialect)  # the dict lookup mostly saves a call
        return statement.build(self.params)
