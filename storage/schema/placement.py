"""Decides where each table belongs: in the control partition, in the partitions that hold boards, or in both.

    control        catalog, keys, profiles, grants, acts of operators, pools of leases, refresh requests
    0, 1, 2 …      rows and gates of boards, change log, totals, post ids, curves, live counts
    both           sequences, leases on the store's work, and the queue: every partition has its own such tables

A board shares its partition with everything that a post to it changes. No statement therefore needs tables from two
partitions, and on PostgreSQL each partition may be on a different server. Most stores have a single partition, with all
tables in one schema.
"""

from collections.abc import Callable, Iterable

from querybuilder import CreateTable, Prepared, Query, insert, param
from storage.store import CONTROL

from .ingest_tables import QUEUE_TABLES, SEMAPHORE_TABLES
from .lease_tables import LEASE_TABLES
from .tables import CATALOG_TABLES, CURVE_TABLES, ENTRY_TABLES, LOG_TABLES, META_TABLE, ROW_TABLES_PREFIX, WORK_TABLES

CONTROL_TABLES = (META_TABLE, *CATALOG_TABLES, *LEASE_TABLES, *SEMAPHORE_TABLES)
BOARD_TABLES = (*ENTRY_TABLES, *CURVE_TABLES, *LOG_TABLES)
TABLES_OF_BOTH = (*WORK_TABLES, *QUEUE_TABLES)


def _by_name(queries: Iterable[Query]) -> dict[str, CreateTable]:
    return {query.name: query for query in queries if isinstance(query, CreateTable)}


_CONTROL, _OTHERS = _by_name(CONTROL_TABLES), _by_name((*BOARD_TABLES, *TABLES_OF_BOTH))
TABLES = _CONTROL | _OTHERS  # the definitions of all tables of the store, by name


def list_tables(partitions: int, *, apart: bool) -> list[tuple[int, str]]:
    """Return a pair (partition, table) for each table except `meta`.

    With `apart`, the control partition is separate from partition 0.
    """
    control = [*_CONTROL, *(_by_name(TABLES_OF_BOTH) if apart else ())]
    found = [(CONTROL if apart else 0, name) for name in control if name != META_TABLE.name]
    return found + [(partition, name) for partition in range(partitions) for name in _OTHERS]


def prepare_put(table: str) -> Prepared:
    """Prepare a statement that stores a row, replacing any row with the same primary key.

    The statement's parameters are named after the table's columns.
    """
    row = insert(table).values(**{name: param(name) for name in TABLES[table].kinds})
    return row.on_conflict(*TABLES[table].keys).overwrite().prepared()


def prepare_put_rows(table: str) -> Prepared:
    """Prepare a statement that stores each row in its parameter `rows` as `prepare_put` would."""
    rows = insert(table).rows(param("rows"), **TABLES[table].kinds)
    return rows.on_conflict(*TABLES[table].keys).overwrite().prepared()


def place_tables(partition: int, schema_of: Callable[[int], str | None]) -> Callable[[str], str | None]:
    """Return a function that maps a table's name to its schema, for programs that run in this partition.

    `schema_of` returns a partition's schema. The function returns None for a name that is not a table of the store,
    such as a subquery in a WITH clause.
    """
    control, own = schema_of(CONTROL), schema_of(partition)

    def find_schema(table: str) -> str | None:
        if table in _CONTROL:
            return control
        return own if table in _OTHERS or table.startswith(ROW_TABLES_PREFIX) else None

    return find_schema
