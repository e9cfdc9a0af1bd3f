"""Says where each table is: in the control partition, in each partition that holds boards, or in both.

    control        catalog, keys, profiles, grants, acts of operators, pools of leases, refresh requests
    0, 1, 2 …      rows and gates of boards, change log, totals, post ids, curves, live counts
    both           sequences, leases on the store's work, and the queue: every partition has its own such tables

A board and everything that a post changes are in one partition. So no statement needs tables of two partitions, and on
PostgreSQL each partition may be on another server. Most stores have one partition, and all tables are in one schema.
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
    """Return pairs: a partition, and a table that it has. Leave out `meta`. `apart`: the control partition is not 0."""
    control = [*_CONTROL, *(_by_name(TABLES_OF_BOTH) if apart else ())]
    found = [(CONTROL if apart else 0, name) for name in control if name != META_TABLE.name]
    return found + [(partition, name) for partition in range(partitions) for name in _OTHERS]


def prepare_put(table: str) -> Prepared:
    """Prepare a statement that stores a row. The row replaces the row with the same primary key, if there is one.

    Its parameters have the names of the table's columns.
    """
    row = insert(table).values(**{name: param(name) for name in TABLES[table].kinds})
    return row.on_conflict(*TABLES[table].keys).overwrite().prepared()


def prepare_put_rows(table: str) -> Prepared:
    """Prepare a statement that stores the rows of its parameter `rows`, each as the statement of `prepare_put` does."""
    rows = insert(table).rows(param("rows"), **TABLES[table].kinds)
    return rows.on_conflict(*TABLES[table].keys).overwrite().prepared()


def place_tables(partition: int, schema_of: Callable[[int], str | None]) -> Callable[[str], str | None]:
    """Make a function that finds the schema of a table by name, for programs that run for this partition.

    `schema_of` returns the schema of a partition. The function returns None for a name that is no table of the store,
    such as the name of a subquery in a WITH clause.
    """
    control, own = schema_of(CONTROL), schema_of(partition)

    def find_schema(table: str) -> str | None:
        if table in _CONTROL:
            return control
        return own if table in _OTHERS or table.startswith(ROW_TABLES_PREFIX) else None

    return find_schema
