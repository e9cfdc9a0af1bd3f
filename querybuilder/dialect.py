"""Describes the differences between SQLite and PostgreSQL as data, and quotes identifiers.

The name of a table or column enters SQL text only through `quote`, which makes the name exactly one token.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from querybuilder.errors import QueryError

# PostgreSQL silently cuts off longer names (NAMEDATALEN - 1), so two names could become the same. Longer names are
# refused on SQLite too, so that every name works on both databases.
IDENTIFIER_BYTES_MAX = 63


class SqlType(Enum):
    """The kinds of columns. An integer is signed and has 64 bits."""

    TEXT = "text"
    INTEGER = "integer"
    BLOB = "blob"


TEXT = SqlType.TEXT
INTEGER = SqlType.INTEGER
BLOB = SqlType.BLOB


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """Describes the SQL of one database, such as SQLITE. A dialect equals only itself, so it can be a dict key."""

    name: str
    quote_mark: str
    numbered: bool  # placeholders are $1, $2 …, and each may occur several times; otherwise each `?` takes one argument
    arrays: bool  # a list is bound as one array, rows as one array for each column; otherwise both are JSON texts
    packs: bool  # a whole result can be returned as one JSON row
    merges_arms: bool  # an ordered union reads its selects row by row; otherwise it reads and sorts all rows of each
    row_locks: bool  # writers lock rows, and a select may lock them; otherwise a writer locks the whole store
    type_names: Mapping[SqlType, str]
    table_options: tuple[str, ...]  # options that every table is created with
    clustered_options: tuple[str, ...]  # further options of a table that is stored in the order of its primary key
    collation: str  # SQL after the type of a text column, so that its text is ordered by code point
    lateral: bool  # a joined select may use columns of the sources before it, which saves round trips
    chains: bool  # one statement can change several tables; its inserts may use the rows that its update returned
    empty_table: str  # the words before the table's name in a statement that deletes all rows
    parses_schema: bool  # after each change of a definition, every connection parses all definitions again
    clock_us: str  # SQL for the current time in microseconds since 1970
    smaller: str  # the name of the SQL function that returns the smaller of two values
    larger: str  # the name of the SQL function that returns the larger of two values
    counts_skipped: bool = True  # the reported row count of an insert leaves out rows that conflicts skipped
    spares_tables: bool = False  # there are times at which no table can be made, so tables are made in advance
    schema_of: Callable[[str], str | None] = lambda table: None  # a table's schema; None: the connection's schema
    # On Citus, the number of a table's only shard, by schema and table. If set, statements read the shard itself.
    shard_of: Callable[[str, str], int] | None = None


# SQLite silently takes an unknown name in double quotes for a string. An unknown name in backticks is an error.
# With STRICT (since 3.37), an integer column refuses the float that results from an integer overflow.
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
    empty_table="DELETE FROM",  # without a condition, SQLite frees the pages without reading them
    parses_schema=True,
    clock_us="(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)",
    smaller="min",
    larger="max",
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
    empty_table="TRUNCATE TABLE",
    parses_schema=False,
    clock_us="(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    smaller="least",
    larger="greatest",
)


def quote(dialect: Dialect, identifier: str) -> str:
    """Return the identifier as one quoted token. Raises QueryError for a name that cannot be quoted."""
    if not identifier:
        raise QueryError("an identifier cannot be empty")
    if "\0" in identifier:
        raise QueryError("an identifier cannot hold NUL: the SQL text would end there")
    try:
        size_bytes = len(identifier.encode())
    except UnicodeEncodeError as error:
        raise QueryError("an identifier cannot hold lone surrogates") from error
    if size_bytes > IDENTIFIER_BYTES_MAX:
        raise QueryError(f"an identifier has at most {IDENTIFIER_BYTES_MAX} bytes, this one {size_bytes}")
    mark = dialect.quote_mark
    return mark + identifier.replace(mark, mark + mark) + mark
