"""Creates the schema of a new store, and refuses a store whose schema this version does not know."""

import secrets

from querybuilder import TEXT, Dialect, Query, col, create_change_check, create_row_reader, create_table, insert, select
from storage.errors import SchemaUnknownError, StoreDamagedError
from storage.store import Program, Store

from .ingest_tables import create_ingest_tables
from .lease_tables import create_lease_tables
from .tables import CATALOG_TABLES, CURVE_TABLES, ENTRY_TABLES, LOG_COUNTER, LOG_TABLES, META, SEQUENCES

SCHEMA_VERSION = 2


def create_meta_table() -> Query:
    """Return the table that says what the store is: the version of its schema, and its salt."""
    return create_table(META).column("name", TEXT).column("content", TEXT).primary_key("name").if_not_exists()


async def prepare_store(store: Store) -> str:
    """Create the schema of a new store, and return the store's secret salt (hex). Raises what `create_schema` does."""
    return await store.write(lambda: create_schema(store.dialect))


def create_schema(dialect: Dialect) -> Program[str]:
    """Create all tables unless they are there, and return the store's secret salt (hex), which the creation draws.

    Raises:
        SchemaUnknownError: a version of the service with another schema wrote this store.
        StoreDamagedError: the table `meta` does not say which schema the store has.
    """
    yield create_meta_table().bind()
    rows = yield select(col("name"), col("content")).from_(META).bind()
    meta: dict[str, str] = {row[0]: row[1] for row in rows}
    if meta and not (meta.get("schema_version", "").isdecimal() and meta.get("salt")):
        raise StoreDamagedError("the table meta, which describes the store, is damaged: restore a backup")
    if meta:
        version = int(meta["schema_version"])
        if version != SCHEMA_VERSION:
            raise SchemaUnknownError(f"the store has schema {version}, this version knows {SCHEMA_VERSION}")
        return meta["salt"]
    tables = (*CATALOG_TABLES, *ENTRY_TABLES, *CURVE_TABLES, *LOG_TABLES)
    functions = (create_row_reader(), create_change_check()) if dialect.cursors and dialect.chains else ()
    for query in (*tables, *create_lease_tables(), *create_ingest_tables(), *functions):
        yield query.bind()
    yield insert(LOG_COUNTER).values(counter_key=0, next=1, pruned_before=0, hides=0).bind()
    yield insert(SEQUENCES).values(name="lease_events", next=0).bind()
    salt = secrets.token_hex(16)
    for name, content in (("schema_version", str(SCHEMA_VERSION)), ("salt", salt)):
        yield insert(META).values(name=name, content=content).bind()
    return salt
