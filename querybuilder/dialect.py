"""The differences between SQLite and PostgreSQL, as data, and the one function that quotes an identifier.

The rule: a name enters SQL text only through `quote`, which makes it exactly one token.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from querybuilder.errors import BadIdentifierError

# PostgreSQL cuts longer names silently (NAMEDATALEN - 1), so two of them could become the same. They are refused on
# SQLite too: a name that works must work on both.
IDENTIFIER_BYTES_MAX = 63


class SqlType(Enum):
    """The kinds of column: text, signed 64-bit integers, and bytes."""

    TEXT = "text"
    INTEGER = "integer"
    BLOB = "blob"


TEXT = SqlType.TEXT
INTEGER = SqlType.INTEGER
BLOB = SqlType.BLOB


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """One way of writing SQL: SQLITE, POSTGRES, or a result of `numbered_from`. Dialects are compared by identity."""

    name: str
    quote_mark: str
    numbered: bool  # placeholders are $1, $2 …, each usable several times; otherwise `?`, one argument each
    arrays: bool  # lists and rows travel as one array a column; otherwise as one JSON text
    packs: bool  # a result can be folded into one JSON row
    merges_arms: bool  # an ordered union reads each arm in order, row by row; otherwise it reads and sorts whole arms
    row_locks: bool  # writers lock rows, and a select may lock them; otherwise one writer has the whole store
    type_names: Mapping[SqlType, str]
    table_options: tuple[str, ...]  # what every table declares
    clustered_options: tuple[str, ...]  # what a table stored in primary key order declares
    collation: str  # appended to text columns, so that their order is the order of code points
    lateral: bool  # a joined select may use the rows before it, which is cheaper than round trips
    chains: bool  # one statement can change several tables, each change using what the one before returned
    cursors: bool  # a transaction can keep its place in a long result: see querybuilder.cursors
    empty_table: str  # the words before the name of a table whose rows are all deleted
    parses_schema: bool  # after each change of a definition every connection parses the definitions of all tables again
    no_limit: str  # what must stand before an OFFSET that has no LIMIT
    clock_us: str  # the present time in microseconds since 1970
    smaller: str  # the function that returns the smaller of two values
    numbered_column: str  # the type of a column that numbers rows in the order of their inserts
    transaction: str  # the number of the running transaction, for writers only; empty: there is one writer at a time
    oldest_transaction: str  # in this snapshot: the lowest number that a transaction still running has or may get
    next_transaction: str  # in this snapshot: the lowest number that no transaction has yet


# A double-quoted name that SQLite cannot resolve silently becomes a string constant; one in backticks is an error.
# STRICT (3.37): an integer column refuses the float that an overflowing addition makes, as PostgreSQL does.
SQLITE = Dialect(
    name="sqlite",
    quote_mark="`",
    numbered=False,
    arrays=False,
    packs=True,
    merges_arms=True,
    row_locks=False,
    type_names=MappingProxyType({TEXT: "TEXT", INTEGER: "INTEGER", BLOB: "BLOB"}),
    table_options=("STRICT",),
    clustered_options=("WITHOUT ROWID",),
    collation="",
    lateral=False,
    chains=False,
    cursors=False,
    empty_table="DELETE FROM",  # without a condition SQLite drops the pages unread, as TRUNCATE does
    parses_schema=True,
    no_limit="LIMIT -1 ",
    clock_us="(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)",
    smaller="min",
    numbered_column="INTEGER",  # as the only column of the primary key
    transaction="",
    oldest_transaction="",
    next_transaction="",
)
POSTGRES = Dialect(
    name="postgres",
    quote_mark='"',
    numbered=True,
    arrays=True,
    packs=False,
    merges_arms=False,
    row_locks=True,
    type_names=MappingProxyType({TEXT: "text", INTEGER: "bigint", BLOB: "bytea"}),
    table_options=(),
    clustered_options=(),
    collation=' COLLATE "C"',
    lateral=True,
    chains=True,
    cursors=True,
    empty_table="TRUNCATE TABLE",
    parses_schema=False,
    no_limit="",
    clock_us="(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    smaller="least",
    numbered_column="bigint GENERATED ALWAYS AS IDENTITY",
    transaction="txid_current()",
    # Not from the list of running transactions: it is empty in the snapshot of a hot standby.
    oldest_transaction="txid_snapshot_xmin(txid_current_snapshot())",
    next_transaction="txid_snapshot_xmax(txid_current_snapshot())",
)


def numbered_from(dialect: Dialect, before: int) -> Dialect:
    """Return the dialect with `before` added to every number of a transaction.

    It is for a server whose data came from another server: its numbers continue after those that the other one gave.
    """
    return replace(
        dialect,
        transaction=f"({dialect.transaction} + {before:d})",
        oldest_transaction=f"({dialect.oldest_transaction} + {before:d})",
        next_transaction=f"({dialect.next_transaction} + {before:d})",
    )


def quote(dialect: Dialect, identifier: str) -> str:
    """Return the identifier as one quoted token. Raises BadIdentifierError for what quoting cannot carry."""
    if not identifier:
        raise BadIdentifierError("an identifier cannot be empty")
    if "\0" in identifier:
        raise BadIdentifierError("an identifier cannot hold NUL: the SQL text would end there")
    try:
        size_bytes = len(identifier.encode())
    except UnicodeEncodeError as error:
        raise BadIdentifierError("an identifier cannot hold lone surrogates") from error
    if size_bytes > IDENTIFIER_BYTES_MAX:
        raise BadIdentifierError(f"an identifier has at most {IDENTIFIER_BYTES_MAX} bytes, this one {size_bytes}")
    mark = dialect.quote_mark
    return mark + identifier.replace(mark, mark + mark) + mark
