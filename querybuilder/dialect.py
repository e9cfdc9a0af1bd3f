"""What differs between SQLite and PostgreSQL, as data, and the one function that quotes an identifier.

The rule it keeps: a name enters SQL text through `quote` and nowhere else, and comes out as exactly one token.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from querybuilder.errors import BadIdentifier

# PostgreSQL cuts longer names silently (NAMEDATALEN - 1), so that two of them could meet. Refused for SQLite too: a
# name that works must work on both.
IDENTIFIER_BYTES_MAX = 63


class Kind(Enum):
    """The kinds of column there are: text, signed 64-bit integers, and bytes."""

    TEXT = "text"
    INTEGER = "integer"
    BLOB = "blob"


TEXT = Kind.TEXT
INTEGER = Kind.INTEGER
BLOB = Kind.BLOB


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """One way of writing SQL; there are two of them, and those of `numbered_from`, compared by identity."""

    name: str
    quote_mark: str
    numbered: bool  # placeholders are $1, $2 … and may be used again; otherwise `?`, one argument each
    arrays: bool  # lists and rows travel as one array a column; otherwise as one JSON text
    packs: bool  # a result can be folded into one JSON row
    merges_arms: bool  # an ordered union reads each arm in order, row by row; otherwise it reads and sorts whole arms
    row_locks: bool  # writers meet in the rows: a select may lock them; otherwise one has the whole store
    type_names: Mapping[Kind, str]
    table_options: tuple[str, ...]  # what every table declares
    clustered_options: tuple[str, ...]  # what a table stored in primary key order declares
    collation: str  # appended to text columns, so that their order is the order of code points
    lateral: bool  # a joined select may use the rows before it; round trips cost more than what it saves the server
    chains: bool  # one statement can change several tables, each by what it did to the one before
    cursors: bool  # a transaction can keep its place in a long result: see querybuilder.cursors
    empty_table: str  # what stands before the name of a table whose rows all go
    parses_schema: bool  # after each change of a table every connection parses the definitions of all tables again
    no_limit: str  # what must stand before an OFFSET that has no LIMIT
    clock_us: str  # microseconds since 1970, now
    smaller: str  # the function that answers the smaller of two values
    numbered_column: str  # the type of a column that numbers rows in the order of their inserts
    transaction: str  # the number of the running transaction, for writers only; empty: they come one after the other
    oldest_transaction: str  # the lowest number that a transaction still running, in this snapshot, has or may get
    next_transaction: str  # the lowest number that no transaction has yet, in this snapshot


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
    empty_table="DELETE FROM",  # without a condition it drops the pages unread, as TRUNCATE does
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
    # Not from the list of running ones: in a hot standby's snapshot that is empty.
    oldest_transaction="txid_snapshot_xmin(txid_current_snapshot())",
    next_transaction="txid_snapshot_xmax(txid_current_snapshot())",
)


def numbered_from(dialect: Dialect, before: int) -> Dialect:
    """The dialect with transactions numbered after so many others: those of another server, whose data this one has."""
    return replace(
        dialect,
        transaction=f"({dialect.transaction} + {before:d})",
        oldest_transaction=f"({dialect.oldest_transaction} + {before:d})",
        next_transaction=f"({dialect.next_transaction} + {before:d})",
    )


def quote(dialect: Dialect, identifier: str) -> str:
    """The identifier as one quoted token. Raises BadIdentifier for what quoting cannot carry."""
    if not identifier:
        raise BadIdentifier("an identifier cannot be empty")
    if "\0" in identifier:
        raise BadIdentifier("an identifier cannot hold NUL: the SQL text would end there")
    try:
        size_bytes = len(identifier.encode())
    except UnicodeEncodeError as error:
        raise BadIdentifier("an identifier cannot hold lone surrogates") from error
    if size_bytes > IDENTIFIER_BYTES_MAX:
        raise BadIdentifier(f"an identifier has at most {IDENTIFIER_BYTES_MAX} bytes, this one {size_bytes}")
    mark = dialect.quote_mark
    return mark + identifier.replace(mark, mark + mark) + mark
